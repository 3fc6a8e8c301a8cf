"""A follower's log: batches as they are, and truncation by the leader's epochs."""

import uuid

import pytest

from barnabas.config.log_config import DEFAULT_LOG_CONFIG
from barnabas.log.log_manager import LogManager
from barnabas.log.unified_log import UnexpectedAppendOffset, UnifiedLog
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.replication import follower
from barnabas.types import LeaderEpoch, Offset, TopicPartition
from replication.simulated_cluster import batches_of

TOPIC_ID = uuid.UUID(int=7)


def batch(base_offset: int, epoch: int, *, count: int = 1) -> bytes:
    records = [Record(delta, 1_700_000_000_000, None, b"%d" % (base_offset + delta), ()) for delta in range(count)]
    data = bytearray(build_batch(records))
    data[0:8] = base_offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


@pytest.fixture
def log(logs: LogManager) -> UnifiedLog:
    return logs.create(TopicPartition("t", 0), TOPIC_ID, DEFAULT_LOG_CONFIG)


def with_epochs(log: UnifiedLog, *epochs: int) -> UnifiedLog:
    """Appends one record of each epoch."""
    for epoch in epochs:
        log.append_as_follower(batch(log.log_end_offset, epoch))
    return log


def test_batches_stay_as_the_leader_sent_them(log: UnifiedLog) -> None:
    data = [batch(0, 1, count=3), batch(3, 1), batch(7, 2)]  # offsets 4 to 6 were compacted
    info = follower.append_batches(log, b"".join(data), LeaderEpoch(2))
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (0, 7, 8)
    assert [stored for _, stored in batches_of(log)] == data
    assert log.leader_epochs.entries == [(1, 0), (2, 7)]


def test_batches_of_a_later_leader_are_left_out(log: UnifiedLog) -> None:
    follower.append_batches(log, batch(0, 1) + batch(1, 3) + batch(2, 1), LeaderEpoch(2))
    assert log.log_end_offset == 1
    follower.append_batches(log, batch(1, 3), LeaderEpoch(2))
    assert log.log_end_offset == 1


def test_an_empty_log_begins_with_the_batch_in_which_the_leaders_log_starts(log: UnifiedLog) -> None:
    log.truncate_fully_and_start_at(Offset(5))
    follower.append_batches(log, batch(3, 1, count=4), LeaderEpoch(1))
    assert (log.log_start_offset, log.log_end_offset) == (3, 7)


def test_batches_that_are_there_already_are_refused(log: UnifiedLog) -> None:
    with_epochs(log, 1, 1)
    with pytest.raises(UnexpectedAppendOffset):
        follower.append_batches(log, batch(1, 1), LeaderEpoch(1))
    log.truncate_fully_and_start_at(Offset(5))
    with pytest.raises(UnexpectedAppendOffset):
        follower.append_batches(log, batch(3, 1), LeaderEpoch(1))


@pytest.mark.parametrize(
    ("own", "epoch", "end_offset", "kept", "why"),
    [
        ((1, 1, 1, 3), 3, 9, 4, "the leader has more of the same epoch"),
        ((1, 1, 3, 3), 3, 3, 3, "the leader has less of the same epoch"),
        ((1, 1, 1, 3), 1, 2, 2, "the leader's epoch ended earlier"),
        ((1, 1, 3, 3), 1, 4, 2, "the follower's epoch ended earlier (KIP-101)"),
        ((1, 1, 3, 3), 2, 3, 2, "the follower has no epoch 2: up to the end of epoch 1 (KIP-279)"),
        ((1, 3, 3, 5), 4, 4, 3, "the follower has no epoch 4: up to the end of epoch 3, then it asks again"),
        ((4, 4), 2, 1, 0, "the follower knows of nothing as old"),
        ((1, 1), 3, 1, 1, "no epoch here is as new: the leader's end"),
    ],
)
def test_truncation_by_the_diverging_epoch(
    log: UnifiedLog, own: tuple[int, ...], epoch: int, end_offset: int, kept: int, why: str
) -> None:
    with_epochs(log, *own)
    follower.truncate_to_diverging_epoch(log, LeaderEpoch(epoch), Offset(end_offset))
    assert log.log_end_offset == kept, why


def test_an_epoch_without_records_does_not_stay_at_the_end(log: UnifiedLog) -> None:
    """Otherwise the follower would ask for it again and again."""
    with_epochs(log, 1, 1)
    log.leader_epochs.assign(LeaderEpoch(2), Offset(2))
    follower.truncate_to_diverging_epoch(log, LeaderEpoch(1), Offset(9))
    assert (log.log_end_offset, log.leader_epochs.latest) == (2, 1)


def test_truncation_before_the_start_empties_the_log(log: UnifiedLog, caplog: pytest.LogCaptureFixture) -> None:
    with_epochs(log, 1, 1, 1)
    log.update_high_watermark(Offset(3))
    log.advance_log_start(Offset(2))
    follower.truncate_to_diverging_epoch(log, LeaderEpoch(1), Offset(1))
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)
    assert "below the high watermark 3" in caplog.text


def test_after_an_offset_out_of_range(log: UnifiedLog) -> None:
    with_epochs(log, 1, 1, 1)
    follower.reset_to_leader(log, Offset(0), Offset(9))
    assert log.log_end_offset == 3, "in range by now"
    follower.reset_to_leader(log, Offset(0), Offset(2))
    assert log.log_end_offset == 2, "an unclean election has cost the leader's end"
    follower.reset_to_leader(log, Offset(5), Offset(9))
    assert (log.log_start_offset, log.log_end_offset) == (5, 5), "the leader has deleted what comes next"
