"""The rows of the benchmark that are run."""

from bench.suite import LOADS, QUICK, Scale, Suite, format_number


def test_rows_are_chosen_by_patterns() -> None:
    rows = ("start", "produce 100 B", "1,000 topics")
    assert all(Suite([], QUICK, []).wanted(row) for row in rows)
    assert [row for row in rows if Suite([], QUICK, ["^PRODUCE", "topics$"]).wanted(row)] == list(rows[1:])


def test_numbers_have_three_digits() -> None:
    assert [format_number(value) for value in (0.012345, 1.5, 12.345, 999.4, 1000, -123456.7)] == [
        *("0.0123", "1.5", "12.3", "999", "1,000", "-123,457")
    ]


def test_a_quick_run_has_less_of_everything() -> None:
    for load in LOADS:
        assert 0 < load.records(QUICK) < load.records(Scale())
    assert len({load.topic for load in LOADS}) == len(LOADS)
