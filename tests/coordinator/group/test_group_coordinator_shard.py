"""The groups of a partition after a restart."""

from barnabas import errors
from barnabas.coordinator.group.rebalance_history import Trigger
from coordinator.group_rig import FULL, Rig, triggers


class TestRestart:
    def test_members_go_on_without_a_rebalance(self) -> None:
        rig = Rig()
        a, b = rig.stable("a", "b")
        generation = rig.generation
        rig.restart()
        assert (rig.state(), rig.generation) == ("Stable", generation)
        assert rig.heartbeat(a, generation) == rig.heartbeat(b, generation) == 0
        assert rig.sync(b, generation).value.assignment == b.encode()
        assert rig.group().leader_id == a
        assert rig.group().is_subscribed_to("orders")

    def test_members_that_do_not_show_up_expire(self) -> None:
        rig = Rig()
        rig.stable("a", "b")
        rig.restart()
        rig.advance(11)
        rig.advance(61)
        assert rig.state() == "Empty"

    def test_parked_requests_are_sent_elsewhere(self) -> None:
        rig = Rig()
        rig.stable("a")
        parked = rig.join_twice(client="b")
        rig.groups.on_resigned(0, rig.epoch + 1)
        assert parked.error == errors.NotCoordinator.code
        assert rig.heartbeat("a-1", 1) == errors.NotCoordinator.code
        assert rig.scheduler.pending() == 0

    def test_a_group_that_is_too_large_by_now_shrinks(self) -> None:
        rig = Rig()
        ids = rig.stable("a", "b", "c")
        rig.config = type(rig.config)(max_size=2, settle_ms=0)
        rig.restart()
        assert rig.state() == "PreparingRebalance"
        joins = [rig.join(name) for name in ids]
        assert joins[2].error == FULL
        assert joins[0].value.generation_id == joins[1].value.generation_id == 4
        assert triggers(rig)[0] is Trigger.OVER_CAPACITY
