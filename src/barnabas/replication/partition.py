"""A replica of a partition: its leader, leader epoch, in-sync replicas and high watermark.

No function here awaits: a condition that is checked on its first line still holds on its last, and requests for one
partition cannot interleave. Source: Kafka's replication design; KIP-101 (leader epochs).
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol
from uuid import UUID

from barnabas.config.log_config import LogConfig
from barnabas.errors import (
    FencedLeaderEpoch,
    KafkaStorageError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from barnabas.log.log_offsets import AppendInfo, LogRead
from barnabas.log.producers.verification_guards import VerificationGuard
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.file_slice import FileSlice
from barnabas.records.validation import AppendPolicy, ValidatedBatch
from barnabas.types import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, ProducerId, TopicPartition

__all__ = ["Partition", "Watcher"]


class Watcher(Protocol):
    """A delayed operation that may be complete when the partition's offsets move or its leader changes."""

    def partition_changed(self, partition: "Partition") -> None: ...


class Partition:
    """The replica of a partition on this broker."""

    __slots__ = (
        "_flush_behind",
        "append_policy",
        "epoch_start_offset",
        "flush_error",
        "in_sync_replicas",
        "is_leader",
        "leader_epoch",
        "leader_id",
        "log",
        "partition_epoch",
        "replicas",
        "topic_id",
        "topic_partition",
        "watchers",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: UnifiedLog,
        *,
        flush_behind: Callable[["Partition"], None] | None = None,
    ) -> None:
        """`flush_behind` is given with durability=fsync. It is called after each append, and calls `flushed` when the
        records are on the disk."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.is_leader = False
        self.leader_id = BrokerId(-1)
        self.leader_epoch = NO_LEADER_EPOCH
        self.epoch_start_offset = Offset(0)
        """The log end offset at the election. The leader does not know yet which records below it are committed."""
        self.partition_epoch = -1
        self.replicas: tuple[BrokerId, ...] = ()
        self.in_sync_replicas: tuple[BrokerId, ...] = ()
        self.watchers: set[Watcher] = set()
        self.append_policy = policy_of(log.config)
        self._flush_behind = flush_behind
        self.flush_error: KafkaStorageError | None = None
        """The error because of which the last append cannot be committed (durability=fsync)."""

    def set_config(self, config: LogConfig) -> None:
        """Applies the topic's settings."""
        self.log.config = config
        self.append_policy = policy_of(config)

    def become(
        self,
        *,
        broker_id: BrokerId,
        leader_id: BrokerId,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        replicas: Sequence[BrokerId],
        in_sync_replicas: Sequence[BrokerId],
    ) -> None:
        """Takes the role that the metadata gives this replica. Ignores older leader epochs."""
        if leader_epoch < self.leader_epoch:
            return
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self.in_sync_replicas = tuple(in_sync_replicas)
        self.leader_id = leader_id
        if leader_epoch != self.leader_epoch:
            self.epoch_start_offset = self.log.log_end_offset
        self.leader_epoch = leader_epoch
        self.is_leader = leader_id == broker_id
        if self.is_leader:
            if self._flush_behind is not None:
                self._flush_behind(self)
            else:
                self._maybe_advance_high_watermark(self.log.log_end_offset)
        self._wake()

    # --- the leader's side ------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batch: ValidatedBatch,
        required_acks: int,
        *,
        origin: Literal["client", "coordinator"] = "client",
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Appends one batch. Raises NotLeaderOrFollower, NotEnoughReplicas, and the errors of
        `UnifiedLog.append_as_leader`."""
        if not self.is_leader:
            raise NotLeaderOrFollower(f"broker does not lead {self.topic_partition}")
        log = self.log
        if required_acks == -1 and len(self.in_sync_replicas) < log.config.min_insync_replicas:
            raise NotEnoughReplicas(
                f"{self.topic_partition} has {len(self.in_sync_replicas)} in-sync replicas, "
                f"min.insync.replicas asks for {log.config.min_insync_replicas}"
            )
        info = log.append_as_leader(
            batch, self.leader_epoch, origin=origin, guard=guard, transaction_version=transaction_version
        )
        if self._flush_behind is not None:
            self.flush_error = None
            self._flush_behind(self)
            return info  # delayed operations wait until the record is on the disk
        if len(self.in_sync_replicas) == 1:
            log.update_high_watermark(log.log_end_offset)
        if self.watchers:
            self._wake()
        return info

    def flushed(self, end_offset: Offset) -> None:
        """Moves the high watermark, because all records below `end_offset` are on the disk."""
        if self.is_leader:
            self._maybe_advance_high_watermark(end_offset)
            self._wake()

    def flush_failed(self, error: KafkaStorageError) -> None:
        """Fails the operations that wait for the last append, because the disk has not taken it."""
        self.flush_error = error
        self._wake()

    def _maybe_advance_high_watermark(self, offset: Offset) -> None:
        if len(self.in_sync_replicas) == 1 and offset > self.log.high_watermark:
            self.log.update_high_watermark(offset)

    def is_committed(self, last_offset: Offset) -> bool:
        """Returns whether every in-sync replica has the record at `last_offset`."""
        return self.log.high_watermark > last_offset

    @property
    def waits_for_commit(self) -> bool:
        """Whether an append is acknowledged only after a sync, even with acks=1."""
        return self._flush_behind is not None

    # --- readers ----------------------------------------------------------------------------------------------------

    def check_leader(self, current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH) -> None:
        """Raises NotLeaderOrFollower, or FencedLeaderEpoch or UnknownLeaderEpoch if the client has another leader epoch
        (-1: none)."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            self._fence(current_leader_epoch)
        if not self.is_leader:
            raise NotLeaderOrFollower(f"broker does not lead {self.topic_partition}")

    def _fence(self, current_leader_epoch: LeaderEpoch) -> None:
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.topic_partition} is in leader epoch {self.leader_epoch} by now")
        raise UnknownLeaderEpoch(f"{self.topic_partition} is in leader epoch {self.leader_epoch} yet")

    def upper_bound(self, *, read_committed: bool) -> Offset:
        """Returns the offset before which a consumer stops: the last stable offset or the high watermark."""
        return self.log.last_stable_offset if read_committed else self.log.high_watermark

    def read(self, offset: Offset, max_bytes: int, *, read_committed: bool, min_one_message: bool) -> LogRead:
        """Reads records for a consumer. The caller has checked the leader. Raises OffsetOutOfRange."""
        log = self.log
        bound = log.last_stable_offset if read_committed else log.high_watermark
        return log.read(offset, max_bytes, upper_bound=bound, min_one_message=min_one_message)

    def delete_records(self, before_offset: Offset) -> Offset:
        """Moves the log start offset, for -1 to the high watermark, and returns it."""
        target = self.log.high_watermark if before_offset == -1 else before_offset
        start = self.log.delete_records(target)
        self._wake()
        return start

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """Returns the largest leader epoch at or below `epoch` and its end offset; (-1, -1) if that is unknown.

        The log learns of an epoch by its first record. The current one ends at the log's end even before that; one
        that never had a record ended where the one before it did.
        """
        log = self.log
        if epoch == self.leader_epoch:
            return epoch, log.log_end_offset
        latest = log.leader_epochs.latest
        if latest < epoch < self.leader_epoch:
            return latest if latest >= 0 else epoch, log.log_end_offset
        return log.offset_for_leader_epoch(epoch)

    def aborted_transactions(self, fetch_offset: Offset, records: FileSlice) -> list[tuple[ProducerId, Offset]]:
        """Returns producer id and first offset of the aborted transactions in these records, ordered by offset."""
        found = self.log.aborted_in(fetch_offset, records)
        return sorted(((entry.producer_id, entry.first_offset) for entry in found), key=lambda pair: pair[1])

    def diverging_epoch(
        self, last_fetched_epoch: LeaderEpoch, fetch_offset: Offset
    ) -> tuple[LeaderEpoch, Offset] | None:
        """Returns leader epoch and end offset up to which the reader's log agrees with this one; None if it agrees up
        to its fetch offset.

        Raises OffsetOutOfRange where this log cannot say.
        """
        epoch, end_offset = self.end_of_epoch(last_fetched_epoch)
        if epoch < 0:
            raise OffsetOutOfRange(f"{self.topic_partition}: nobody here knows where epoch {last_fetched_epoch} ended")
        if epoch == last_fetched_epoch and end_offset >= fetch_offset:
            return None
        return epoch, end_offset

    def retire(self) -> None:
        """Resigns the leadership, because the replica is deleted, and wakes the delayed operations."""
        self.is_leader = False
        self._wake()

    def _wake(self) -> None:
        for watcher in tuple(self.watchers):
            watcher.partition_changed(self)


def policy_of(config: LogConfig) -> AppendPolicy:
    """Returns the rules for appends that follow from a topic's settings."""
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return AppendPolicy(
        max_message_bytes=config.max_message_bytes,
        compacted=config.compacted,
        log_append_time=config.log_append_time,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        compression_type=config.compression_type,
        compression_level=levels.get(config.compression_type),
    )
