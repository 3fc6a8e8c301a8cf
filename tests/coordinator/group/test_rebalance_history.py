"""The history of a group's rebalances."""

from coordinator.group_rig import Rig


def test_history_is_bounded_and_says_what_happened() -> None:
    rig = Rig(history_events_max=3)
    (a,) = rig.stable("a")
    for _ in range(5):
        rig.join(a, reason="again")
        rig.sync(a, rig.generation, {a: b"x"})
    events = rig.groups.history("g")
    assert len(events) == 3
    last = events[-1].as_dict()
    assert last["trigger"] == "leader rejoined"
    assert (last["from_generation_id"], last["generation_id"], last["members"]) == (5, 6, [a])
    assert last["completed_ms"] >= last["started_ms"]
    assert rig.groups.history("nobody") == []
