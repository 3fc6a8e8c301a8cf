"""What clients chose, on its way to people."""

import json

import pytest

from barnabas.cli.framework.output import table
from barnabas.printable import printable, printable_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders-2", "orders-2"),
        ("Zürich 東京 🛫", "Zürich 東京 🛫"),
        ("g\n2026-11-23 ERROR forged", "g\\n2026-11-23 ERROR forged"),
        ("a\r\tb", "a\\r\\tb"),
        ("\x1b[2J\x9b2J\x07", "\\x1b[2J\\x9b2J\\x07"),
        ("one\u2028two\x85three", "one\\u2028two\\x85three"),
        ("abc\u202edef", "abc\\u202edef"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_json_says_the_same_without_control_characters() -> None:
    value = {"group": "g\x9b2J\x7f\x1b[0m\n", "file": "a\udcff", "city": "Zürich"}
    text = printable_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert text.isprintable()
    assert "Zürich" in text


def test_a_cell_of_a_table_stays_in_its_row() -> None:
    lines = table(("group", "state"), [("g\nh  Dead", "Stable"), ("\x1b[8m", None)]).split("\n")
    assert lines == ["GROUP       STATE", "g\\nh  Dead  Stable", "\\x1b[8m     -"]
