"""The options of the source and the sink: their names, and the forms of their values."""

import pytest

from barnabas.errors import UsageError
from barnabas.spark.option_table import SOURCE_OPTIONS, check_names, parse_duration_ms


def test_every_option_of_the_table_is_known() -> None:
    for option in SOURCE_OPTIONS:
        check_names({option.name: "", option.name.lower(): ""})


def test_durations() -> None:
    asked = ("15m", "30s", "1h", "20", "7 min", "2D", "1 second", "1.5 minutes", "250 milliseconds", " 0 seconds ")
    assert [parse_duration_ms(text, "option") for text in asked] == [
        *(900_000, 30_000, 3_600_000, 20, 420_000, 172_800_000, 1000, 90_000, 250, 0)
    ]
    assert [parse_duration_ms(text, "--every", bare=False) for text in (".5 s", "5. s", "5s")] == [500, 5000, 5000]
    for wrong in ("soon", "1.2.3 s", "-1 s", "5 parsecs", "", "s", ".", ". s", "\u0661s"):
        with pytest.raises(UsageError, match=r"option=.* must be a time: 500 ms, .*; a number alone is milliseconds"):
            parse_duration_ms(wrong, "option")
    for wrong in ("5", "0.5", "s", ""):
        with pytest.raises(UsageError, match=r"--every='.*' must be a time: 500 ms, .*; a number needs its unit$"):
            parse_duration_ms(wrong, "--every", bare=False)
