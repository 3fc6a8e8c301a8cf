import json

from barnabas.cli.groups.groups import group_report, group_text
from barnabas.cli.groups.lag import lag_text, total_lag
from barnabas.client.admin.groups import GroupDescription, GroupListing, GroupMemberView, rebalances_of
from barnabas.types import TopicPartition

EVENT = {
    "started_ms": 1357016400000,
    "completed_ms": 1357016400100,
    "generation_id": 3,
    "trigger": "member left",
    "reason": "member a left: the consumer is closed",
    "member_count": 2,
    "notes": ["member b joined"],
    "notes_dropped": 4,
}


def test_rebalances_are_told_with_their_reasons() -> None:
    rebalances = rebalances_of(json.dumps([EVENT, EVENT | {"completed_ms": None, "notes": [], "notes_dropped": 0}]))
    description = GroupDescription("g", "Stable", "consumer", "range", 1, (), rebalances)
    lines = group_text(group_report("g", description, None, [])).splitlines()
    assert lines[0] == "group g, state Stable, type classic, assignor range, coordinator 1, no members, no commits"
    assert "member a left: the consumer is closed; member b joined; and 4 more" in lines[-2]
    assert lines[-2].startswith("2013-01-01T05:00:00.000Z  3")
    assert "running" in lines[-1]


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


def test_other_brokers_tell_none() -> None:
    assert rebalances_of(None) == rebalances_of("") == rebalances_of("not JSON") == ()


def test_members_that_a_broker_does_not_show_are_not_counted() -> None:
    listing = GroupListing("g", "consumer", "Stable", "consumer")
    report = group_report("g", None, listing, [])
    assert report["members"] is None
    assert "members not shown by this broker" in group_text(report)


def test_no_id_or_reason_forges_a_line() -> None:
    forged = "\n\x1b[2Jgroup other, state Dead"
    events = rebalances_of(json.dumps([EVENT | {"reason": f"left{forged}"}]))
    member = GroupMemberView(f"m{forged}", f"i{forged}", f"c{forged}", "/127.0.0.1", (TopicPartition("t", 0),), ("t",))
    description = GroupDescription(f"g{forged}", "Stable", "consumer", f"range{forged}", 1, (member,), events)
    text = group_text(group_report(f"g{forged}", description, None, []))
    assert "\x1b" not in text
    assert [line for line in text.splitlines() if line.startswith("group ")] == [text.splitlines()[0]]
    assert text.count("\\n\\x1b[2Jgroup other") == 5
