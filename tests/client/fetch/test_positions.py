"""The position in one partition: leaders, validation, replicas, lag."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.fetch.positions import NO_NODE, FetchPosition, FetchState, PartitionState, ResetStrategy
from barnabas.client.offset_messages import EARLIEST, LATEST, OffsetAndMetadata
from barnabas.types import BrokerId, LeaderEpoch


def test_strategies() -> None:
    assert ResetStrategy.parse("earliest").timestamp(5) == EARLIEST
    assert ResetStrategy.parse("latest").timestamp(5) == LATEST
    by_duration = ResetStrategy.parse("by_duration:PT1M")
    assert by_duration == ResetStrategy("by_duration", 60_000)
    assert by_duration.timestamp(100_000) == 40_000
    assert by_duration.timestamp(10) == 0


def state_at(position: FetchPosition) -> PartitionState:
    state = PartitionState()
    state.seek(position)
    return state


def test_a_new_leader_validates_a_position_with_an_epoch() -> None:
    state = state_at(FetchPosition(5, 2, BrokerId(1), LeaderEpoch(2)))
    state.follow_leader(BrokerId(1), LeaderEpoch(2), can_validate=True)
    assert state.is_valid, "the same leader in the same epoch"
    state.prefer_replica(BrokerId(9), until=100)
    state.follow_leader(BrokerId(1), LeaderEpoch(3), can_validate=True)
    assert state.state is FetchState.AWAIT_VALIDATION
    assert not state.is_fetchable
    assert state.preferred_replica_at(0) == NO_NODE
    for position, can_validate in ((FetchPosition(5, 2), False), (FetchPosition(5), True)):
        state = state_at(position)
        state.follow_leader(BrokerId(3), LeaderEpoch(4), can_validate=can_validate)
        assert state.is_valid, "there is nothing to validate with"
        assert state.position is not None
        assert (state.position.leader, state.position.leader_epoch) == (3, 4)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(-1, 9), st.integers(-1, 9))
def test_a_log_that_does_not_reach_the_position_diverges(offset: int, epoch: int, end_epoch: int, end: int) -> None:
    diverging = state_at(FetchPosition(offset, epoch)).diverging(end_epoch, end)
    if end < 0 or end_epoch < 0:
        assert diverging == OffsetAndMetadata(-1, "", -1)
    elif end >= offset and end_epoch >= epoch:
        assert diverging is None
    else:
        assert diverging == OffsetAndMetadata(min(end, offset), "", end_epoch)


def test_the_note_of_a_commit_goes_along_until_the_position_moves() -> None:
    state = state_at(FetchPosition(5, 2))
    state.resumed_from = OffsetAndMetadata(5, "note", 2)
    assert state.stands_at() == OffsetAndMetadata(5, "note", 2)
    state.advance(6, 3)
    assert state.stands_at() == OffsetAndMetadata(6, "", 3)
    state.await_reset(ResetStrategy("earliest"))
    assert state.stands_at() is None


def test_a_preferred_replica_expires() -> None:
    state = state_at(FetchPosition(5))
    state.prefer_replica(BrokerId(2), until=10)
    state.prefer_replica(BrokerId(2), until=99)
    assert state.preferred_replica_at(10) == 2
    assert state.preferred_replica_at(10.1) == NO_NODE, "the same one again does not make it longer"
    assert not state.clear_preferred_replica()


def test_the_lag_is_known_with_the_first_response() -> None:
    state = state_at(FetchPosition(5))
    assert state.lag(read_committed=False) is None
    state.note_offsets(9, 7, 0)
    state.note_offsets(-1, -1, -1)
    assert (state.lag(read_committed=False), state.lag(read_committed=True)) == (4, 2)
    state.advance(8, 0)
    assert state.lag(read_committed=True) == 0
