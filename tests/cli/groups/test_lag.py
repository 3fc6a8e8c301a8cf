"""The lag of a group."""

from barnabas.cli.groups.lag import lag_text, total_lag


def row(committed: int | None, end: int | None) -> dict[str, int | None]:
    lag = None if committed is None or end is None else end - committed
    return {"committed_offset": committed, "end_offset": end, "lag": lag}


def test_a_lag_is_told_only_where_something_is_committed() -> None:
    assert (lag_text([]), total_lag([])) == ("no commits", None)
    assert (lag_text([row(None, 5)]), total_lag([row(None, 5)])) == ("no commits", None)
    assert (lag_text([row(5, 5)]), total_lag([row(5, 5)])) == ("lag 0", 0)
    some = [row(3, 5), row(None, 7), row(2, None)]
    assert lag_text(some) == "lag 2, 1 of 3 partitions without a commit, 1 of 3 partitions do not exist any more"
    assert total_lag(some) == 2
    assert (lag_text([row(2, None)]), total_lag([row(2, None)]))[1] is None
