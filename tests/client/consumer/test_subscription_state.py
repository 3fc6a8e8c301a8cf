"""Subscription and positions: what excludes what, how a position comes about, moves, is doubted and is lost."""

import re

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.client.consumer.subscription_state import (
    LogTruncation,
    NoOffsetForPartition,
    SubscriptionKind,
    SubscriptionState,
)
from barnabas.client.fetch.positions import STALE_S, FetchPosition, FetchState, PartitionState, ResetStrategy
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.errors import UnknownLeaderEpoch, UsageError
from barnabas.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
LATEST_RESET, NO_RESET = ResetStrategy("latest"), ResetStrategy("none")


def manual(*partitions: TopicPartition, reset: ResetStrategy = LATEST_RESET) -> SubscriptionState:
    state = SubscriptionState(reset)
    state.assign(partitions or (T0,))
    return state


def fetching(offset: int = 10, epoch: int = 3, *, reset: ResetStrategy = LATEST_RESET) -> SubscriptionState:
    """At an offset of epoch 3, checked with leader 1 in epoch 3."""
    state = manual(reset=reset)
    state.seek(T0, offset)
    of(state, T0).follow_leader(1, 3, can_validate=True)
    of(state, T0).advance(offset, epoch)
    return state


def of(subscription: SubscriptionState, topic_partition: TopicPartition) -> PartitionState:
    state = subscription.get(topic_partition)
    assert state is not None
    return state


def fetchable(subscription: SubscriptionState) -> list[TopicPartition]:
    return [each for each in subscription.assigned() if of(subscription, each).is_fetchable]


def state_of(subscription: SubscriptionState, partition: TopicPartition = T0) -> FetchState:
    return of(subscription, partition).state


# --- subscriptions ----------------------------------------------------------------------------------------------------


def test_topics() -> None:
    state = SubscriptionState(LATEST_RESET)
    assert state.kind is SubscriptionKind.NONE
    assert state.subscribe(["t", "u"])
    assert not state.subscribe(["u", "t"])
    assert state.topics == {"t", "u"}
    assert state.subscribes
    assert state.is_subscribed(T0)
    assert not state.is_subscribed(TopicPartition("v", 0))
    state.unsubscribe()
    assert (state.kind, state.topics, state.assigned()) == (SubscriptionKind.NONE, frozenset(), [])


def test_pattern() -> None:
    state = SubscriptionState(LATEST_RESET)
    state.subscribe_pattern(re.compile("t.|__.*"))
    topics = [("t1", False), ("t2", False), ("t10", False), ("__consumer_offsets", True), ("x", False)]
    assert state.match_pattern(topics)
    assert state.topics == {"t1", "t2"}
    assert not state.match_pattern(topics)
    assert state.has_pattern
    assert state.is_subscribed(TopicPartition("t9", 0))
    everything = SubscriptionState(LATEST_RESET, exclude_internal_topics=False)
    everything.subscribe_pattern(re.compile(".*"))
    everything.match_pattern(topics)
    assert "__consumer_offsets" in everything.topics


def test_ways_exclude_each_other() -> None:
    state = manual()
    with pytest.raises(UsageError, match="reads partitions assigned by hand; unsubscribe before you give it a list"):
        state.subscribe(["t"])
    state.unsubscribe()
    state.subscribe_pattern(re.compile("t"))
    with pytest.raises(UsageError, match="reads a pattern of topics"):
        state.assign([T0])


@pytest.mark.parametrize("topics", ["t", [""], [None], [3], [], [["t"]]])
def test_what_is_no_list_of_topics(topics: object) -> None:
    with pytest.raises(UsageError):
        SubscriptionState(LATEST_RESET).subscribe(topics)  # type: ignore[arg-type]


def test_positions_of_partitions_that_stay_are_kept() -> None:
    state = SubscriptionState(LATEST_RESET)
    state.subscribe(["t", "u"])
    assert state.assign_subscribed([T0, T1]).added == (T0, T1)
    state.seek(T0, 5)
    change = state.assign_subscribed([T0, U0])
    assert (change.added, change.removed) == ((U0,), (T1,))
    assert state.position(T0) == FetchPosition(5)
    assert state.assign_subscribed([]).removed == (T0, U0)


def test_assigned_by_hand() -> None:
    state = manual(T0, T1)
    assert not state.assign([T1, T0])
    assert state.assign([T0, U0])
    assert state.topics == {"t", "u"}
    assert not state.subscribes


def test_assigning_nothing_leaves_the_choice_open() -> None:
    state = manual(T0)
    assert state.assign([])
    assert not state.assigned()
    assert state.subscribe(["t"])


def test_a_partition_that_is_not_ours_is_named() -> None:
    state = manual(T0)
    for ask in (lambda: state.position(T1), lambda: state.pause([T1]), lambda: state.seek(T1, 3)):
        with pytest.raises(UsageError, match="t-1 is not assigned to this consumer"):
            ask()


# --- what keeps a partition from being fetched ------------------------------------------------------------------------


def test_pausing() -> None:
    state = manual(T0, T1)
    state.seek(T0, 0)
    state.seek(T1, 0)
    state.pause([T0])
    assert fetchable(state) == [T1]
    assert state.paused() == [T0]
    assert state.position(T0) is not None
    state.resume([T0])
    assert fetchable(state) == [T0, T1]


def test_pausing_is_all_or_nothing() -> None:
    state = manual(T0)
    with pytest.raises(UsageError):
        state.pause([T0, T1])
    assert state.paused() == []


def test_pending_revocation_and_pending_callback() -> None:
    state = SubscriptionState(LATEST_RESET)
    state.subscribe(["t"])
    added = state.assign_subscribed([T0, T1]).added
    state.mark_pending_callback(added, True)
    assert state.initializing() == []
    state.seek(T0, 1)
    assert fetchable(state) == []
    state.mark_pending_callback(added, False)
    assert state.initializing() == [T1]
    assert fetchable(state) == [T0]
    state.mark_pending_revocation([T0])
    assert not state.is_fetchable(T0)
    assert T0 in state.consumed(), "what was read may still be committed"


def test_turns() -> None:
    state = manual(T0, T1, U0)
    for partition in (T0, T1, U0):
        state.seek(partition, 0)
    state.take_turn(T0)
    assert fetchable(state) == [T1, U0, T0]
    state.take_turn(TopicPartition("gone", 0))
    assert state.assigned() == [T1, U0, T0]


# --- positions --------------------------------------------------------------------------------------------------------


def test_from_what_is_committed() -> None:
    state = manual(T0, T1, U0)
    assert state.initializing() == [T0, T1, U0]
    state.start_at(T0, OffsetAndMetadata(7), 1, 4)
    assert state.position(T0) == FetchPosition(7, -1, 1, 4)
    state.start_at(T1, OffsetAndMetadata(7, "", 2), 1, 4)
    assert state_of(state, T1) is FetchState.AWAIT_VALIDATION
    state.reset_without_commit([U0])
    assert state.partitions_needing_reset(0) == {U0: LATEST_RESET}


def test_an_answer_that_comes_too_late_changes_nothing() -> None:
    state = manual(T0, T1)
    state.seek(T0, 99)
    state.start_at(T0, OffsetAndMetadata(7), 1, 4)
    assert state.position(T0) == FetchPosition(99)
    state.reset_without_commit([T0])
    assert state.position(T0) == FetchPosition(99)
    state.start_at(U0, OffsetAndMetadata(1), 1, 1)
    state.request_reset(T1)
    assert not state.reset_to(T1, ResetStrategy("earliest"), FetchPosition(0)), "another reset than was asked for"
    assert state.reset_to(T1, LATEST_RESET, FetchPosition(50, -1, 1, 2))
    assert not state.reset_to(T1, LATEST_RESET, FetchPosition(60))
    assert state.position(T1) == FetchPosition(50, -1, 1, 2)


def test_nothing_committed_and_no_reset() -> None:
    state = manual(T0, T1, reset=NO_RESET)
    with pytest.raises(NoOffsetForPartition, match="t-0, t-1: no offset is committed, and"):
        state.reset_without_commit([T1, T0])
    with pytest.raises(NoOffsetForPartition):
        state.request_reset(T0)
    state.request_reset(T0, ResetStrategy("earliest"))
    assert state.partitions_needing_reset(0) == {T0: ResetStrategy("earliest")}


def test_what_failed_is_asked_again_later() -> None:
    state = manual(T0)
    state.request_reset(T0)
    state.request_failed([T0, T1], 5.0)
    assert state.partitions_needing_reset(4.9) == {}
    assert state.partitions_needing_reset(5.0) == {T0: LATEST_RESET}
    state.request_reset(T0, ResetStrategy("earliest"))
    assert state.partitions_needing_reset(0) == {T0: ResetStrategy("earliest")}, "a new reset need not wait"


def test_consumed_positions_are_what_is_committed() -> None:
    state = manual(T0, T1)
    state.seek(T0, 4)
    of(state, T0).advance(9, 2)
    state.request_reset(T1)
    assert state.consumed() == {T0: OffsetAndMetadata(9, "", 2)}


def test_negative_offsets_are_refused() -> None:
    with pytest.raises(UsageError, match="t-0: offset -1 is negative"):
        manual().seek(T0, -1)


# --- leaders and validation -------------------------------------------------------------------------------------------


def test_another_leader_is_asked_whether_its_log_agrees() -> None:
    state = fetching()
    of(state, T0).follow_leader(1, 3, can_validate=True)
    assert state.is_fetchable(T0), "the same leader"
    of(state, T0).follow_leader(-1, 3, can_validate=True)
    assert state.is_fetchable(T0), "no leader is no news"
    of(state, T0).follow_leader(2, 4, can_validate=True)
    asked = FetchPosition(10, 3, 2, 4)
    assert state.partitions_needing_validation(0) == {T0: asked}
    assert state.position(T0) is None
    assert state.consumed() == {}
    assert state.validated(T0, asked, 3, 25, 0) is None
    assert state.position(T0) == asked


def test_without_epochs_there_is_nothing_to_ask() -> None:
    state = fetching(epoch=-1)
    of(state, T0).follow_leader(2, 4, can_validate=True)
    assert state.position(T0) == FetchPosition(10, -1, 2, 4)
    state = fetching()
    of(state, T0).follow_leader(2, 4, can_validate=False)
    assert state.position(T0) == FetchPosition(10, 3, 2, 4)


def test_a_seek_with_an_epoch_is_validated_once_a_leader_is_known() -> None:
    state = manual()
    state.seek(T0, 8, 2)
    assert state.is_fetchable(T0)
    of(state, T0).follow_leader(1, 5, can_validate=True)
    assert state.partitions_needing_validation(0) == {T0: FetchPosition(8, 2, 1, 5)}
    state.seek(T0, 9, 2)
    assert state.partitions_needing_validation(0) == {T0: FetchPosition(9, 2, 1, 5)}


@pytest.mark.parametrize(
    ("end_epoch", "end_offset", "expected"),
    [
        (3, 10, FetchPosition(10, 3, 2, 4)),
        (3, 11, FetchPosition(10, 3, 2, 4)),
        (3, 6, FetchPosition(6, 3, 2, 4)),
        (2, 6, FetchPosition(6, 2, 2, 4)),
        (2, 15, FetchPosition(10, 2, 2, 4)),
    ],
)
def test_a_log_that_was_cut(end_epoch: int, end_offset: int, expected: FetchPosition) -> None:
    asked = FetchPosition(10, 3, 2, 4)
    state = fetching()
    of(state, T0).follow_leader(2, 4, can_validate=True)
    assert state.validated(T0, asked, end_epoch, end_offset, 0) is None
    assert state.position(T0) == expected
    strict = fetching(reset=NO_RESET)
    of(strict, T0).follow_leader(2, 4, can_validate=True)
    truncation = strict.validated(T0, asked, end_epoch, end_offset, 0)
    if expected == asked:
        assert truncation is None
    else:
        assert isinstance(truncation, LogTruncation)
        assert truncation.diverging == OffsetAndMetadata(expected.offset, "", expected.offset_epoch)
        assert f"up to offset {expected.offset} the log is as it was" in str(truncation)
        assert strict.partitions_needing_validation(0) == {T0: asked}, "until the application seeks"


@pytest.mark.parametrize(("end_epoch", "end_offset"), [(-1, 10), (3, -1)])
def test_a_leader_that_does_not_know_the_epoch(end_epoch: int, end_offset: int) -> None:
    state = fetching()
    of(state, T0).follow_leader(2, 4, can_validate=True)
    assert state.validated(T0, FetchPosition(10, 3, 2, 4), end_epoch, end_offset, 0) is None
    assert state.partitions_needing_reset(0) == {T0: LATEST_RESET}
    strict = fetching(reset=NO_RESET)
    of(strict, T0).follow_leader(2, 4, can_validate=True)
    truncation = strict.validated(T0, FetchPosition(10, 3, 2, 4), end_epoch, end_offset, 0)
    assert truncation is not None
    assert truncation.diverging is None


@pytest.mark.parametrize("answer", [(3, 6), (-1, -1)])
def test_a_leader_that_was_replaced_without_knowing_it_is_asked_again_for_a_while(answer: tuple[int, int]) -> None:
    asked = FetchPosition(10, 5, 1, 3)
    followed, alone = fetching(), fetching()
    for state in (followed, alone):
        state.seek(T0, 10, 5)  # committed by a reader of the next leader
        for now in (100.0, 100.5, 100.0 + 0.99 * STALE_S):
            assert isinstance(state.validated(T0, asked, *answer, now), UnknownLeaderEpoch)
            assert list(state.partitions_needing_validation(0)) == [T0]
    of(followed, T0).follow_leader(2, 5, can_validate=True)
    assert followed.validated(T0, FetchPosition(10, 5, 2, 5), 5, 25, 0) is None
    assert followed.position(T0) == FetchPosition(10, 5, 2, 5)
    assert alone.validated(T0, asked, *answer, 100.0 + STALE_S) is None, "nobody knows of another leader"
    assert alone.partitions_needing_validation(0) == {}


def test_a_topic_that_was_made_anew_is_believed_at_once() -> None:
    state = fetching()
    of(state, T0).follow_leader(2, 1, can_validate=True)
    assert state.validated(T0, FetchPosition(10, 3, 2, 1), 1, 6, 0) is None
    assert state.position(T0) == FetchPosition(6, 1, 2, 1)


def test_an_answer_about_another_position_is_void() -> None:
    state = fetching()
    of(state, T0).follow_leader(2, 4, can_validate=True)
    of(state, T0).follow_leader(3, 5, can_validate=True)
    assert state.validated(T0, FetchPosition(10, 3, 2, 4), 3, 6, 0) is None
    assert state.partitions_needing_validation(0) == {T0: FetchPosition(10, 3, 3, 5)}
    state.request_reset(T0)
    of(state, T0).follow_leader(4, 6, can_validate=True)
    assert state_of(state) is FetchState.AWAIT_RESET


# --- replicas and lag -------------------------------------------------------------------------------------------------


def test_preferred_replica() -> None:
    state = fetching()
    assert of(state, T0).preferred_replica_at(0) == -1
    of(state, T0).prefer_replica(5, until=10.0)
    of(state, T0).prefer_replica(5, until=99.0)
    assert of(state, T0).preferred_replica_at(10.0) == 5
    assert of(state, T0).preferred_replica_at(10.1) == -1, "being told the same again does not put it off"
    of(state, T0).prefer_replica(6, until=50.0)
    assert of(state, T0).clear_preferred_replica()
    assert not of(state, T0).clear_preferred_replica()
    of(state, T0).prefer_replica(6, until=50.0)
    of(state, T0).follow_leader(2, 4, can_validate=True)
    assert of(state, T0).preferred_replica_at(0) == -1, "another leader"


def test_lag() -> None:
    state = fetching(offset=10)
    assert state.lag(read_committed=False) == {T0: None}
    of(state, T0).note_offsets(25, 20, 3)
    of(state, T0).note_offsets(-1, -1, -1)
    assert state.lag(read_committed=False) == {T0: 15}
    assert state.lag(read_committed=True) == {T0: 10}
    of(state, T0).advance(30, 3)
    assert state.lag(read_committed=True) == {T0: 0}


# --- any order of events ----------------------------------------------------------------------------------------------


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order: a partition that may be fetched has a position, others have none to read."""

    def __init__(self) -> None:
        super().__init__()
        self.state = SubscriptionState(LATEST_RESET)
        self.state.subscribe(["t", "u"])
        self.asked: list[tuple[TopicPartition, FetchPosition]] = []

    @rule(partitions=st.sets(st.sampled_from([T0, T1, U0])))
    def assign(self, partitions: set[TopicPartition]) -> None:
        before = {partition: self.state.get(partition) for partition in self.state.assigned()}
        change = self.state.assign_subscribed(partitions)
        assert set(self.state.assigned()) == partitions
        assert set(change.added) == partitions - before.keys()
        assert set(change.removed) == before.keys() - partitions
        assert all(self.state.get(partition) is before[partition] for partition in partitions & before.keys())

    @rule(data=st.data(), offset=st.integers(0, 50), epoch=st.integers(-1, 3))
    def seek(self, data: st.DataObject, offset: int, epoch: int) -> None:
        if self.state.assigned():
            self.state.seek(data.draw(st.sampled_from(self.state.assigned())), offset, epoch)

    @rule(data=st.data(), leader=st.integers(-1, 2), epoch=st.integers(-1, 5), can_validate=st.booleans())
    def lead(self, data: st.DataObject, leader: int, epoch: int, can_validate: bool) -> None:
        if self.state.assigned():
            state = of(self.state, data.draw(st.sampled_from(self.state.assigned())))
            state.follow_leader(leader, epoch, can_validate=can_validate)
        self.asked += self.state.partitions_needing_validation(0).items()

    @rule(data=st.data(), end_epoch=st.integers(-1, 5), end_offset=st.integers(-1, 50))
    def answer(self, data: st.DataObject, end_epoch: int, end_offset: int) -> None:
        if self.asked:
            partition, asked = data.draw(st.sampled_from(self.asked))
            before = self.state.get(partition)
            doubted = before is not None and before.state is FetchState.AWAIT_VALIDATION and before.position == asked
            position = before.position if before is not None else None
            assert self.state.validated(partition, asked, end_epoch, end_offset, 0) is None
            if not doubted and before is not None:
                assert before.position == position

    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        if self.state.assigned():
            self.state.request_reset(data.draw(st.sampled_from(self.state.assigned())))

    @rule(offset=st.integers(0, 50), epoch=st.integers(-1, 3))
    def found(self, offset: int, epoch: int) -> None:
        for partition, strategy in self.state.partitions_needing_reset(0).items():
            assert self.state.reset_to(partition, strategy, FetchPosition(offset, epoch, 1, epoch))

    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        if self.state.assigned():
            self.state.pause([data.draw(st.sampled_from(self.state.assigned()))])

    @invariant()
    def positions_are_where_they_should_be(self) -> None:
        for partition in self.state.assigned():
            state = self.state.get(partition)
            assert state is not None
            has_position = state.state in (FetchState.FETCHING, FetchState.AWAIT_VALIDATION)
            assert (state.position is not None) == has_position
            assert (state.reset is not None) == (state.state is FetchState.AWAIT_RESET)
            assert (self.state.position(partition) is not None) == (state.state is FetchState.FETCHING)
            if self.state.is_fetchable(partition):
                assert partition in self.state.consumed()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
