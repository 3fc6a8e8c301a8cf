"""Tables, times and sizes that commands print."""

import json

import pytest

from barnabas.cli.framework.output import known, print_json, show, size_text, table, time_text


def test_columns_of_numbers_stand_to_the_right() -> None:
    shown = table(["topic", "lag", "rate"], [["orders", 5, "1,000.5"], ["a\x1b[2J", None, "-2"]])
    assert shown.splitlines() == [
        "TOPIC     LAG     RATE",
        "orders      5  1,000.5",
        "a\\x1b[2J    -       -2",
    ]
    assert table(["a", "b"], []) == "A  B"


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (1357016400123, "2013-01-01T05:00:00.123Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "-"),
        (2**62, str(2**62)),
    ],
)
def test_times(timestamp: int, text: str) -> None:
    assert time_text(timestamp) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, None), (0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e9, "2.5 GB"), (5e15, "5000.0 TB")],
)
def test_sizes(size: float | None, text: str | None) -> None:
    assert size_text(size) == text


def test_values_for_programs_and_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": ValueError("x"), "b": "\x1b", "c": "ü"})
    out = capsys.readouterr().out
    assert json.loads(out) == {"a": "x", "b": "\x1b", "c": "ü"}
    assert "ü" in out
    assert "\x1b" not in out
    show([1], True, lambda: pytest.fail("nobody reads it"))
    show([1], False, lambda: "one")
    assert capsys.readouterr().out == "[\n  1\n]\none\n"
    assert (known(-1), known(0)) == (None, 0)
