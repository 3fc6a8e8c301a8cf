"""The log of one partition: its segments, offsets, producer state and leader epochs.

All methods are plain calls on one thread. Work that may block on the device (fsync, removing large files) is returned
as a value that any thread may run: `flush.FlushTask`, `deletion_queue.DeletionQueue`.
"""

import contextlib
import dataclasses
import logging
import threading
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from barnabas.clock import Clock
from barnabas.config.log_config import LONG_MAX, LogConfig
from barnabas.errors import CorruptMessage, KafkaError, KafkaStorageError, OffsetOutOfRange, RecordListTooLarge
from barnabas.log import retention
from barnabas.log.directories.checkpoints import write_partition_metadata
from barnabas.log.directories.deletion_queue import DeletionQueue
from barnabas.log.directories.disk import Disk, ResourcePool
from barnabas.log.flush import FlushTask, prepare_flush
from barnabas.log.holes import Hole, mark_of, with_hole
from barnabas.log.indexes import timestamp_search
from barnabas.log.indexes.sparse_index import CorruptIndex
from barnabas.log.indexes.transaction_index import AbortedTransaction
from barnabas.log.leader_epoch_cache import LeaderEpochFileCache
from barnabas.log.log_damage import LogDamage, mark_damaged, read_mark, write_mark
from barnabas.log.log_offsets import EMPTY_READ, AppendInfo, LogOffsets, LogRead, TimestampOffset
from barnabas.log.log_segment import OFFSET_DELTA_MAX, LogSegment, SegmentWriteFailed
from barnabas.log.log_segments import LogSegments
from barnabas.log.producers.producer_recovery import note_batch, read_end_marker, rebuild_producers
from barnabas.log.producers.producer_state_manager import EndMarker, ProducerEntry, ProducerStateManager
from barnabas.log.producers.verification_guards import Sender, VerificationGuard
from barnabas.out_of_memory import end_if_out_of_memory
from barnabas.records.batch import CHECKED_POSITION, MAGIC, PREFIX, TRANSACTIONAL_FLAG, BatchHeader, Buffer
from barnabas.records.file_slice import FileSlice
from barnabas.records.validation import ValidatedBatch, validate_replicated
from barnabas.types import FIRST_OFFSET, NO_TIMESTAMP, LeaderEpoch, Offset, ProducerId, TopicPartition

__all__ = ["UnexpectedAppendOffset", "UnifiedLog"]

_SNAPSHOT_DEBT_MAX: Final = 16 * 1024 * 1024
"""The appended bytes after which a snapshot of the producers is due. Each batch counts _BATCH_DEBT more, and each
producer raises the bound by _PRODUCER_DEBT. This bounds the headers that a restart reads to rebuild the producer
state."""
_BATCH_DEBT: Final = 2048
_PRODUCER_DEBT: Final = 4096
_DESCRIPTORS_MIN: Final = 6
"""More than a truncation or a swap of segments opens at once."""

_pack_prefix = PREFIX.pack
_log = logging.getLogger(__name__)


class UnexpectedAppendOffset(Exception):
    """A follower got batches that begin before its log end offset."""

    def __init__(self, message: str, first_offset: Offset, last_offset: Offset) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class UnifiedLog:
    """Appends and reads batches, truncates and deletes. Made by `log_loader.load_log` or `log_loader.create_log`.

    `active_segment` takes the appends. All records below `recovery_point` are on the device, and the indexes of the
    segments that end at or below `indexes_synced_to`. The cleaner has cleaned the log up to `cleaned_offset`.
    `offline_reason` is None while the log takes writes. A thread that syncs files of the log holds `sync_lock`.
    `truncations` counts truncations: a flush that began before one is void. `files_made` counts the changes of names in
    the directory, `files_synced` those of them that are on the device. `lower_checkpoints` is called with the end of
    the log when records are removed there. `holes` is what was missing when the log was loaded.
    """

    __slots__ = (
        "_config",
        "_deletions",
        "_flush_messages",
        "_high_watermark_position",
        "_pool",
        "_segment_bytes",
        "_segments",
        "_snapshot_debt",
        "_tail_dirty",
        "_undeleted",
        "active_segment",
        "cleaned_offset",
        "clock",
        "damage",
        "directory",
        "disk",
        "files_made",
        "files_synced",
        "holes",
        "indexes_synced_to",
        "last_flush_ms",
        "leader_epochs",
        "lower_checkpoints",
        "offline_reason",
        "offsets",
        "producers",
        "recovery_point",
        "sync_lock",
        "topic_id",
        "topic_partition",
        "truncations",
    )

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        segments: list[LogSegment],
        offsets: LogOffsets,
        leader_epochs: LeaderEpochFileCache,
        producers: ProducerStateManager,
        recovery_point: Offset,
        clock: Clock,
        disk: Disk,
        pool: ResourcePool,
        deletions: DeletionQueue,
        topic_id: uuid.UUID | None = None,
    ) -> None:
        offsets.check()
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.offsets = offsets
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.recovery_point = recovery_point
        self.last_flush_ms = clock.wall_ms()
        self.files_made = self.files_synced = 0
        self.offline_reason: str | None = None
        self.sync_lock = threading.Lock()
        self.cleaned_offset: Offset | None = None
        self.damage = LogDamage(topic_partition)
        self._segments = LogSegments(segments)
        # the segment that ends at the recovery point may have got the rest of its indexes after the sync
        before = bisect_left(self._segments.base_offsets, recovery_point) - 1
        self.indexes_synced_to = segments[max(before, 0)].base_offset
        self.active_segment = segments[-1]
        self.clock = clock
        self.disk = disk
        self._pool = pool
        self._deletions = deletions
        self._high_watermark_position: tuple[LogSegment, int] | None = None
        self._undeleted: list[LogSegment] = []
        """The segments that retention has removed, oldest first, whose files the disk has not let go."""
        self._snapshot_debt = 0
        self._tail_dirty = False
        self.truncations = 0
        self.lower_checkpoints: Callable[[Offset], None] | None = None
        self.holes: tuple[Hole, ...] = ()
        self.config = config

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.offsets})"

    # -- properties ----------------------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        """The topic's settings, which may be replaced."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segment_bytes = config.segment_bytes
        self._flush_messages = config.flush_messages
        self.active_segment.configure(config)

    @property
    def log_start_offset(self) -> Offset:
        """The lowest offset that can be read."""
        return self.offsets.log_start_offset

    @property
    def last_stable_offset(self) -> Offset:
        """All transactions below are complete: read_committed consumers read up to here."""
        return self.offsets.last_stable_offset

    @property
    def high_watermark(self) -> Offset:
        """All in-sync replicas have the records below: consumers read up to here."""
        return self.offsets.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""
        return self.offsets.log_end_offset

    @property
    def flush_point(self) -> Offset:
        """All records below are on the device, with the indexes of their segments except for the active one."""
        if self.indexes_synced_to < self.active_segment.base_offset:
            return min(self.recovery_point, self.indexes_synced_to)
        return self.recovery_point

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """All segments, oldest first; the last one is the active segment."""
        return tuple(self._segments)

    @property
    def missing(self) -> str | None:
        """The records that the log had and has no more, as far as its files tell; None if it has all. Forgotten when
        the log is cut there or starts behind it."""
        return "; ".join(map(str, self.holes)) or None

    @property
    def lacks(self) -> str:
        """The damage that was found, or what is missing; '' if the log is whole as far as anybody knows."""
        return self.damage.found or ((self.missing or "") if self.holes else "")

    def watch_reads(self) -> None:
        """Begins to note what cannot be read. Before, while it is loaded, it may still be cut off."""
        for segment in self._segments:
            segment.damage = self.damage

    def newest_segments(self) -> Iterator[LogSegment]:
        return reversed(self._segments)

    @property
    def size_bytes(self) -> int:
        """The size of all batches without indexes, as in Kafka."""
        return self._segments.size_bytes

    def holds(self, segments: Sequence[LogSegment]) -> bool:
        """Returns whether these are (still) segments of the log, in this order and without others between them."""
        return self._segments.contains_run(segments)

    def active_producers(self) -> list[ProducerEntry]:
        """Returns the producers whose sequences the log knows."""
        return list(self.producers.producers.values())

    def set_topic_id(self, topic_id: uuid.UUID) -> None:
        """Writes the topic id of a log that has none, because it is old or its metadata file is lost. Raises
        OSError."""
        self.topic_id = topic_id
        write_partition_metadata(self.directory, topic_id)

    # -- appending -----------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batch: ValidatedBatch,
        leader_epoch: LeaderEpoch,
        *,
        origin: Literal["client", "coordinator"] = "client",
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Assigns the next offsets to the batch and writes it.

        The first batch of a transaction needs the `guard` of `begin_verification`, after the transaction coordinator
        has agreed. `transaction_version` selects the rules by which an end marker is checked.

        Raises OutOfOrderSequenceNumber, InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced,
        RecordListTooLarge (larger than a segment). Raises KafkaStorageError if the write failed, in which case nothing
        has changed, or if the log is offline.
        """
        header = batch.header
        payload = batch.payload
        size = len(payload)
        offsets = self.offsets
        base_offset = offsets.log_end_offset
        # Plain ints are assigned: a call of Offset would cost time for every batch.
        last_offset: Offset = base_offset + header.last_offset_delta  # type: ignore[assignment]
        next_offset: Offset = last_offset + 1  # type: ignore[assignment]
        marker: EndMarker | None = None
        if self._tail_dirty or self.offline_reason is not None:
            self._check_writable()
        if header.producer_id >= 0:
            if header.is_control:
                marker = read_end_marker(payload)
                self.producers.check_marker(header, marker, transaction_version)
            elif (duplicate := self._check_producer(header, origin, guard)) is not None:
                self._flush_if_due(duplicate.last_offset)
                return duplicate
        if leader_epoch != self.leader_epochs.latest:
            self._assign_leader_epoch(leader_epoch, base_offset)
        segment = self.active_segment
        if (
            segment.size + size > self._segment_bytes
            or batch.max_timestamp > segment.roll_after_timestamp
            or segment.index_entries_left <= 0
            or last_offset - segment.base_offset > OFFSET_DELTA_MAX
        ):
            if size > self._segment_bytes:
                raise RecordListTooLarge(
                    f"the batch has {size} bytes, segment.bytes of {self.topic_partition.topic} is "
                    f"{self._segment_bytes}"
                )
            segment = self._roll_for(size, base_offset, last_offset, batch.max_timestamp)
        if marker is not None and not marker.commit:
            self._open_transaction_index(segment)
        prefix = _pack_prefix(base_offset, header.batch_length, leader_epoch, MAGIC, header.crc)
        try:
            rest = memoryview(payload)[CHECKED_POSITION:]
            segment.append((prefix, rest), size, last_offset, batch.max_timestamp)
            if header.producer_id >= 0:
                now_ms = self.clock.wall_ms()
                note_batch(self.producers, header, base_offset, marker, segment, now_ms, transaction_version)
            offsets.advance_log_end(next_offset)
        except SegmentWriteFailed as failed:
            raise self._write_failed(failed) from failed
        except Exception as error:
            raise self._not_entered(error) from error
        self._snapshot_debt += size + _BATCH_DEBT
        if self._snapshot_debt > _SNAPSHOT_DEBT_MAX:
            self._snapshot_if_due()
        if last_offset - self.recovery_point >= self._flush_messages - 1:
            self.flush()
        append_time = batch.max_timestamp if header.is_log_append_time else NO_TIMESTAMP
        return AppendInfo(base_offset, last_offset, append_time, offsets.log_start_offset, False)

    def begin_verification(self, sender: Sender, *, starts_at_zero: bool) -> VerificationGuard | None:
        """Returns the guard that the first batch of a transaction needs; None if the transaction has records here.

        Called before the transaction coordinator is asked. `starts_at_zero` says that the sequences begin at 0 in each
        transaction. Raises InvalidProducerEpoch.
        """
        return self.producers.begin_verification(sender, starts_at_zero=starts_at_zero, now_ms=self.clock.wall_ms())

    def refuse_verification(self, producer_id: ProducerId, guard: VerificationGuard) -> None:
        """Removes a guard because the transaction coordinator has refused the transaction for good."""
        self.producers.guards.refuse(producer_id, guard)

    def append_as_follower(self, records: Buffer, leader_epoch: LeaderEpoch | None = None) -> AppendInfo:
        """Writes batches of the leader with their offsets and leader epochs, except for a torn one at the end.

        Stops before a batch of a later epoch than `leader_epoch`. Raises UnexpectedAppendOffset, CorruptMessage,
        KafkaStorageError.
        """
        batches = validate_replicated(records)
        if leader_epoch is not None:
            for index, (header, _) in enumerate(batches):
                if header.partition_leader_epoch > leader_epoch:
                    del batches[index:]
                    break
        end = self.offsets.log_end_offset
        if not batches:
            return AppendInfo(end, Offset(end - 1), NO_TIMESTAMP, self.offsets.log_start_offset, False)
        first, last = batches[0][0], batches[-1][0]
        expected = end
        for header, _ in batches:
            if header.base_offset < expected:
                message = f"{self.topic_partition}: batch at {header.base_offset}, the next offset is {expected}"
                raise UnexpectedAppendOffset(message, first.base_offset, last.last_offset)
            expected = header.next_offset
        self._check_writable()
        position, view = 0, memoryview(records)
        while batches:
            run = self._next_run(batches)
            size = sum(len(data) for _, data in run)
            self._append_run([header for header, _ in run], view[position : position + size])
            position += size
            del batches[: len(run)]
        self._flush_if_due(last.last_offset)
        return AppendInfo(first.base_offset, last.last_offset, NO_TIMESTAMP, self.offsets.log_start_offset, False)

    def _next_run(self, batches: list[tuple[BatchHeader, memoryview]]) -> list[tuple[BatchHeader, memoryview]]:
        """Returns the batches that fit into the active segment, at least one; rolls the segment if necessary.

        A batch that is larger than a segment may be, because segment.bytes was lowered, gets one of its own. A new
        segment begins where the last one ends, also if compaction has left a gap before the batch: see `holes`.
        """
        header, data = batches[0]
        base_offset, last_offset = self.offsets.log_end_offset, header.last_offset
        if last_offset - base_offset > OFFSET_DELTA_MAX:
            base_offset = header.base_offset
        segment = self._roll_for(len(data), base_offset, last_offset, header.max_timestamp)
        room = self._segment_bytes - segment.size
        count = 0
        for header, data in batches:
            room -= len(data)
            if count and (room < 0 or not segment.can_hold_offset(header.last_offset)):
                break
            count += 1
        return batches[:count]

    def _append_run(self, headers: list[BatchHeader], data: memoryview) -> None:
        markers = {}
        position = 0
        for header in headers:
            if header.partition_leader_epoch != self.leader_epochs.latest:
                self._assign_leader_epoch(header.partition_leader_epoch, header.base_offset)
            if header.is_control and header.producer_id >= 0:
                markers[header.base_offset] = read_end_marker(data[position : position + header.size_bytes])
            position += header.size_bytes
        segment = self.active_segment
        if not all(marker.commit for marker in markers.values()):
            self._open_transaction_index(segment)
        now_ms = self.clock.wall_ms()
        try:
            segment.append_run(data, headers)
            for header in headers:
                if header.producer_id >= 0:
                    marker = markers.get(header.base_offset)
                    note_batch(self.producers, header, header.base_offset, marker, segment, now_ms)
            self.offsets.advance_log_end(headers[-1].next_offset)
        except SegmentWriteFailed as failed:
            raise self._write_failed(failed) from failed
        except Exception as error:
            raise self._not_entered(error) from error
        self._snapshot_debt += len(data) + _BATCH_DEBT * len(headers)
        self._snapshot_if_due()

    def _check_producer(self, header: BatchHeader, origin: str, guard: VerificationGuard | None) -> AppendInfo | None:
        producers = self.producers
        if origin == "client" and (batch := producers.find_duplicate(header)) is not None:
            start = self.offsets.log_start_offset
            return AppendInfo(batch.first_offset, batch.last_offset, batch.timestamp, start, True)
        from_client = origin == "client"
        if header.attributes & TRANSACTIONAL_FLAG:
            producers.check_transaction(header, guard, check_sequence=from_client)
        producers.check(header, check_sequence=from_client)
        return None

    def _assign_leader_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        with self._storage_errors():
            self.leader_epochs.assign(epoch, start_offset)

    def _open_transaction_index(self, segment: LogSegment) -> None:
        """Opens the transaction index before an abort is written, because that may fail. Raises KafkaStorageError."""
        with self._storage_errors():
            if segment.transaction_index_if_any() is None:
                self.files_made += 1
            _ = segment.transaction_index

    @contextlib.contextmanager
    def _storage_errors(self) -> Iterator[None]:
        """Raises KafkaStorageError instead of OSError and CorruptMessage."""
        try:
            yield
        except OSError as error:
            raise self.storage_error(error) from error
        except CorruptMessage as error:
            raise KafkaStorageError(f"{self.topic_partition}: {error}") from error

    def storage_error(self, error: OSError) -> KafkaStorageError:
        """Returns the error that names the partition and the file of which the operating system has refused a call."""
        return KafkaStorageError(
            f"{self.topic_partition} in {error.filename or self.directory}: {error.strerror or error}"
        )

    def check_online(self) -> None:
        """Raises KafkaStorageError if the log is offline."""
        if self.offline_reason is not None:
            raise KafkaStorageError(f"{self.topic_partition} takes no more writes: {self.offline_reason}")

    def take_offline(self, reason: str) -> KafkaStorageError:
        """Refuses writes until a restart, which verifies the files. Returns the error to raise."""
        if self.offline_reason is None:
            self.offline_reason = f"{reason}; restart the broker when the disk is mended"
            _log.error("%s takes no more writes: %s", self.topic_partition, self.offline_reason)
        return KafkaStorageError(f"{self.topic_partition}: {self.offline_reason}")

    def _not_entered(self, error: Exception) -> KafkaStorageError:
        """Takes the log offline after a batch was written but the state was not updated: the next batch must not get
        its offsets."""
        end_if_out_of_memory(error)
        return self.take_offline(f"a batch in {self.directory} could not be entered: {error!r}")

    @contextlib.contextmanager
    def _offline_on_error(self, work: str) -> Iterator[None]:
        """Takes the log offline if the work fails: its files may no longer match its state."""
        try:
            yield
        except (OSError, KafkaError) as error:
            raise self.take_offline(f"{work} in {self.directory} failed: {error}") from error

    def require_descriptors(self) -> None:
        """Raises KafkaStorageError if a few files cannot be opened now. Called before work that takes the log offline
        if it ends half-way: descriptors come back by themselves."""
        with self._storage_errors():
            self._pool.require(_DESCRIPTORS_MIN)

    def _check_writable(self) -> None:
        self.check_online()
        if self._tail_dirty and not self.active_segment.cut_tail():
            raise KafkaStorageError(f"{self.topic_partition}: the disk does not remove the rest of a failed write")
        self._tail_dirty = False

    def _write_failed(self, error: SegmentWriteFailed) -> KafkaStorageError:
        self._tail_dirty = not error.tail_is_clean
        return KafkaStorageError(f"{self.topic_partition} in {self.directory}: {error.strerror}")

    def update_high_watermark(self, offset: Offset) -> Offset:
        """Moves the high watermark up to `offset` and returns it. It never moves back."""
        offsets = self.offsets
        if offset > offsets.log_end_offset:
            offset = offsets.log_end_offset
        if offset <= offsets.high_watermark:
            return offsets.high_watermark
        stable = offset
        if self.producers.has_transactions:
            unstable = self.producers.first_unstable_offset(offset)
            if unstable is not None and unstable < offset:
                stable = max(unstable, offsets.last_stable_offset)
        offsets.advance_high_watermark(offset, stable)
        self._high_watermark_position = None
        return offset

    # -- rolling -------------------------------------------------------------------------------------------------------

    def _roll_for(self, size: int, base_offset: Offset, last_offset: Offset, max_timestamp: int) -> LogSegment:
        segment = self.active_segment
        is_full = segment.size + size > self._segment_bytes or segment.index_entries_left <= 0
        if (segment.size and is_full) or not segment.can_hold_offset(last_offset):
            return self.roll(base_offset)
        try:  # not with _storage_errors(), which costs more than all the rest: every append comes here
            is_due = segment.is_due(self.clock.wall_ms(), max_timestamp)
        except OSError as error:
            raise self.storage_error(error) from error
        return self.roll(base_offset) if is_due else segment

    def maybe_roll(self, now_ms: int) -> bool:
        """Rolls the active segment if segment.ms has passed since its first record. Raises KafkaStorageError."""
        with self._storage_errors():
            is_due = self.active_segment.is_due(now_ms, now_ms)
        if is_due:
            self.roll()
        return is_due

    def roll(self, base_offset: Offset = FIRST_OFFSET) -> LogSegment:
        """Adds a new active segment at the log's end, or at `base_offset` above it. Raises KafkaStorageError.

        An empty active segment with this base offset is kept.
        """
        base_offset = max(base_offset, self.offsets.log_end_offset)
        active = self.active_segment
        if active.base_offset == base_offset:
            return active
        self.check_online()
        try:
            active.seal()
            segment = self._create_segment(base_offset)
        except OSError as error:
            message = f"{self.topic_partition} in {self.directory}: no new segment: {error.strerror}"
            raise KafkaStorageError(message) from error
        self.files_made += 1
        self._segments.add(segment)
        self.active_segment = segment
        self.take_snapshot()
        return segment

    def _create_segment(self, base_offset: Offset) -> LogSegment:
        now_ms = self.clock.wall_ms()
        segment = LogSegment(
            self.directory, base_offset, self._config, disk=self.disk, pool=self._pool, created_ms=now_ms
        )
        segment.damage = self.damage
        try:
            segment.create(self._config.segment_bytes if self._config.preallocate else 0)
        except OSError:
            # the next start would take it for the end of the log, although the segment before it grows until then
            with self._offline_on_error(f"removing the new segment at {base_offset}"):
                segment.remove()
            raise
        return segment

    def take_snapshot(self, *, sync: bool = False) -> None:
        """Writes a snapshot of the producers at the log's end. After a failure the next restart reads more headers.

        The aborts are written to their index first: a restart does not search for them before a snapshot.
        """
        self._snapshot_debt = 0
        with contextlib.suppress(OSError):
            self.active_segment.write_transaction_index()
            self.producers.take_snapshot(self.offsets.log_end_offset, self._segments.base_offsets, sync=sync)

    def _snapshot_if_due(self) -> None:
        if self._snapshot_debt > _SNAPSHOT_DEBT_MAX + _PRODUCER_DEBT * len(self.producers.producers):
            self.take_snapshot()

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, fetch_offset: Offset, max_bytes: int, *, upper_bound: Offset, min_one_message: bool) -> LogRead:
        """Returns whole batches of one segment, from the one that contains `fetch_offset` up to `upper_bound`.

        At most `max_bytes`, which may cut the last batch because the index is sparse. If the first batch does not fit,
        the result is empty, or the whole first batch if `min_one_message` is set.

        Raises OffsetOutOfRange outside [log_start_offset, log_end_offset], KafkaStorageError if the disk fails.
        """
        offsets = self.offsets
        end_offset = offsets.log_end_offset
        if fetch_offset > end_offset or fetch_offset < offsets.log_start_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition} has offsets {offsets.log_start_offset} to {end_offset}, not {fetch_offset}"
            )
        if fetch_offset >= upper_bound or fetch_offset == end_offset:
            return EMPTY_READ
        segment = self.active_segment
        try:
            if fetch_offset >= segment.base_offset:
                found = segment.locate(fetch_offset)
            else:
                segment, found = self._segments.locate(fetch_offset)
            if found is None:
                return EMPTY_READ
            position, first_size = found
            if upper_bound >= end_offset:
                size = segment.size - position
            else:
                size = self._end_position(segment, upper_bound) - position
            if size > max_bytes:
                if first_size <= max_bytes:
                    size = segment.whole_bytes(position, first_size, max_bytes)
                else:  # no client can use a part of a batch
                    size = first_size if min_one_message else 0
            if size <= 0:
                return EMPTY_READ
            return LogRead(segment.slice(position, size), size)
        except OSError as error:
            raise self.storage_error(error) from error
        except CorruptMessage as error:  # Kafka's consumers take that code for the end of their work
            raise KafkaStorageError(f"{self.topic_partition}: {error}") from error

    def _end_position(self, segment: LogSegment, upper_bound: Offset) -> int:
        """Returns the position of the batch that contains `upper_bound`, at most the segment's end."""
        if upper_bound == self.offsets.high_watermark:
            found = self._high_watermark_position
            if found is None:
                found = self._high_watermark_position = self._segments.position_of(upper_bound)
            end_segment, position = found
        else:
            end_segment, position = self._segments.position_of(upper_bound)
        if end_segment is segment:
            return position
        return segment.size if segment.base_offset < end_segment.base_offset else 0

    def mark_damaged(self) -> None:
        """Has the next start check all of the log. Does nothing if the disk refuses that."""
        if read_mark(self.directory) is None:
            mark_damaged(self.directory, self.damage.found)

    def note_lost(self, hole: Hole) -> None:
        """Notes which records the log had before it was made anew, also on the disk for the next start. Blocks for a
        sync. Raises OSError."""
        self.holes = tuple(with_hole(self.holes, hole))
        write_mark(self.directory, mark_of(self.holes))

    def headers_from(self, offset: Offset) -> Iterator[tuple[LogSegment, int, BatchHeader]]:
        """Yields segment, position and header of the batches from the one that contains `offset` on."""
        return self._segments.headers_from(offset)

    def aborted_transactions(self, fetch_offset: Offset, upper_bound: Offset) -> list[AbortedTransaction]:
        """Returns the aborted transactions with records or their marker in [fetch_offset, upper_bound)."""
        with self._storage_errors():
            return self._segments.aborted_transactions(fetch_offset, upper_bound)

    def aborted_in(self, fetch_offset: Offset, part: FileSlice) -> list[AbortedTransaction]:
        """Returns the aborted transactions with records in a slice that was read from `fetch_offset` on, or a few
        more."""
        end_position = part.position + part.size
        with self._storage_errors():
            return self._segments.aborted_before(fetch_offset, end_position, self.offsets.last_stable_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Returns the first record whose timestamp is at or after `timestamp` (ms). Reads the batch that contains
        it. Raises InvalidRecord if that holds larger records than the topic allows now."""
        start, limit = self.offsets.log_start_offset, self.config.max_decompressed_message_bytes
        with self._storage_errors():
            return timestamp_search.offset_for_timestamp(self._segments, timestamp, start, limit)

    def max_timestamp(self) -> TimestampOffset | None:
        """Returns the first record with the largest timestamp; None for an empty log. Raises InvalidRecord, too."""
        start, limit = self.offsets.log_start_offset, self.config.max_decompressed_message_bytes
        with self._storage_errors():
            return timestamp_search.max_timestamp(self._segments, start, limit)

    def offset_for_leader_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """Returns the largest leader epoch at or below `epoch` and its end offset; (-1, -1) if the log does not know
        it."""
        return self.leader_epochs.end_offset_for(epoch, self.offsets.log_end_offset)

    # -- truncating and deleting ---------------------------------------------------------------------------------------

    def truncate_to(self, offset: Offset) -> bool:
        """Removes the records from `offset` on. Returns False if there are none. Raises KafkaStorageError.

        A batch that contains `offset` is removed whole: `[10,10][11,30][31,100]` truncated to 31 or 35 ends at 31.
        """
        if offset >= self.offsets.log_end_offset:
            self._keep_holes(end=offset)
            # A leader epoch that began at the end without a record is none that the next leader knows.
            self.leader_epochs.truncate_from_end(self.offsets.log_end_offset)
            return False
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self.check_online()
        self.require_descriptors()
        self.truncations += 1
        self._lower_recovery_point(max(offset, self.offsets.log_start_offset))
        with self._offline_on_error(f"truncating to {offset}"):
            self._truncate(offset)
        self._keep_holes(end=offset)
        return True

    def _keep_holes(self, *, start: Offset = FIRST_OFFSET, end: int = LONG_MAX) -> None:
        if self.holes:
            self.holes = tuple(hole for hole in self.holes if hole.first_offset < end and hole.next_offset > start)

    def _lower_recovery_point(self, end: Offset) -> None:
        """Lowers what says of records from `end` on that they are synced or cleaned, also in the checkpoints. First:
        a full disk may refuse that, and nothing has changed then. Raises KafkaStorageError."""
        self.recovery_point = min(self.recovery_point, end)
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, end)
        with self._storage_errors():
            self._lower_checkpoints(end)

    def _truncate(self, offset: Offset) -> None:
        dropped = self._segments.remove_above(offset)
        self.active_segment = active = self._segments.active
        self._drop_segments(dropped)
        self.files_made += 1  # until names and sizes are synced, a power loss brings the records back
        found = active.locate(offset)
        end = offset
        for _, header in active.headers(found[0]) if found is not None else ():
            end = min(offset, header.base_offset)
            break
        active.truncate_to(offset)
        active.void_slices()
        active.configure(self._config)
        self._high_watermark_position = None
        if end < self.offsets.log_start_offset:
            end = self.offsets.log_start_offset
        self.offsets.truncate(end)
        self.indexes_synced_to = min(self.indexes_synced_to, active.base_offset)
        self._lower_recovery_point(end)  # the batch at `offset` may begin lower, and the high watermark was higher
        self.leader_epochs.truncate_from_end(end)
        self.rebuild_producers()

    def rebuild_producers(self, newest_snapshot: Offset | None = None) -> None:
        """Rebuilds the producer state from a snapshot, at `newest_snapshot` at most, and the batches after it."""
        now_ms = self.clock.wall_ms()
        rebuild_producers(self.topic_partition, self.producers, self._segments, self.offsets, now_ms, newest_snapshot)

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Removes all records. The next one gets `offset`. Raises KafkaStorageError."""
        self.check_online()
        self.require_descriptors()
        self.truncations += 1
        with self._storage_errors():
            self._lower_checkpoints(offset)  # first: an empty log would start where the checkpoint says
        work = f"emptying the log up to {offset}"
        with self._offline_on_error(work):
            self._drop_segments([*self._undeleted, *self._segments])
            self._undeleted.clear()
            self.producers.remove_all_snapshots()
            segment = self._create_segment(offset)
        self.files_made += 1
        self._segments.replace_all(segment)
        self.active_segment = segment
        self._high_watermark_position = None
        self.offsets.restart(offset)
        self.recovery_point = self.indexes_synced_to = offset
        self.cleaned_offset = None
        self.holes = ()
        self.leader_epochs.clear()
        self.producers.clear(offset)
        with self._offline_on_error(work):
            self._lower_checkpoints(offset)  # a thread may have written the offsets of before meanwhile

    def _lower_checkpoints(self, end: Offset) -> None:
        if self.lower_checkpoints is not None:
            self.lower_checkpoints(end)

    def delete_records(self, before_offset: Offset) -> Offset:
        """Moves the log start offset up to `before_offset` and returns it.

        Raises OffsetOutOfRange above the high watermark.
        """
        if before_offset > self.offsets.high_watermark or before_offset < 0:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: records up to {self.offsets.high_watermark} can be deleted, "
                f"not to {before_offset}"
            )
        self.advance_log_start(before_offset)
        return self.offsets.log_start_offset

    def advance_log_start(self, offset: Offset) -> None:
        """Moves the log start offset up to `offset`. Does nothing if it is there already or above."""
        if offset <= self.offsets.log_start_offset:
            return
        self.offsets.advance_log_start(offset)
        self._keep_holes(start=offset)
        self.leader_epochs.truncate_from_start(offset)
        with contextlib.suppress(OSError):  # the next start removes them
            self.producers.remove_snapshots_outside(offset, self.offsets.log_end_offset)

    def delete_old_segments(self, now_ms: int) -> int:
        """Removes the segments that retention.ms, retention.bytes or the log start offset allow to delete.

        Returns the number of removed segments. Raises KafkaStorageError. Segments whose files cannot be renamed then
        are none of the log any more, and the next call tries again.
        """
        count = retention.count_deletable(self._segments, self._config, self.offsets, now_ms)
        if not count:
            self._drop_undeleted()
            return 0
        if count == len(self._segments):
            try:
                self.roll()
            except KafkaStorageError:
                # a full disk has no room for a new segment: keep the active one and remove the others
                count -= 1
                if not count:
                    raise
        self._undeleted += self._segments.remove_first(count)
        self.advance_log_start(self._segments[0].base_offset)
        self._high_watermark_position = None
        self._drop_undeleted()
        return count

    def _drop_undeleted(self) -> None:
        with self._storage_errors():
            while self._undeleted:
                self._drop_segments(self._undeleted[:1])
                del self._undeleted[0]

    @property
    def has_undeleted(self) -> bool:
        """Whether there are files of segments that retention has removed: the next start would find them."""
        return bool(self._undeleted)

    def replace_segments(self, old: Sequence[LogSegment], put_in_place: Callable[[], None]) -> None:
        """Replaces the segments `old` by one, whose files `put_in_place` renames after the old files are renamed.

        Raises KafkaStorageError, and takes the log offline, if that fails.
        """
        assert self._segments.contains_run(old), f"{old} are no longer in {self}"
        base_offset = old[0].base_offset
        try:
            self._drop_segments(old)
            put_in_place()
            segment = LogSegment(
                self.directory, base_offset, self._config, disk=self.disk, pool=self._pool, created_ms=0
            )
            segment.load()
        except (OSError, CorruptIndex) as error:
            failure = f"{self.directory}: the cleaned segment at {base_offset} could not take its place"
            raise self.take_offline(f"{failure}: {error}") from error
        segment.damage = self.damage
        self._segments.replace(old, segment)
        self._high_watermark_position = None
        self.files_made += 1

    def _drop_segments(self, segments: Sequence[LogSegment]) -> None:
        """Renames the files of the segments now and removes them after file.delete.delay.ms."""
        due_ms = self.clock.wall_ms() + self._config.file_delete_delay_ms
        for segment in segments:
            for path in segment.mark_deleted():
                self._deletions.add(path, due_ms)

    # -- flushing and closing ------------------------------------------------------------------------------------------

    def prepare_flush(self, up_to: Offset | None = None) -> FlushTask | None:
        """Returns the task that makes all records below `up_to` (the log's end) durable; None if they are already.

        Raises KafkaStorageError, also if the log is offline.
        """
        return prepare_flush(self, self.offsets.log_end_offset if up_to is None else up_to)

    def flush(self, up_to: Offset | None = None) -> None:
        """Syncs the files and advances the recovery point. Raises KafkaStorageError; a failed sync takes the log
        offline."""
        self._run(self.prepare_flush(up_to))

    @staticmethod
    def _run(task: FlushTask | None) -> None:
        if task is not None:
            task.run()
            task.complete()

    def _flush_if_due(self, last_offset: Offset) -> None:
        if last_offset - self.recovery_point >= self._flush_messages - 1:
            self.flush()

    def rename_directory(self, directory: str) -> None:
        """Uses the new name of the directory for later opens."""
        self.directory = directory
        for segment in (*self._undeleted, *self._segments):
            segment.rename_directory(directory)
        self.producers.rename_directory(directory)
        self.leader_epochs.path = f"{directory}/leader-epoch-checkpoint"

    def prepare_to_replace(self, other: "UnifiedLog") -> None:
        """Writes what the batches alone do not tell: the leader epochs and producers of a log with the same records.
        Raises KafkaStorageError."""
        assert self.log_end_offset == other.log_end_offset, (self, other)
        with self._storage_errors():
            self.leader_epochs.replace_all(other.leader_epochs.entries)
            self.active_segment.write_transaction_index()
            self.producers.replace_snapshot(other.producers, self.log_end_offset)
            if (mark := read_mark(other.directory)) is not None:
                write_mark(self.directory, mark.rstrip())

    def replace(self, other: "UnifiedLog") -> None:
        """Goes on in place of a log with the same records, in another directory. That one gets no more appends."""
        assert self.log_end_offset == other.log_end_offset, (self, other)
        self.offsets = dataclasses.replace(other.offsets)
        self.producers.replace(other.producers)
        self.cleaned_offset = other.cleaned_offset
        self.holes = other.holes
        self.config = other.config
        self._high_watermark_position = None
        self.files_made += 1  # the name of the directory is not on the device

    def close(self, *, flush: bool = True) -> None:
        """Completes and closes the files. Slices that are being sent stay readable.

        With `flush` all is on the device afterwards but the name of the directory: one sync can do for many logs.
        Raises KafkaStorageError if that fails or if the log is offline: the next start has to verify the files.
        """
        try:
            self.check_online()
            with self._storage_errors():
                self.leader_epochs.write_if_dirty()
                if self.active_segment.size or self._config.preallocate:
                    self.active_segment.seal()
                if self.offsets.log_end_offset > self.offsets.log_start_offset:
                    self.take_snapshot(sync=flush)
                if flush:
                    self._run(prepare_flush(self, self.offsets.log_end_offset, closing=True))
        finally:
            self.release()

    def release(self) -> None:
        """Closes all files without completing them, as a crash would."""
        for segment in self._segments:
            segment.close()
