"""Rebalances: each event that makes a group rebalance, and each that must not; how long members are waited for."""

from barnabas.coordinator.group.rebalance_history import Trigger
from coordinator.group_rig import ILLEGAL, REBALANCE, SUBSCRIPTION, UNKNOWN, Rig, triggers


class TestInitialDelay:
    def test_members_that_come_within_the_delay_share_the_first_generation(self) -> None:
        rig = Rig(initial_rebalance_delay_ms=3000)
        joins = [rig.join_twice(client=name) for name in "abc"]
        rig.advance(2.9)
        assert not any(join.done for join in joins)
        rig.advance(0.2)
        rig.advance(3)
        assert [join.value.generation_id for join in joins] == [1, 1, 1]
        assert len(joins[0].value.members) == 3
        assert joins[1].value.members == ()

    def test_who_comes_late_prolongs_it_up_to_the_rebalance_timeout(self) -> None:
        rig = Rig(initial_rebalance_delay_ms=3000)
        joins = [rig.join_twice(client="first", rebalance_ms=8000)]
        for _ in range(10):
            rig.advance(1)
            if joins[0].done:
                break
            joins.append(rig.join_twice(client="more", rebalance_ms=8000))
        assert joins[0].done
        assert 8 <= len(joins) <= 9, "3 + 3 + 2 seconds"

    def test_without_a_delay_members_on_their_way_are_waited_for(self) -> None:
        rig = Rig(initial_rebalance_delay_ms=0)
        ids = [rig.join(client=name).value.member_id for name in "ab"]
        first = rig.join(ids[0])
        assert not first.done
        second = rig.join(ids[1])
        assert first.value.generation_id == second.value.generation_id == 1
        assert len(first.value.members) == 2

    def test_without_a_delay_members_that_start_together_share_the_first_generation(self) -> None:
        rig = Rig(settle_ms=20)
        joins = [rig.join_twice(client="a")]
        rig.advance(0.01)
        joins.append(rig.join_twice(client="b"))
        assert not any(join.done for join in joins)
        rig.advance(0.011)
        assert [join.value.generation_id for join in joins] == [1, 1]
        rig.leave(*(join.value.member_id for join in joins))
        assert rig.state() == "Empty"
        alone = rig.join_twice(client="c")
        rig.leave(next(iter(rig.group().members)))
        assert alone.error == UNKNOWN
        assert rig.state() == "Empty"
        rig.advance(1)

    def test_but_not_for_long(self) -> None:
        rig = Rig(initial_rebalance_delay_ms=0)
        ids = [rig.join(client=name).value.member_id for name in "ab"]
        first = rig.join(ids[0])
        rig.advance(0.1)
        assert (first.value.generation_id, len(first.value.members)) == (1, 1)
        assert not rig.join(ids[1]).done

    def test_nobody_else_means_one_delay(self) -> None:
        rig = Rig(initial_rebalance_delay_ms=3000)
        join = rig.join_twice()
        rig.advance(3.01)
        assert join.done


class TestRebalance:
    def test_a_new_member_makes_the_others_rejoin(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a")
        joining = rig.join_twice(client="b")
        assert not joining.done
        assert rig.state() == "PreparingRebalance"
        assert rig.heartbeat(a, 1) == REBALANCE
        rejoined = rig.join(a)
        assert rejoined.value.generation_id == joining.value.generation_id == 2
        assert rejoined.value.leader == a, "the leader stays the leader"
        assert rig.heartbeat(a, 2) == 0
        assert rig.heartbeat(a, 1) == ILLEGAL
        assert triggers(rig) == [Trigger.MEMBER_JOINED, Trigger.MEMBER_JOINED]

    def test_who_does_not_rejoin_in_time_is_out(self) -> None:
        rig = Rig()
        a, b = rig.stable("a", "b", session_ms=100_000)
        third = rig.join_twice(client="c")
        rig.join(a)
        rig.advance(61)
        assert third.done
        assert rig.heartbeat(b, rig.generation) == UNKNOWN
        last = rig.groups.history("g")[-1]
        assert any(b in note for note in last.notes), last.as_dict()
        assert last.members == (a, third.value.member_id)

    def test_when_the_leader_does_not_rejoin_another_leads(self) -> None:
        rig = Rig()
        a, b = rig.stable("a", "b", session_ms=100_000)
        new = rig.join_twice(client="c")
        rejoined = rig.join(b)
        rig.advance(61)
        assert rejoined.value.leader == b
        assert {member.member_id for member in rejoined.value.members} == {b, new.value.member_id}
        assert rig.heartbeat(a, rig.generation) == UNKNOWN

    def test_a_member_that_leaves_makes_the_others_rejoin(self) -> None:
        rig = Rig()
        a, b = rig.stable("a", "b")
        rig.leave(a, reason="the consumer is being closed")
        assert rig.heartbeat(b, rig.generation) == REBALANCE
        again = rig.join(b).value
        assert (again.leader, len(again.members)) == (b, 1)
        last = rig.groups.history("g")[-1]
        assert last.trigger is Trigger.MEMBER_LEFT
        assert "the consumer is being closed" in last.reason

    def test_a_member_without_heartbeats_expires(self) -> None:
        rig = Rig()
        a, b = rig.stable("a", "b")
        for _ in range(4):
            rig.advance(3)
            assert rig.heartbeat(a, rig.generation) in (0, REBALANCE)
        assert rig.state() == "PreparingRebalance"
        assert triggers(rig)[-1] is Trigger.MEMBER_EXPIRED
        assert rig.join(a).value.generation_id == 3
        assert rig.heartbeat(b, 3) == UNKNOWN

    def test_commits_are_signs_of_life(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a")
        for offset in range(5):
            rig.advance(6)
            assert rig.commit_code({("orders", 0): offset}, member_id=a, generation=1) == 0
        assert rig.state() == "Stable"

    def test_changed_metadata_makes_a_rebalance_and_the_same_does_not(self) -> None:
        rig = Rig()
        _, b = rig.stable("a", "b")
        same = rig.join(b).value
        assert (same.error_code, same.generation_id, same.members) == (0, rig.generation, ())
        assert rig.state() == "Stable"
        rig.join(b, protocols={"range": SUBSCRIPTION + b"\0"})
        assert rig.state() == "PreparingRebalance"
        assert triggers(rig)[-1] is Trigger.METADATA_CHANGED

    def test_the_leader_can_ask_for_a_rebalance(self) -> None:
        rig = Rig()
        a, _ = rig.stable("a", "b")
        rig.join(a, reason="cached metadata has changed")
        assert rig.state() == "PreparingRebalance"
        last = rig.groups.history("g")[-1]
        assert last.trigger is Trigger.LEADER_REJOINED
        assert "cached metadata has changed" in last.reason

    def test_a_repeated_join_while_the_assignment_is_awaited_is_answered_again(self) -> None:
        rig = Rig()
        first = rig.join_twice().value
        again = rig.join(first.member_id).value
        assert (again.generation_id, again.leader) == (1, first.member_id)
        assert len(again.members) == 1

    def test_changed_metadata_while_the_assignment_is_awaited_starts_over(self) -> None:
        rig = Rig()
        first = rig.join_twice().value
        again = rig.join(first.member_id, protocols={"range": b"\0\0\0\0\0\0"}).value
        assert again.generation_id == 2

    def test_a_second_join_of_the_same_member_answers_the_first(self) -> None:
        rig = Rig()
        a, _ = rig.stable("a", "b")
        lost = rig.join(a)
        rig.join(a)
        assert lost.error == UNKNOWN
        assert rig.group().awaiting_join_count == 1

    def test_the_last_member_leaves_an_empty_group(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a")
        rig.leave(a)
        assert (rig.state(), rig.generation) == ("Empty", 2)
        stored = rig.shard().stored["g"]
        assert (stored.generation, list(stored.members), stored.protocol_type) == (2, [], "consumer")

    def test_generations_never_go_back(self) -> None:
        rig = Rig()
        (a,) = rig.stable("a")
        rig.leave(a)
        assert rig.join_twice().value.generation_id == 3

    def test_a_parked_new_member_is_not_kept_for_ever(self) -> None:
        rig = Rig(new_member_join_timeout_ms=20_000)
        (a,) = rig.stable("a", session_ms=1_000_000, rebalance_ms=1_000_000)
        new = rig.join_twice(client="b")
        rig.advance(21)
        assert new.error == UNKNOWN
        assert list(rig.group().members) == [a]

    def test_when_nobody_rejoins_sessions_end_the_group(self) -> None:
        rig = Rig()
        a, b = rig.stable("a", "b", session_ms=30_000, rebalance_ms=10_000)
        rig.leave(a)
        rig.advance(60)
        assert rig.state() == "Empty"
        assert rig.heartbeat(b, rig.generation) == UNKNOWN
