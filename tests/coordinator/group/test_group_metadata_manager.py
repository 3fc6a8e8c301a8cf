"""Stories of groups on a virtual clock: who may join, sync and leave, and what static members keep."""

import pytest

from barnabas import errors
from barnabas.coordinator.group.rebalance_history import Trigger
from barnabas.protocol.messages.join_group import JoinGroupResponse
from coordinator.group_rig import (
    FENCED,
    FULL,
    ILLEGAL,
    INCONSISTENT,
    MEMBER_ID_REQUIRED,
    REBALANCE,
    SUBSCRIPTION,
    UNKNOWN,
    Rig,
    failing,
    triggers,
)


class TestJoin:
    def test_a_member_without_id_is_given_one_and_comes_back_with_it(self) -> None:
        rig = Rig()
        first = rig.join(client="app").value
        assert (first.error_code, first.member_id) == (MEMBER_ID_REQUIRED, "app-1")
        second = rig.join("app-1", client="app").value
        assert (second.error_code, second.generation_id, second.leader) == (0, 1, "app-1")
        assert [member.member_id for member in second.members] == ["app-1"]
        assert second.members[0].metadata == SUBSCRIPTION

    def test_before_version_4_the_id_comes_with_the_generation(self) -> None:
        joined = Rig().join(client="old", version=3).value
        assert (joined.error_code, joined.member_id, joined.generation_id) == (0, "old-1", 1)

    def test_an_unknown_id_in_an_unknown_group_is_not_let_in(self) -> None:
        rig = Rig()
        assert rig.join("ghost").error == UNKNOWN
        assert rig.shard().groups == {}

    def test_an_unknown_id_in_a_known_group_is_not_let_in(self) -> None:
        rig = Rig()
        rig.stable("a")
        assert rig.join("ghost").error == UNKNOWN
        assert rig.state() == "Stable"

    @pytest.mark.parametrize(("session_ms", "code"), [(5_999, 26), (6_000, 79), (1_800_000, 79), (1_800_001, 26)])
    def test_session_timeouts_have_bounds(self, session_ms: int, code: int) -> None:
        assert Rig().join(session_ms=session_ms).error == code

    def test_an_empty_group_id_is_invalid(self) -> None:
        assert Rig().join(group="").error == errors.InvalidGroupId.code

    @pytest.mark.parametrize(("protocol_type", "protocols"), [("", {"range": b""}), ("consumer", {})])
    def test_a_first_member_needs_a_protocol(self, protocol_type: str, protocols: dict[str, bytes]) -> None:
        rig = Rig()
        assert rig.join(protocol_type=protocol_type, protocols=protocols).error == INCONSISTENT
        assert rig.shard().groups == {}, "a refused member leaves no group behind"

    def test_another_protocol_type_is_refused(self) -> None:
        rig = Rig()
        rig.stable("a")
        assert rig.join(protocol_type="connect").error == INCONSISTENT

    def test_a_member_that_shares_no_protocol_is_refused(self) -> None:
        rig = Rig()
        rig.stable("a")
        assert rig.join(protocols={"sticky": b""}).error == INCONSISTENT

    def test_the_protocol_most_members_like_best_is_chosen(self) -> None:
        rig = Rig(initial_rebalance_delay_ms=1000)
        likes = [("range", "sticky"), ("sticky", "range"), ("sticky", "range")]
        joins = [rig.join(protocols=dict.fromkeys(names, SUBSCRIPTION), version=3) for names in likes]
        rig.advance(5)
        assert {join.value.protocol_name for join in joins} == {"sticky"}

    def test_too_much_metadata_is_refused(self) -> None:
        rig = Rig(member_metadata_max_bytes=100)
        assert rig.join(protocols={"range": bytes(101)}).error == errors.MessageTooLarge.code

    def test_a_pending_member_that_never_comes_back_leaves_nothing(self) -> None:
        rig = Rig()
        rig.join()
        assert rig.group().pending_members == {"c-1"}
        rig.advance(11)
        assert rig.shard().groups == {}
        assert rig.scheduler.pending() == 0
        assert rig.log.appends == 0

    def test_pending_members_are_bounded(self) -> None:
        rig = Rig(pending_members_max=3)
        assert [rig.join().error for _ in range(4)] == [MEMBER_ID_REQUIRED] * 3 + [FULL]

    def test_a_group_is_not_larger_than_allowed(self) -> None:
        rig = Rig(max_size=2)
        rig.stable("a", "b")
        assert rig.join(version=3).error == FULL
        assert rig.state() == "Stable"


class TestSync:
    def test_followers_wait_for_the_leader(self) -> None:
        rig = Rig(initial_rebalance_delay_ms=1)
        joins = [rig.join_twice(client=name) for name in "ab"]
        rig.advance(1)
        a, b = (join.value.member_id for join in joins)
        follower = rig.sync(b, 1)
        assert not follower.done
        leader = rig.sync(a, 1, {a: b"one", b: b"two"})
        assert (leader.value.assignment, follower.value.assignment) == (b"one", b"two")
        assert (leader.value.protocol_type, leader.value.protocol_name) == ("consumer", "range")
        assert rig.state() == "Stable"
        assert rig.sync(b, 1).value.assignment == b"two", "a lost answer can be asked for again"

    def test_a_second_sync_of_the_same_member_answers_the_first(self) -> None:
        rig = Rig(initial_rebalance_delay_ms=1)
        joins = [rig.join_twice(client=name) for name in "ab"]
        rig.advance(1)
        a, b = (join.value.member_id for join in joins)
        lost = rig.sync(b, 1)
        again = rig.sync(b, 1)
        assert lost.error == REBALANCE
        rig.sync(a, 1, {b: b"two"})
        assert again.value.assignment == b"two"

    def test_wrong_senders_are_told_why(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a")
        assert rig.sync("ghost", 1).error == UNKNOWN
        assert rig.sync(a, 2).error == ILLEGAL
        assert rig.sync(a, 1, protocol_name="sticky").error == INCONSISTENT
        assert rig.sync(a, 1, protocol_type="connect").error == INCONSISTENT
        assert rig.sync(a, 1, protocol_type=None, protocol_name=None).error == 0
        assert rig.sync(a, 1, group="other").error == UNKNOWN

    def test_a_new_member_sends_waiting_followers_back(self) -> None:
        rig = Rig(initial_rebalance_delay_ms=1)
        joins = [rig.join_twice(client=name) for name in "ab"]
        rig.advance(1)
        follower = rig.sync(joins[1].value.member_id, 1)
        rig.join_twice(client="c")
        assert follower.error == REBALANCE
        assert rig.sync(joins[0].value.member_id, 1).error == REBALANCE

    def test_who_does_not_sync_in_time_is_out(self) -> None:
        rig = Rig(initial_rebalance_delay_ms=1)
        joins = [rig.join_twice(client=name, session_ms=100_000, rebalance_ms=10_000) for name in "ab"]
        rig.advance(1)
        a, b = (join.value.member_id for join in joins)
        rig.sync(a, 1, {a: b"all"})
        assert rig.state() == "Stable"
        rig.advance(11)
        assert triggers(rig)[-1] is Trigger.SYNC_TIMED_OUT
        assert rig.heartbeat(b, 1) == UNKNOWN

    def test_an_assignment_that_cannot_be_stored_starts_over(self) -> None:
        rig = Rig()
        joined = rig.join_twice().value
        rig.log.fail = failing()
        assert rig.sync(joined.member_id, 1, {joined.member_id: b"x"}).error == errors.NotCoordinator.code
        assert rig.state() == "PreparingRebalance"
        assert triggers(rig)[-1] is Trigger.STORE_FAILED
        rig.log.fail = None
        again = rig.join(joined.member_id).value
        assert again.generation_id == 2
        assert rig.sync(joined.member_id, 2, {joined.member_id: b"x"}).value.assignment == b"x"

    def test_an_assignment_larger_than_a_batch_is_our_clients_error(self) -> None:
        rig = Rig()
        joined = rig.join_twice().value
        rig.log.max_bytes = 1000
        assert rig.sync(joined.member_id, 1, {joined.member_id: bytes(2000)}).error == -1

    def test_members_learn_of_the_assignment_once_it_is_replicated(self) -> None:
        rig = Rig()
        joined = rig.join_twice().value
        rig.log.replicated = False
        waiting = rig.sync(joined.member_id, 1, {joined.member_id: b"x"})
        assert not waiting.done
        assert rig.state() == "CompletingRebalance"
        rig.groups.on_high_watermark(0, rig.log.commit(0))
        assert waiting.value.assignment == b"x"
        assert rig.state() == "Stable"

    def test_a_rebalance_during_replication_wins(self) -> None:
        rig = Rig()
        joined = rig.join_twice().value
        rig.log.replicated = False
        waiting = rig.sync(joined.member_id, 1, {joined.member_id: b"x"})
        rig.join(client="b", version=3)
        assert waiting.error == REBALANCE
        rig.groups.on_high_watermark(0, rig.log.commit(0))
        assert rig.state() == "PreparingRebalance"


class TestStaticMembers:
    def stable(self, **options: object) -> tuple[Rig, str, str]:
        rig = Rig(initial_rebalance_delay_ms=1)
        joins = [rig.join(instance=name, **options) for name in ("i-a", "i-b")]  # type: ignore[arg-type]
        rig.advance(1)
        a, b = (join.value.member_id for join in joins)
        rig.sync(b, 1, instance="i-b")
        rig.sync(a, 1, {a: b"one", b: b"two"}, instance="i-a")
        assert rig.state() == "Stable"
        return rig, a, b

    def test_no_second_round_for_the_id(self) -> None:
        joined = Rig().join(instance="i-a", client="c").value
        assert (joined.error_code, joined.member_id) == (0, "i-a-1")

    def test_a_follower_that_comes_back_keeps_its_assignment(self) -> None:
        rig, _, old = self.stable()
        back = rig.join(instance="i-b").value
        assert (back.error_code, back.generation_id) == (0, 1)
        assert back.member_id != old
        assert rig.state() == "Stable"
        assert rig.sync(back.member_id, 1, instance="i-b").value.assignment == b"two"
        assert rig.heartbeat(old, 1, instance="i-b") == FENCED
        assert rig.commit_code({("orders", 0): 1}, member_id=old, generation=1, instance="i-b") == FENCED
        assert rig.sync(old, 1, instance="i-b").error == FENCED
        assert rig.join(old, instance="i-b").error == FENCED
        assert {member.member_id for member in rig.shard().stored["g"].members} == set(rig.group().members)

    def test_a_leader_that_comes_back_skips_the_assignment(self) -> None:
        rig, _, _ = self.stable()
        back: JoinGroupResponse = rig.join(instance="i-a", version=9).value
        assert back.skip_assignment
        assert back.leader == back.member_id
        assert len(back.members) == 2
        assert rig.state() == "Stable"

    def test_an_old_leader_that_comes_back_takes_itself_for_a_follower(self) -> None:
        rig, old, _ = self.stable()
        back: JoinGroupResponse = rig.join(instance="i-a", version=8).value
        assert (back.leader, back.skip_assignment, back.members) == (old, False, ())
        assert rig.sync(back.member_id, 1, instance="i-a").value.assignment == b"one"

    def test_another_preference_that_changes_the_protocol_rebalances(self) -> None:
        rig = Rig(initial_rebalance_delay_ms=1)
        both = {"range": SUBSCRIPTION, "sticky": SUBSCRIPTION}
        a = rig.join(instance="i-a", protocols=both)
        rig.advance(1)
        rig.sync(a.value.member_id, 1, {a.value.member_id: b"x"}, instance="i-a")
        back = rig.join(instance="i-a", protocols=dict(reversed(both.items())))
        assert back.value.generation_id == 2
        assert back.value.protocol_name == "sticky"
        assert triggers(rig)[-1] is Trigger.STATIC_MEMBER_REPLACED

    def test_coming_back_before_the_assignment_is_stored_starts_over(self) -> None:
        rig = Rig(initial_rebalance_delay_ms=1)
        joins = [rig.join(instance=name) for name in ("i-a", "i-b")]
        rig.advance(1)
        waiting = rig.sync(joins[1].value.member_id, 1, instance="i-b")
        back = rig.join(instance="i-b")
        assert waiting.error == FENCED
        assert not back.done
        assert rig.state() == "PreparingRebalance"
        rig.join(joins[0].value.member_id, instance="i-a")
        assert back.value.generation_id == 2

    def test_a_parked_join_of_the_older_instance_is_fenced(self) -> None:
        rig, _, b = self.stable()
        rig.join(client="c", version=3)
        parked = rig.join(b, instance="i-b")
        back = rig.join(instance="i-b")
        assert parked.error == FENCED
        assert not back.done

    def test_a_restart_within_the_session_is_unnoticed_and_a_longer_one_is_not(self) -> None:
        rig, a, _ = self.stable()
        for _ in range(5):
            rig.advance(3)
            rig.heartbeat(a, 1, instance="i-a")
        assert triggers(rig)[-1] is Trigger.MEMBER_EXPIRED
        assert rig.group().static_members == {"i-a": a}

    def test_static_members_stay_when_they_do_not_rejoin(self) -> None:
        rig, a, b = self.stable(session_ms=200_000, rebalance_ms=10_000)
        new = rig.join(client="c", version=3, rebalance_ms=10_000)
        rig.join(a, instance="i-a", rebalance_ms=10_000)
        rig.advance(10.5)
        assert new.done
        assert b in rig.group().members

    def test_a_failed_replacement_leaves_the_old_member(self) -> None:
        rig, _, b = self.stable()
        rig.log.fail = failing()
        assert rig.join(instance="i-b").error == errors.NotCoordinator.code
        rig.log.fail = None
        assert rig.heartbeat(b, 1, instance="i-b") == 0
        assert rig.group().static_members["i-b"] == b

    def test_an_administrator_removes_by_instance_id(self) -> None:
        rig, a, _ = self.stable()
        answer = rig.leave(instances=("i-b", "i-x"))
        assert [member.error_code for member in answer.members] == [0, UNKNOWN]
        assert list(rig.group().members) == [a]
        assert triggers(rig)[-1] is Trigger.MEMBER_LEFT


class TestLeave:
    def test_each_member_gets_its_own_answer(self) -> None:
        rig = Rig()
        a, b = rig.stable("a", "b")
        answer = rig.leave(a, "ghost", b)
        assert answer.error_code == 0
        assert [member.error_code for member in answer.members] == [0, UNKNOWN, 0]
        assert rig.state() == "Empty"

    def test_an_unknown_group(self) -> None:
        assert [member.error_code for member in Rig().leave("a").members] == [UNKNOWN]

    def test_a_pending_member_may_leave(self) -> None:
        rig = Rig()
        pending = rig.join().value.member_id
        assert rig.leave(pending).members[0].error_code == 0
        assert rig.shard().groups == {}

    def test_a_pending_member_that_leaves_does_not_hold_up_the_others(self) -> None:
        rig = Rig()
        a, _ = rig.stable("a", "b")
        pending = rig.join(client="c").value.member_id
        rig.leave("b-3")
        rejoined = rig.join(a)
        assert not rejoined.done, "the pending member is waited for"
        rig.leave(pending)
        assert rejoined.done

    def test_a_parked_join_of_a_leaving_member_is_answered(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a")
        parked = rig.join_twice(client="b")
        rig.leave(next(name for name in rig.group().members if name != a))
        assert parked.error == UNKNOWN
