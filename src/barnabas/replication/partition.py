"""A replica of a partition: its leader, leader epoch, in-sync replicas and high watermark.

The leader's log end offset tells what it has, the high watermark what all in-sync replicas have. A follower's fetch at
an offset says that the follower has all records below. So the leader's high watermark moves with the fetch after the
one that brought the records, and the follower's with the answer to that one.

No function here awaits: a condition that is checked on its first line still holds on its last, and requests for one
partition cannot interleave. Times are seconds of `Clock.monotonic`. Source: Kafka's replication design; KIP-101 (leader
epochs), KIP-497 (ISR changes), KIP-966 (no progress below min.insync.replicas).

Where we differ: a replica that a reassignment adds does not count for min.insync.replicas before it is in sync. So a
topic of one replica takes records with acks=all while it gets three.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Literal, Protocol
from uuid import UUID

from barnabas.config.log_config import LogConfig
from barnabas.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    KafkaStorageError,
    NewLeaderElected,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OperationNotAttempted,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.log.log_offsets import AppendInfo, LogRead
from barnabas.log.producers.verification_guards import VerificationGuard
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import BatchHeader, Buffer
from barnabas.records.file_slice import FileSlice
from barnabas.records.validation import AppendPolicy, ValidatedBatch
from barnabas.replication import follower
from barnabas.replication.leader_state import BrokerEpochs, LeaderState
from barnabas.replication.refused_batches import RefusedBatches
from barnabas.replication.repeated_reads import RepeatedReads
from barnabas.replication.replica import FollowerFetch, FollowerRead, IsrChange
from barnabas.replication.replica_selector import ReplicaView
from barnabas.replication.replication_quota import ReplicationQuota
from barnabas.types import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, ProducerId, TopicPartition

__all__ = ["GIVEN_UP", "Partition", "Watcher"]

GIVEN_UP: Final = LeaderEpoch(-2)
"""In place of the leader epoch in which damage was found: others lead since the broker has registered."""
_NOT_MADE: Final = (IneligibleReplica, OperationNotAttempted)
"""By these errors the controller says that the partition epoch is the current one and that the change was not made."""
_OVERTAKEN: Final = (
    *(FencedLeaderEpoch, InvalidRequest, InvalidUpdateVersion, NewLeaderElected),
    *(UnknownTopicId, UnknownTopicOrPartition),
)
"""By these errors the controller says that it knows newer metadata, which may contain the change."""


class Watcher(Protocol):
    """A delayed operation that may be complete when the partition's offsets move or its leader changes."""

    def partition_changed(self, partition: "Partition") -> None: ...


class Partition:
    """The replica of a partition on this broker."""

    __slots__ = (
        "_adding_replicas",
        "_broker_epochs",
        "_commits_alone",
        "_flush_behind",
        "_is_alone",
        "_lag_time_max_s",
        "_leader_state",
        "_min_in_sync_replicas",
        "_reads",
        "_refused",
        "_storage_failed",
        "_suspected",
        "append_policy",
        "damaged_epoch",
        "epoch_start_offset",
        "flush_error",
        "follower_quota",
        "is_leader",
        "is_retired",
        "is_under_min_isr",
        "leader_epoch",
        "leader_id",
        "leader_quota",
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
        broker_epochs: BrokerEpochs = lambda _: None,
        replica_lag_time_max_ms: int = 30_000,
        flush_behind: Callable[["Partition"], None] | None = None,
        storage_failed: Callable[["Partition"], None] | None = None,
        suspected: Callable[["Partition", Offset], None] | None = None,
    ) -> None:
        """`broker_epochs` knows the live brokers. `flush_behind` is given with durability=fsync: it is called after
        each append, and calls `flushed` when the records are on the disk. `storage_failed` is called when the disk
        refuses records, or the log is damaged; `suspected` when readers seem not to be able to use the batch at an
        offset."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.is_leader = False
        self.is_retired = False
        """Whether the replica is deleted. Its files must not be opened any more."""
        self.leader_id = BrokerId(-1)
        self.leader_epoch = NO_LEADER_EPOCH
        self.epoch_start_offset = Offset(0)
        """The log end offset at the election. The leader does not know yet which records below it are committed."""
        self.partition_epoch = -1
        self.replicas: tuple[BrokerId, ...] = ()
        self.is_under_min_isr = False
        """Whether this leader's ISR has fewer members than it needs for acks=all and for its high watermark to move."""
        self.watchers: dict[Watcher, None] = {}
        """The delayed operations, which are woken in this order."""
        self.leader_quota: ReplicationQuota | None = None
        """The quota of what is sent to followers; None if that is not throttled."""
        self.follower_quota: ReplicationQuota | None = None
        """The quota of what is fetched from the leader; None if that is not throttled."""
        self.append_policy = policy_of(log.config)
        self._broker_epochs = broker_epochs
        self._lag_time_max_s = replica_lag_time_max_ms / 1000
        self._leader_state: LeaderState | None = None
        self._min_in_sync_replicas = 1
        self._adding_replicas: tuple[BrokerId, ...] = ()
        """The replicas that a reassignment adds and that were not in sync yet."""
        self._is_alone = False
        """Whether this leader is the only replica: then an append is committed at once."""
        self._commits_alone = False
        """Whether this leader is the only member of the ISR: otherwise no append can move the high watermark."""
        self._refused: RefusedBatches | None = None
        self._flush_behind = flush_behind
        self._storage_failed = storage_failed
        self._suspected = suspected
        self._reads = RepeatedReads()
        self.damaged_epoch = NO_LEADER_EPOCH
        """The leader epoch in which the damage of the log was found. This replica fetches nothing since."""
        log.damage.on_found = self._damage_found
        self.flush_error: KafkaStorageError | None = None
        """The error because of which the last append cannot be committed (durability=fsync)."""

    def set_config(self, config: LogConfig) -> None:
        """Applies the topic's settings."""
        self.log.config = config
        self.append_policy = policy_of(config)
        self._isr_changed()
        self._wake()

    def replace_log(self, log: UnifiedLog) -> None:
        """Goes on with a log of the same records in another data directory."""
        self.log = log
        log.damage.on_found = self._damage_found
        self._log_changed(False)

    def take_offline(self, reason: str) -> None:
        """Takes the log offline because its directory has failed, and wakes what waits for it."""
        self.log.take_offline(reason)
        self._wake()

    # --- roles ------------------------------------------------------------------------------------------------------

    def become(
        self,
        *,
        broker_id: BrokerId,
        leader_id: BrokerId,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        replicas: Sequence[BrokerId],
        in_sync_replicas: Sequence[BrokerId],
        adding_replicas: Sequence[BrokerId] = (),
    ) -> None:
        """Takes the role that the metadata gives this replica. Ignores older metadata. A new follower keeps its records
        until the leader's answers show which ones the leader lacks."""
        known, epochs = (self.leader_epoch, self.partition_epoch), (leader_epoch, partition_epoch)
        if epochs < known:
            return
        self.replicas = tuple(replicas)
        self._adding_replicas = _without(adding_replicas, in_sync_replicas)
        self.partition_epoch = partition_epoch
        self.leader_id = leader_id
        self.is_leader = leader_id == broker_id
        if leader_epoch != self.leader_epoch:
            self.leader_epoch = leader_epoch
            self.epoch_start_offset = self.log.log_end_offset
            # Followers have to fetch in this epoch before their offsets count: they may have truncated their logs.
            self._leader_state = None
            if self.log.lacks and self.damaged_epoch == NO_LEADER_EPOCH:
                self.damaged_epoch = leader_epoch  # found before
        if not self.is_leader:
            self._leader_state = None
        else:
            state = self._leader_state
            if state is None:
                state = self._leader_state = LeaderState(broker_id, self._broker_epochs, self._lag_time_max_s)
            state.assign(replicas, in_sync_replicas, self.log.clock.monotonic())
            if epochs > known:  # the metadata of an accepted change of the ISR may come after the next proposal
                state.commit(in_sync_replicas)
        self._isr_changed()
        if self._flush_behind is not None and (self.is_leader or self.log.recovery_point < self.log.log_end_offset):
            self._flush_behind(self)
        self._wake()

    @property
    def in_sync_replicas(self) -> tuple[BrokerId, ...]:
        """The ISR that the controller has accepted last, if this broker leads."""
        return self._leader_state.in_sync_replicas if self._leader_state is not None else ()

    def retire(self) -> None:
        """Resigns the leadership, because the replica is deleted, and wakes the delayed operations."""
        self.is_leader = False
        self.is_retired = True
        self._leader_state = None
        self._isr_changed()
        self._wake()

    # --- appends and the high watermark -----------------------------------------------------------------------------

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
            self.note_refused(batch.header)
            raise NotLeaderOrFollower(f"broker does not lead {self.topic_partition}")
        if required_acks == -1 and self.is_under_min_isr:
            self.note_refused(batch.header)
            raise NotEnoughReplicas(
                f"{self.topic_partition} has {len(self.in_sync_replicas)} in-sync replicas, "
                f"min.insync.replicas asks for {self._min_in_sync_replicas}"
            )
        log = self.log
        if self._refused is not None and origin == "client":
            self._refused.check(batch.header, log.producers.producers.get(batch.header.producer_id))
        try:
            info = log.append_as_leader(
                batch, self.leader_epoch, origin=origin, guard=guard, transaction_version=transaction_version
            )
        except KafkaStorageError:
            self.note_refused(batch.header)
            self._report_storage_failure()
            raise
        if self._flush_behind is not None:
            self.flush_error = None
            self._flush_behind(self)
            if self._is_alone:
                return info  # delayed operations wait until the record is on the disk
        elif self._is_alone:
            log.update_high_watermark(log.log_end_offset)
        elif self._commits_alone:
            self._advance_high_watermark(log.clock.monotonic())
        if self.watchers:
            self._wake()
        return info

    def note_refused(self, header: BatchHeader) -> None:
        """Notes that a client's batch was refused for a passing reason, for instance because this broker does not lead
        yet."""
        if self._refused is None:
            self._refused = RefusedBatches()
        self._refused.note(header)

    def _report_storage_failure(self) -> None:
        if self._storage_failed is not None:
            self._storage_failed(self)

    def _damage_found(self) -> None:
        self.damaged_epoch = self.leader_epoch
        self.log.mark_damaged()
        self._report_storage_failure()
        self._wake()

    def _advance_high_watermark(self, now: float) -> bool:
        """Moves the leader's high watermark to the offset below which every replica that counts has all records."""
        log, state = self.log, self._leader_state
        if state is None or self.is_under_min_isr:
            return False
        own_end_offset = log.recovery_point if self._flush_behind is not None else log.log_end_offset
        high_watermark = log.high_watermark
        if own_end_offset <= high_watermark:
            return False
        offset = state.replicated_offset(own_end_offset, log.log_end_offset, now)
        if offset <= high_watermark:
            return False
        log.update_high_watermark(offset)
        return True

    def brokers_changed(self) -> None:
        """Has the leader look which replicas its high watermark waits for."""
        if self._advance_high_watermark(self.log.clock.monotonic()):
            self._wake()

    def flushed(self) -> None:
        """Called when records have been synced: with durability=fsync only those count as replicated that are on the
        disk of a replica. So the leader's high watermark can move, or the follower may fetch again."""
        if self._leader_state is not None:
            self._advance_high_watermark(self.log.clock.monotonic())
        self._wake()

    def flush_failed(self, error: KafkaStorageError) -> None:
        """Fails the operations that wait for the last append, because the disk has not taken it."""
        self.flush_error = error
        self._report_storage_failure()
        self._wake()

    def is_committed(self, last_offset: Offset) -> bool:
        """Returns whether every in-sync replica has the record at `last_offset`."""
        return self.log.high_watermark > last_offset

    def is_flushed(self, last_offset: Offset) -> bool:
        """Returns whether the record at `last_offset` is on this broker's disk."""
        return self.log.recovery_point > last_offset

    @property
    def has_enough_replicas(self) -> bool:
        """Whether a committed record may be acknowledged to a producer with acks=all."""
        state = self._leader_state
        return state is not None and len(state.maximal_isr) >= self._min_in_sync_replicas

    @property
    def waits_for_commit(self) -> bool:
        """Whether an append is acknowledged only after a sync, even with acks=1."""
        return self._flush_behind is not None

    # --- followers and the ISR, at the leader -----------------------------------------------------------------------

    def fetch_from_follower(
        self,
        replica_id: BrokerId,
        broker_epoch: int,
        fetch: FollowerFetch,
        *,
        max_bytes: int,
        min_one_message: bool,
        now: float,
    ) -> FollowerRead:
        """Reads for a follower up to the log's end, and notes that the follower has all records below its offset.

        Raises NotLeaderOrFollower, FencedLeaderEpoch, UnknownLeaderEpoch, also for a broker without a replica,
        OffsetOutOfRange and KafkaStorageError. Then the follower's state stays as it was, and so it does for a
        diverging leader epoch.
        """
        read = self.read_for_follower(replica_id, fetch, max_bytes, min_one_message=min_one_message)
        if read.diverging_epoch is not None:
            return read
        state = self._leader_state
        assert state is not None
        if read.records is not None and self._reads.note(fetch.fetch_offset, now) and self._suspected is not None:
            self._suspected(self, fetch.fetch_offset)
        replica = state.followers[replica_id]
        state.check_broker_epoch(replica, broker_epoch)
        log = self.log
        before_offset, before_start = replica.log_end_offset, replica.log_start_offset
        replica.update(fetch, broker_epoch, log.log_end_offset, now)
        if replica_id not in state.maximal_isr:
            read.isr_change = self._next_isr_change(now)
        has_moved = replica.log_start_offset != before_start
        if before_offset != replica.log_end_offset or log.high_watermark < log.log_end_offset:
            has_moved |= self._advance_high_watermark(now)
        if has_moved and self.watchers:
            self._wake()
        read.high_watermark = log.high_watermark
        return read

    def read_for_follower(
        self, replica_id: BrokerId, fetch: FollowerFetch, max_bytes: int, *, min_one_message: bool
    ) -> FollowerRead:
        """Reads as `fetch_from_follower` does, but notes nothing: for a Fetch request that is tried again."""
        self.check_leader(fetch.leader_epoch)
        state = self._leader_state
        if state is None or replica_id not in state.followers:
            error = NotLeaderOrFollower if fetch.leader_epoch < 0 else UnknownLeaderEpoch
            raise error(f"broker {replica_id} has no replica of {self.topic_partition} that its leader knows of yet")
        log = self.log
        high_watermark, log_start_offset = log.high_watermark, log.log_start_offset
        if fetch.fetch_offset == log.log_end_offset and fetch.last_fetched_epoch == log.leader_epochs.latest:
            return FollowerRead(None, high_watermark, log_start_offset)  # it has all, as nearly every fetch that waits
        if fetch.last_fetched_epoch >= 0:
            diverging = self.diverging_epoch(fetch.last_fetched_epoch, fetch.fetch_offset)
            if diverging is not None:
                return FollowerRead(None, high_watermark, log_start_offset, diverging)
        read = log.read(fetch.fetch_offset, max_bytes, upper_bound=log.log_end_offset, min_one_message=min_one_message)
        return FollowerRead(read.file_slice, high_watermark, log_start_offset)

    def is_waited_for(self, replica_id: BrokerId, now: float) -> bool:
        """Returns whether the leader's high watermark waits for a follower, which must not be throttled then."""
        state = self._leader_state
        replica = state.followers.get(replica_id) if state is not None else None
        return state is not None and replica is not None and state.is_waited_for(replica, self.log.log_end_offset, now)

    def follower_had_all(self, replica_id: BrokerId, fetch: FollowerFetch, at: float) -> None:
        """Notes that a follower still had all records at the time `at`, by a request of its session that does not name
        the partition: its last fetch, which found nothing, stands."""
        state = self._leader_state
        if state is not None and fetch.leader_epoch == self.leader_epoch:
            replica = state.followers.get(replica_id)
            if replica is not None and replica.log_end_offset == fetch.fetch_offset:
                replica.had_all(at)

    def propose_isr_change(self, now: float) -> IsrChange | None:
        """Returns the change of the ISR that the controller should make; None if there is none, or one is pending.

        Called periodically: members have to leave because time passes, and the high watermark no longer waits for a
        replica that was about to join.
        """
        change = self._next_isr_change(now)
        if self._advance_high_watermark(now):
            self._wake()
        return change

    def _next_isr_change(self, now: float) -> IsrChange | None:
        """Begins the change of the ISR that is due, and returns it.

        A replica joins when it has all committed records. Before `epoch_start_offset` the leader does not know which
        ones are.
        """
        state, log = self._leader_state, self.log
        if state is None:
            return None
        join_offset = max(log.high_watermark, self.epoch_start_offset)
        new_isr = state.next_isr(join_offset, log.log_end_offset, now)
        if new_isr is None:
            return None
        change = IsrChange(self.topic_partition, self.topic_id, self.leader_epoch, self.partition_epoch, new_isr)
        state.propose(change)
        self._commits_alone = len(state.maximal_isr) == 1
        return change

    def isr_change_accepted(
        self,
        change: IsrChange,
        *,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        in_sync_replicas: Sequence[BrokerId],
    ) -> None:
        """Applies the controller's answer to a proposed change, unless metadata has overtaken it."""
        state = self._leader_state
        if state is None or change is not state.pending:
            return
        if leader_epoch == self.leader_epoch and partition_epoch >= self.partition_epoch:
            self.partition_epoch = partition_epoch
            self._adding_replicas = _without(self._adding_replicas, in_sync_replicas)
            state.commit(in_sync_replicas)
            self._isr_changed()
            self._wake()

    def isr_change_refused(self, change: IsrChange, error: KafkaError) -> bool:
        """Reacts to the controller's error. Returns whether the caller should send the same change again.

        Where the change may have been made, or metadata is missing here, it stays pending until the metadata comes.
        """
        state = self._leader_state
        if state is None or change is not state.pending:
            return False
        if isinstance(error, _NOT_MADE):
            state.roll_back()
            self._isr_changed()
            self._wake()
            return False
        return not isinstance(error, _OVERTAKEN)

    def _isr_changed(self) -> None:
        """Derives what depends on the ISR, the replicas and the settings, for the appends."""
        state = self._leader_state
        # The controller never counts more, or an eligible replica (ELR) could lack records that are committed here.
        counted = len(self.replicas) - len(self._adding_replicas)
        self._min_in_sync_replicas = min(self.log.config.min_insync_replicas, counted)
        self._is_alone = state is not None and not state.followers
        self._commits_alone = state is not None and len(state.maximal_isr) == 1
        self.is_under_min_isr = state is not None and len(state.in_sync_replicas) < self._min_in_sync_replicas
        self._advance_high_watermark(self.log.clock.monotonic())

    # --- the follower's side ----------------------------------------------------------------------------------------

    def next_fetch(self) -> FollowerFetch | None:
        """Returns the follower's next fetch; None while records are not on its disk (durability=fsync).

        A fetch tells the leader that this replica has all records below its offset, so with durability=fsync it waits
        for the sync of the records before. The watchers are woken then. After a failed sync the first call raises
        KafkaStorageError, and begins another sync. An offline or damaged log raises it always: a replica that takes
        no records, or lacks some, must not join the ISR because there are none.
        """
        log = self.log
        log.check_online()
        if log.lacks:
            raise KafkaStorageError(f"{self.topic_partition} is damaged: {log.lacks}")
        if self._flush_behind is not None and log.recovery_point < log.log_end_offset:
            if (error := self.flush_error) is not None:
                self.flush_error = None
                self._flush_behind(self)
                raise error
            return None
        return FollowerFetch(log.log_end_offset, self.leader_epoch, log.leader_epochs.latest, log.log_start_offset)

    def append_as_follower(
        self, fetch: FollowerFetch, records: Buffer, *, high_watermark: Offset, log_start_offset: Offset
    ) -> AppendInfo | None:
        """Appends the batches that the leader has sent for `fetch`, and takes over its high watermark and log start.

        Batches of a later leader epoch than the fetch are left out: the broker that sent them has become a follower
        meanwhile, and its log is another. Returns None, and does nothing, if the response is late. Raises
        CorruptMessage, KafkaStorageError.
        """
        if not self._is_current(fetch):
            return None
        log = self.log
        before = log.high_watermark, log.log_start_offset
        try:
            info = follower.append_batches(log, records, fetch.leader_epoch)
        except KafkaStorageError:
            self._report_storage_failure()
            raise
        log.update_high_watermark(high_watermark)
        log.advance_log_start(min(log_start_offset, log.log_end_offset))
        self._log_changed(
            fetch.fetch_offset != log.log_end_offset or before != (log.high_watermark, log.log_start_offset)
        )
        return info

    def truncate_to_diverging_epoch(self, fetch: FollowerFetch, epoch: LeaderEpoch, end_offset: Offset) -> None:
        """Truncates the log by the leader's answer to `fetch` that the logs diverge. Ignores a late answer."""
        if self._is_current(fetch):
            follower.truncate_to_diverging_epoch(self.log, epoch, end_offset)
            self._log_changed(True)

    def reset_to_leader(self, fetch: FollowerFetch, leader_start_offset: Offset, leader_end_offset: Offset) -> None:
        """Truncates the log after OFFSET_OUT_OF_RANGE for `fetch`, by the range of the leader's log. Ignores a late
        answer."""
        if self._is_current(fetch):
            follower.reset_to_leader(self.log, leader_start_offset, leader_end_offset)
            self._log_changed(True)

    def _is_current(self, fetch: FollowerFetch) -> bool:
        """Returns whether the follower's log still is what it was when it sent this fetch. An answer to any other one
        could leave a hole in the log, or truncate what is right."""
        log = self.log
        return (
            not self.is_leader
            and fetch.leader_epoch == self.leader_epoch
            and fetch.fetch_offset == log.log_end_offset
            and fetch.last_fetched_epoch == log.leader_epochs.latest
        )

    def _log_changed(self, has_moved: bool) -> None:
        if self._flush_behind is not None and self.log.recovery_point < self.log.log_end_offset:
            self.flush_error = None
            self._flush_behind(self)
        if has_moved and self.watchers:
            self._wake()

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

    def check_reader(self, current_leader_epoch: LeaderEpoch) -> None:
        """Raises what `check_leader` raises, but lets a consumer read from a follower (KIP-392)."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            self._fence(current_leader_epoch)
        if not self.is_leader and (self.is_retired or self.leader_id < 0):
            raise NotLeaderOrFollower(f"{self.topic_partition} has no leader")

    def followers_with(self, offset: Offset) -> list[ReplicaView]:
        """Returns the in-sync followers that have the record at an offset, if this broker leads."""
        state = self._leader_state
        if state is None:
            return []
        return [
            ReplicaView(replica.broker_id, replica.log_end_offset)
            for replica in state.followers.values()
            if replica.broker_id in state.in_sync_replicas
            and replica.log_start_offset <= offset <= replica.log_end_offset
        ]

    def upper_bound(self, *, read_committed: bool) -> Offset:
        """Returns the offset before which a consumer stops: the last stable offset or the high watermark."""
        return self.log.last_stable_offset if read_committed else self.log.high_watermark

    def read(self, offset: Offset, max_bytes: int, *, read_committed: bool, min_one_message: bool) -> LogRead:
        """Reads records for a consumer. The caller has checked the leader. Raises OffsetOutOfRange."""
        log = self.log
        bound = log.last_stable_offset if read_committed else log.high_watermark
        read = log.read(offset, max_bytes, upper_bound=bound, min_one_message=min_one_message)
        if read.file_slice is not None and self._reads.note(offset, log.clock.monotonic()) and self._suspected:
            self._suspected(self, offset)
        return read

    def delete_records(self, before_offset: Offset) -> Offset:
        """Moves the log start offset, for -1 to the high watermark, and returns the offset that `low_watermark` has to
        reach. The followers learn of it by their fetches."""
        target = self.log.high_watermark if before_offset == -1 else before_offset
        self.log.delete_records(target)
        self._wake()
        return target

    def low_watermark(self) -> Offset:
        """Returns the lowest log start offset of all live replicas, if this broker leads; -1 while that of one of them
        is unknown. The records below are deleted everywhere."""
        state, start = self._leader_state, self.log.log_start_offset
        return start if state is None else state.low_watermark(start)

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
        if fetch_offset < self.log.log_start_offset:
            raise OffsetOutOfRange(f"{self.topic_partition} starts at {self.log.log_start_offset}, not {fetch_offset}")
        if epoch == last_fetched_epoch and end_offset >= fetch_offset:
            return None
        return epoch, end_offset

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
        record_max_bytes=config.max_decompressed_message_bytes,
        compacted=config.compacted,
        log_append_time=config.log_append_time,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        compression_type=config.compression_type,
        compression_level=levels.get(config.compression_type),
    )


def _without(replicas: Iterable[BrokerId], others: Collection[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(replica for replica in replicas if replica not in others)
