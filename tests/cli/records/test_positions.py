import pytest

from barnabas.cli.records.positions import Start, parse_starts, parse_time
from barnabas.errors import UsageError

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1357016400000", 1357016400000),
        ("2013-01-01T05:00:00Z", 1357016400000),
        ("2013-01-01T05:00:00", 1357016400000),
        ("2013-01-01T00:00:00-05:00", 1357016400000),
        ("2013-01-01T05:00:00.123", 1357016400123),
        ("2013-01-01", 1356998400000),
        ("now", NOW),
        ("-1h", NOW - 3_600_000),
        ("-1.5d", NOW - 129_600_000),
        ("-30s", NOW - 30_000),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize(
    "text", ["", "yesterday", "-1y", "2013-13-01", "-h", "\u00b2", "-\u00b2h", "9" * 5000, f"-{'9' * 400}h"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="write milliseconds"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], (Start("earliest"), None)),
        (["beginning"], (Start("earliest"), None)),
        (["end"], (Start("latest"), None)),
        (["stored"], (Start("stored"), None)),
        (["42"], (Start("offset", 42), None)),
        (["-10"], (Start("tail", 10), None)),
        (["s@1000", "e@2000"], (Start("time", 1000), 2000)),
        (["e@-1m"], (Start("earliest"), NOW - 60_000)),
    ],
)
def test_starts(texts: list[str], expected: tuple[Start, int | None]) -> None:
    assert parse_starts(texts, NOW) == expected


@pytest.mark.parametrize("texts", [["middle"], ["1", "2"], ["s@x"], ["--5"], [""], ["\u00b2"], ["9" * 5000]])
def test_what_is_no_start(texts: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_starts(texts, NOW)
