"""The history of a group's rebalances."""

import json

from barnabas.coordinator.group.rebalance_history import MEMBERS_MAX, NOTES_MAX, RebalanceHistory, Trigger
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


def test_notes_and_members_of_one_rebalance_are_bounded() -> None:
    history = RebalanceHistory(2)
    history.note("nothing is going on")
    history.begin(5, 1, Trigger.MEMBER_LEFT, "a left")
    for number in range(NOTES_MAX + 3):
        history.note(f"note {number}")
    history.complete(9, 2, "m0", [f"m{number}" for number in range(MEMBERS_MAX + 7)])
    history.note("too late")
    history.complete(99, 99, None, [])
    (event,) = history.events()
    assert (event.notes[-1], len(event.notes), event.notes_dropped) == (f"note {NOTES_MAX - 1}", NOTES_MAX, 3)
    assert (event.member_count, len(event.members)) == (MEMBERS_MAX + 7, MEMBERS_MAX)
    assert (event.completed_ms, event.generation_id, event.leader_id) == (9, 2, "m0")
    assert json.loads(json.dumps(event.as_dict()))["trigger"] == "member left"
