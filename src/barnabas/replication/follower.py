"""Brings a follower's log in line with its leader's: appends the leader's batches, and truncates what the leader lacks.

Source: KIP-101 and KIP-279 (truncation by leader epochs), KIP-595 (the leader finds the divergence at each fetch).
"""

import logging

from barnabas.log.log_offsets import AppendInfo
from barnabas.log.unified_log import UnexpectedAppendOffset, UnifiedLog
from barnabas.records.batch import Buffer
from barnabas.types import LeaderEpoch, Offset

__all__ = ["append_batches", "reset_to_leader", "truncate_to_diverging_epoch"]

_log = logging.getLogger(__name__)


def append_batches(log: UnifiedLog, records: Buffer, leader_epoch: LeaderEpoch | None = None) -> AppendInfo:
    """Appends the batches of a Fetch response as they are. Raises UnexpectedAppendOffset, CorruptMessage,
    KafkaStorageError."""
    try:
        return log.append_as_follower(records, leader_epoch)
    except UnexpectedAppendOffset as error:
        end_offset = log.log_end_offset
        if log.log_start_offset != end_offset or not error.first_offset < end_offset <= error.last_offset:
            raise
        # The leader's log starts in the middle of this batch. The follower's empty log starts there, too, so it has to
        # begin earlier to take the batch.
        log.truncate_fully_and_start_at(error.first_offset)
        return log.append_as_follower(records, leader_epoch)


def truncate_to_diverging_epoch(log: UnifiedLog, epoch: LeaderEpoch, end_offset: Offset) -> None:
    """Truncates the log by the leader's answer: `epoch` is the largest leader epoch of the leader's log that is not
    above the follower's last one, and ends there at `end_offset`.

    If the follower has batches of that epoch, the logs agree up to the lower one of its two ends. Otherwise the logs
    can agree at most up to the end of the epoch before it, and the next fetch asks about that one. Raises
    KafkaStorageError.
    """
    found, own_end_offset = log.offset_for_leader_epoch(epoch)
    if found < 0:
        own_end_offset = log.log_end_offset
    elif found != epoch:
        end_offset = own_end_offset
    _truncate(log, min(own_end_offset, end_offset))


def reset_to_leader(log: UnifiedLog, leader_start_offset: Offset, leader_end_offset: Offset) -> None:
    """Truncates a log whose end lies outside of the leader's log. Raises KafkaStorageError.

    The leader's log ends before, after an unclean election, or starts after it, because the follower was away and the
    leader has deleted old records.
    """
    end_offset = log.log_end_offset
    if leader_end_offset < end_offset:
        _truncate(log, leader_end_offset)
    elif leader_start_offset > end_offset:
        _log.warning("%s: starts anew at the leader's start %d", log.topic_partition, leader_start_offset)
        log.truncate_fully_and_start_at(leader_start_offset)


def _truncate(log: UnifiedLog, offset: Offset) -> None:
    if offset < log.high_watermark:
        _log.warning("%s: truncated to %d, below the high watermark %d", log.topic_partition, offset,
                     log.high_watermark)  # fmt: skip
    if offset < log.log_start_offset:
        log.truncate_fully_and_start_at(offset)
    else:
        log.truncate_to(offset)
