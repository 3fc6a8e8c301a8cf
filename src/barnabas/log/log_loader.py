"""Opens a log directory. After a crash the parts that may be damaged are verified.

The damage depends on the crash (docs/decisions/0001-recovery-trusts-the-page-cache.md). If only the process died, every
completed write is in the page cache, and only the end of the active segment can be torn. If the machine went down, all
records above the recovery point are verified. A segment is truncated before the first batch that is torn, fails its
checksum or has a lower offset than the batch before it. The segments after a truncated one are removed.

That is for what may not have come to the device. Behind a write that was torn when the process died there is no valid
batch, and none is damaged below the recovery point: there the disk has failed. Nothing is cut that has a valid batch
behind it, and the log is noted as damaged. So is a log that carries the mark of a damage that was found before.
"""

import contextlib
import enum
import logging
import os
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from struct import Struct
from typing import Final

from barnabas.clock import Clock
from barnabas.config.log_config import LONG_MAX, LogConfig
from barnabas.errors import CorruptMessage, DirectoryUnusable
from barnabas.log.batch_scan import (
    end_of_data,
    find_batch,
    header_at,
    is_batch_at,
    offset_behind,
    scan_verified,
    why_not_a_batch,
)
from barnabas.log.cleaner.file_names import CLEANED_SUFFIX, SWAP_SUFFIX
from barnabas.log.cleaner.segment_swap import finish_swaps
from barnabas.log.directories.checkpoints import read_partition_metadata, write_partition_metadata
from barnabas.log.directories.deletion_queue import DeletionQueue, remove
from barnabas.log.directories.disk import Disk, ResourcePool
from barnabas.log.holes import (
    Hole,
    SegmentEnd,
    check_end,
    holes_between,
    holes_of,
    mark_of,
    was_compacted,
    with_hole,
)
from barnabas.log.indexes.sparse_index import CorruptIndex
from barnabas.log.indexes.transaction_index import CorruptTransactionIndex, TransactionIndex
from barnabas.log.leader_epoch_cache import LeaderEpochFileCache
from barnabas.log.log_damage import MARK, read_mark, write_mark
from barnabas.log.log_offsets import LogOffsets
from barnabas.log.log_segment import DELETED_SUFFIX, OFFSET_DELTA_MAX, LogSegment
from barnabas.log.producers.producer_state_manager import DEFAULT_PRODUCER_EXPIRATION_MS, ProducerStateManager
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import MAGIC
from barnabas.types import FIRST_OFFSET, NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition

__all__ = ["LogEnvironment", "LogState", "Verification", "create_log", "load_log"]

EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
TAIL_BYTES: Final = 1024 * 1024
"""The size of the end of the active segment that is verified when only the process died. Only the last write can be
torn. The verification starts at an indexed and hence complete batch, so it covers a larger batch, too."""
_LEFTOVERS: Final = (DELETED_SUFFIX, ".tmp")
_LEGACY_HEADER: Final = Struct(">qiIb")
"""The header of message formats 0 and 1: offset, size of the rest, CRC-32 from the magic on, magic."""
_INDEXES: Final = (".index", ".timeindex", ".txnindex")

_log = logging.getLogger(__name__)


class Verification(enum.Enum):
    """The part of a log that has to be verified."""

    NONE = "closed cleanly"
    TAIL = "the process died"
    FULL = "the machine went down, or the cause is unknown"


@dataclass(frozen=True, slots=True)
class LogEnvironment:
    """The objects that all logs of a manager share."""

    clock: Clock
    disk: Disk = field(default_factory=Disk)
    pool: ResourcePool = field(default_factory=lambda: ResourcePool(1024))
    deletions: DeletionQueue = field(default_factory=DeletionQueue)
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS


@dataclass(frozen=True, slots=True)
class LogState:
    """The values of a log in the checkpoints of the data directory, and how the last process ended."""

    verification: Verification = Verification.FULL
    trusted_boot: bool = False
    """Whether the machine has been up since the log was written or last verified."""
    recovery_point: Offset = FIRST_OFFSET
    log_start_offset: Offset = FIRST_OFFSET
    high_watermark: Offset = FIRST_OFFSET
    cleaned_offset: Offset | None = None


def create_log(
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    environment: LogEnvironment,
    topic_id: uuid.UUID | None,
) -> UnifiedLog:
    """Makes an empty log in a new directory. Raises OSError."""
    try:
        os.mkdir(directory)
    except FileExistsError:
        with os.scandir(directory) as entries:
            if any(entry.name.endswith(".log") and entry.stat().st_size for entry in entries):
                raise  # the directory has records of a log that is not known
    try:
        if topic_id is not None:
            write_partition_metadata(directory, topic_id)
        segment = _new_segment(directory, FIRST_OFFSET, config, environment)
    except OSError:
        remove(directory)  # a file that cannot be removed is empty, and the next attempt uses it
        raise
    log = _assemble(directory, topic_partition, config, environment, [segment], LogOffsets(), FIRST_OFFSET, topic_id)
    log.files_made += 1
    log.watch_reads()
    return log


def load_log(
    directory: str, topic_partition: TopicPartition, config: LogConfig, environment: LogEnvironment, state: LogState
) -> UnifiedLog:
    """Opens an existing log directory. Raises OSError; UsageError for files that only another Kafka can read."""
    loader = _Loader(directory, config, environment, state)
    segments = loader.load_segments()
    end = loader.end_offset
    holes = loader.holes(segments)
    start = max(state.log_start_offset, segments[0].base_offset)
    if start > end:  # the log start offset is beyond the end: no records are left
        for segment in segments:
            _remove_segment(segment)
        segments, end = [_new_segment(directory, start, config, environment)], start
        loader.was_closed = False
    high_watermark = min(max(state.high_watermark, start), end)
    offsets = LogOffsets(start, high_watermark, high_watermark, end)
    topic_id = read_partition_metadata(directory)
    recovery_point = min(state.recovery_point, end)
    if loader.verified_from is not None:  # the rebuilt indexes are not on the device
        recovery_point = min(recovery_point, max(loader.verified_from, start))
    log = _assemble(directory, topic_partition, config, environment, segments, offsets, recovery_point, topic_id)
    if loader.was_closed:
        log.indexes_synced_to = log.active_segment.base_offset
    else:
        log.files_made += 1  # the last process, or the verification, may have changed names that no sync followed
    log.cleaned_offset = None if state.cleaned_offset is None else min(state.cleaned_offset, end)
    loader.restore_epochs(log.leader_epochs, segments, start)
    log.rebuild_producers(loader.verified_from)
    holes = [hole for hole in holes if hole.next_offset > start]
    if not all(hole.is_sure for hole in holes) and (config.compacted or was_compacted(segments)):
        holes = [hole for hole in holes if hole.is_sure]
    log.holes = tuple(sorted(holes))
    if (missing := log.missing) is not None:
        _log.error("%s is damaged: %s; what is left is served if no other replica has all", topic_partition, missing)
    _check_damage(log, loader)
    log.watch_reads()
    return log


def _check_damage(log: UnifiedLog, loader: "_Loader") -> None:
    """Notes what is damaged, and writes that to the disk for the next start. Checks all batches of a log that was
    damaged before: the disk may be mended. What was cut stays lost. Raises OSError."""
    found = loader.damage_found
    lost = [hole for hole in loader.lost if hole in log.holes]
    if not found and loader.mark is not None and not lost:
        parts = (each.why_damaged(each.slice(0, each.size), each.size) for each in log.segments if each.size)
        found = next(filter(None, parts), "")
    if found:
        log.damage.note(found)
    mark = mark_of(lost) or found
    if mark and f"{mark}\n" != loader.mark:
        write_mark(log.directory, mark)
    elif not mark and loader.mark is not None:
        os.unlink(f"{log.directory}/{MARK}")


def _assemble(
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    environment: LogEnvironment,
    segments: list[LogSegment],
    offsets: LogOffsets,
    recovery_point: Offset,
    topic_id: uuid.UUID | None,
) -> UnifiedLog:
    return UnifiedLog(
        directory,
        topic_partition,
        config,
        segments=segments,
        offsets=offsets,
        leader_epochs=LeaderEpochFileCache(f"{directory}/{EPOCH_CHECKPOINT}"),
        producers=ProducerStateManager(topic_partition, directory, environment.producer_expiration_ms),
        recovery_point=recovery_point,
        clock=environment.clock,
        disk=environment.disk,
        pool=environment.pool,
        deletions=environment.deletions,
        topic_id=topic_id,
    )


def _segment(directory: str, base_offset: Offset, config: LogConfig, environment: LogEnvironment) -> LogSegment:
    now_ms = environment.clock.wall_ms()
    return LogSegment(directory, base_offset, config, disk=environment.disk, pool=environment.pool, created_ms=now_ms)


def _new_segment(directory: str, base_offset: Offset, config: LogConfig, environment: LogEnvironment) -> LogSegment:
    segment = _segment(directory, base_offset, config, environment)
    segment.create(config.segment_bytes if config.preallocate else 0)
    return segment


def _remove_segment(segment: LogSegment) -> None:
    for path in segment.mark_deleted():
        remove(path)


def _first_offsets(segments: Sequence[LogSegment]) -> list[tuple[LeaderEpoch, Offset]]:
    """Returns the leader epochs of the batches with their first offsets, in the log's order. Reads only the segments in
    which one begins, and the last one."""
    starts = [next((header.partition_leader_epoch for _, header in segment.headers(0)), None) for segment in segments]
    found: list[tuple[LeaderEpoch, Offset]] = []
    for segment, epoch, following in zip(segments, starts, [*starts[1:], None], strict=True):
        for _, header in segment.headers(0):
            if not found or header.partition_leader_epoch != found[-1][0]:
                found.append((header.partition_leader_epoch, header.base_offset))
            if epoch == following:
                break
    return found


class _Loader:
    """Loads the segments of one directory and verifies them if necessary."""

    def __init__(self, directory: str, config: LogConfig, environment: LogEnvironment, state: LogState) -> None:
        self._directory = directory
        self._config = config
        self._environment = environment
        self._state = state
        self._epochs: list[tuple[LeaderEpoch, Offset]] = []
        """The leader epochs of the verified batches, each with its first offset and its last one; of a log that was
        closed the last one."""
        self._transaction_indexes: set[str] = set()
        self.mark = read_mark(directory)
        self.lost = holes_of(self.mark or "")
        """The holes at the log's end, now and when the mark was written."""
        self.damage_found = ""
        """The first damaged batch that was not cut off."""
        self._was_cut = False
        self._has_lost_a_batch = False
        self._is_end_unknown = False
        """Whether nothing is known of what follows a damaged batch of the last segment: it stays as it is."""
        self._was_up = state.trusted_boot or state.verification is Verification.TAIL
        self._kept_below = LONG_MAX if self._was_up or self.mark is not None else state.recovery_point
        """Below, no batch is cut off that has a valid one behind it."""
        self.was_closed = False
        """Whether the last process has closed the log: all of it is on the device."""
        self.end_offset = FIRST_OFFSET
        self.verified_from: Offset | None = None
        """Producer snapshots above this offset must not be used: the batches after it were verified."""

    def load_segments(self) -> list[LogSegment]:
        """Returns all segments, the last one active, and sets `end_offset` to the log's end."""
        segments = self._open_segments(self._base_offsets())
        if not segments:
            base_offset = self._state.log_start_offset
            self.end_offset = base_offset
            return [_new_segment(self._directory, base_offset, self._config, self._environment)]
        verification = self._state.verification
        if verification is Verification.NONE:
            end = self._checked_end(segments[-1])
            trusted_to = LONG_MAX if self._state.trusted_boot else self._state.recovery_point
            if end is not None and not end.rest and end.offset <= trusted_to:
                self.end_offset = end.offset
                self.was_closed = True
                if end.offset > segments[-1].base_offset:
                    self._epochs = [(end.leader_epoch, Offset(end.offset - 1))]
                return segments
            verification = Verification.FULL
        return self._verify(segments, verification)

    def restore_epochs(
        self, epochs: LeaderEpochFileCache, segments: Sequence[LogSegment], start_offset: Offset
    ) -> None:
        """Loads the leader epochs from the checkpoint. Takes those of all batches instead if it is damaged, or if it
        contradicts the verified ones: a power loss can do that to a file that was written anew, and it may be an old
        copy.

        The first epoch is moved up before segments are deleted, so one below the log's start is told.
        """
        is_whole = epochs.load()
        epochs.truncate_from_end(Offset(self.end_offset + 1))  # an epoch may have begun at the end, without a record
        if self._state.verification is not Verification.NONE:
            epochs.writes += 1  # the last process may have written it without a sync
        if not self._epochs and len(segments) > 1:  # nothing was verified: the active segment is empty
            end = self._checked_end(segments[-2], segments[-1].base_offset)
            if end is not None and end.leader_epoch != NO_LEADER_EPOCH:
                self._epochs.append((end.leader_epoch, Offset(end.offset - 1)))
        if self._epochs:
            self._epochs.append((self._epochs[-1][0], Offset(self.end_offset - 1)))
        if not is_whole or any(
            epochs.epoch_for(offset) != epoch for epoch, offset in self._epochs if offset >= start_offset
        ):
            try:
                starts = _first_offsets(segments)
            except OSError:
                if not is_whole:
                    raise
                known, verified = epochs.entries, self._epochs  # `_checked_end` says what cannot be read
                starts = [*(entry for entry in known if entry[1] < verified[0][1]), *verified]
            epochs.rebuild(starts, self.end_offset)
        first, base_offset = epochs.first_offset, segments[0].base_offset
        is_known = self._has_all and base_offset > self._state.log_start_offset
        if is_known and first is not None and first < base_offset:
            # Or a full disk did not take the epochs when retention had removed the segments.
            what = f"records may be missing before {segments[0].path('.log')}"
            _log.warning("%s", Hole(first, base_offset, what))
        epochs.truncate_from_start(start_offset)

    def _base_offsets(self) -> list[Offset]:
        names = os.listdir(self._directory)
        if any(name.endswith((SWAP_SUFFIX, CLEANED_SUFFIX)) for name in names):
            finish_swaps(self._directory, self._environment.disk)
            names = os.listdir(self._directory)
        offsets = sorted(Offset(int(name[:-4])) for name in names if name.endswith(".log") and name[:-4].isdigit())
        known = set(offsets)
        for name in names:
            path = f"{self._directory}/{name}"
            stem, suffix = os.path.splitext(name)
            if suffix == ".txnindex":
                self._transaction_indexes.add(stem)
            orphan = suffix in _INDEXES and stem.isdigit() and int(stem) not in known
            if suffix in _LEFTOVERS or orphan:
                remove(path)
        return offsets

    def _open_segments(self, base_offsets: list[Offset]) -> list[LogSegment]:
        segments = []
        for base_offset, following in zip(base_offsets, [*base_offsets[1:], None], strict=False):
            will_verify = self._is_to_verify(following, self._state.verification)
            self._check_transaction_index(base_offset)
            segment = _segment(self._directory, base_offset, self._config, self._environment)
            try:
                segment.load()
                if not will_verify:
                    with contextlib.suppress(OSError):  # `_checked_end` says so
                        self._check_time_index(segment)
            except CorruptIndex as error:
                if will_verify:  # the verification rebuilds them
                    self._clear_indexes(segment)
                else:
                    _log.warning("%s; rebuilding the indexes", error)
                    with contextlib.suppress(OSError, CorruptMessage):  # `_checked_end` says so
                        self._reindex(segment)
            segments.append(segment)
        self._check_format(segments)
        return segments

    def _check_time_index(self, segment: LogSegment) -> None:
        """Raises CorruptIndex for an empty index of a segment that begins with a timestamp; `check_end` looks at the
        last ones. One without timestamps has no entries."""
        if segment.size and not len(segment.time_index) and self._older_format(segment) is None:
            path = segment.path(".timeindex")
            if not os.path.exists(path) or segment.first_timestamp() >= 0:
                raise CorruptIndex(f"{path} is missing")

    def _check_transaction_index(self, base_offset: Offset) -> None:
        if f"{base_offset:020d}" not in self._transaction_indexes:
            return
        path = f"{self._directory}/{base_offset:020d}.txnindex"
        try:
            if not len(TransactionIndex.load(path, self._environment.disk)):
                raise CorruptTransactionIndex(f"{path} is empty")  # maybe since a truncation, maybe by a damage
        except CorruptTransactionIndex as error:
            _log.warning("%s; rebuilding it", error)
            os.unlink(path)
            self.verified_from = base_offset if self.verified_from is None else min(self.verified_from, base_offset)

    def _is_to_verify(self, following: Offset | None, verification: Verification) -> bool:
        """Returns whether a segment is verified. `following` is the base offset of the next one, None for the last."""
        if following is None:
            return verification is not Verification.NONE
        return verification is Verification.FULL and following > self._state.recovery_point

    def _check_format(self, segments: list[LogSegment]) -> None:
        """Raises UsageError for an older message format, which must not be truncated like a damaged log."""
        for segment in segments[-1:]:
            if (magic := self._older_format(segment)) is not None:
                raise DirectoryUnusable(
                    f"{segment.path('.log')} is in message format {magic}; brokers store format {MAGIC}: "
                    "copy the topic with a client of the Kafka that wrote it"
                )

    def _older_format(self, segment: LogSegment) -> int | None:
        """Returns Kafka's format 0 or 1 if a segment begins with a message in it. Nobody reads those here."""
        read, file = self._environment.disk.pread, segment.open_file()
        head = read(file.fd, _LEGACY_HEADER.size, 0)
        if len(head) < _LEGACY_HEADER.size or head[16] >= MAGIC:
            return None
        _, size, crc, magic = _LEGACY_HEADER.unpack(head)
        is_message = 4 < size <= segment.size and zlib.crc32(read(file.fd, size - 4, 16)) == crc
        return magic if is_message else None

    def _checked_end(self, segment: LogSegment, following: Offset | None = None) -> SegmentEnd | None:
        """Returns the end of a segment, and rebuilds indexes that contradict it. None if it cannot be read. `following`
        is the base offset of the next segment."""
        try:
            if following is not None and self._older_format(segment) is not None:
                return SegmentEnd(following, 0)
            try:
                return check_end(segment)
            except CorruptIndex as error:
                _log.warning("%s; rebuilding the indexes", error)
                self._reindex(segment)
                return check_end(segment)
        except (OSError, CorruptIndex, CorruptMessage) as error:
            _log.error("%s cannot be read: %s", segment.path(".log"), error)
            segment.max_timestamp = max(segment.max_timestamp, segment.created_ms)  # retention goes by it
            return None

    @property
    def _has_all(self) -> bool:
        """Whether all that the last process wrote should be there: the machine was up, or it was synced."""
        return self.was_closed or self._was_up

    def holes(self, segments: Sequence[LogSegment]) -> list[Hole]:
        """Returns what is missing between the segments, and at the end of the log."""
        state, end = self._state, self.end_offset
        ends = [self._checked_end(segment, after.base_offset) for segment, after in pairwise(segments)]
        holes = holes_between(segments, ends, state.cleaned_offset or FIRST_OFFSET)
        known = state.recovery_point
        if self._has_all:  # what a machine that goes down loses is not on the device, although others may have it
            known = max(known, state.high_watermark)
        if self._has_lost_a_batch or (self._was_cut and self.mark is not None and not self.lost):
            known = max(known, Offset(end + 1))  # or: what was found before may have been there
        if end < known:  # compaction leaves the end
            self.lost = with_hole(self.lost, Hole(end, known, f"{segments[-1].path('.log')} ends early"))
        return [*holes, *self.lost]

    def _verify(self, segments: list[LogSegment], verification: Verification) -> list[LogSegment]:
        expected = segments[0].base_offset
        ends = []
        for number, segment in enumerate(segments):
            active = number + 1 == len(segments)
            end = None if active else segments[number + 1].base_offset
            if end is not None and not self._is_to_verify(end, verification):
                expected = end
                ends.append(end)
                continue
            size = segment.size
            expected = max(expected, segment.base_offset)
            if verification is Verification.TAIL:
                expected = self._verify_tail(segment, expected)
            else:
                expected = self._verify_whole(segment, expected, end)
            ends.append(expected)
            if self._is_end_unknown:
                segment.seal()
                segments.append(_new_segment(self._directory, expected, self._config, self._environment))
                ends.append(expected)
                break
            if active:
                break
            segment.seal()
            if segment.size < size:
                for later in segments[number + 1 :]:
                    _log.warning("%s: removed, the segment before it was cut", later.path(".log"))
                    _remove_segment(later)
                segments = segments[: number + 1]
                break
        # when the machine goes down, new empty segments may be left while the records before them are lost
        while len(segments) > 1 and not segments[-1].size and ends[-2] < segments[-1].base_offset:
            _log.warning("%s: removed, it is empty and offsets are missing before it", segments[-1].path(".log"))
            _remove_segment(segments.pop())
            ends.pop()
        self.end_offset = ends[-1]
        return segments

    def _verify_whole(self, segment: LogSegment, expected: Offset, following: Offset | None = None) -> Offset:
        """Verifies all batches and rebuilds the indexes. Returns the offset after the last valid batch, or `following`,
        that of the next segment, if what is damaged at the end has to stay."""
        if self.verified_from is None or segment.base_offset < self.verified_from:
            self.verified_from = segment.base_offset
        self._clear_indexes(segment)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(segment.path(".txnindex"))
        # a sync may have failed: pages that are only in the page cache are not trusted
        file = segment.open_file()
        self._environment.disk.forget_cached(file.fd)
        return self._index_from(segment, 0, expected, following)

    def _verify_tail(self, segment: LogSegment, expected: Offset) -> Offset:
        """Verifies the last TAIL_BYTES and completes the indexes. Returns the offset after the last valid batch."""
        if segment.size <= TAIL_BYTES:
            self._clear_indexes(segment)
            return self._index_from(segment, 0, expected)
        last_offset, position = segment.offset_index.lookup_position(segment.size - TAIL_BYTES)
        if position == 0:
            self._clear_indexes(segment)
            return self._index_from(segment, 0, expected)
        found = next(segment.headers(position), None) if position > 0 else None
        # does the index fit the file?
        if found is None or found[1].last_offset != last_offset or found[1].base_offset < segment.base_offset:
            return self._verify_whole(segment, expected)
        header = found[1]
        self._truncate_indexes(segment, position)
        return self._index_from(segment, position, header.base_offset)

    def _index_from(
        self, segment: LogSegment, position: int, expected: Offset, following: Offset | None = None
    ) -> Offset:
        disk, file = self._environment.disk, segment.open_file()
        last = Offset(segment.base_offset + OFFSET_DELTA_MAX)
        start: int | None = position
        while start is not None:
            for at, header in scan_verified(disk, file.fd, start, segment.size):
                if not expected <= header.base_offset <= header.last_offset <= last:
                    break
                if header.base_offset > expected and is_batch_at(
                    disk, file.fd, at + header.size_bytes, segment.size, expected, Offset(header.base_offset - 1)
                ):
                    break  # its offset is damaged: the checksum does not cover it
                segment.note_batch(at, header)
                if not self._epochs or header.partition_leader_epoch != self._epochs[-1][0]:
                    self._epochs.extend((epoch, Offset(expected - 1)) for epoch, _ in self._epochs[-1:])
                    self._epochs.append((header.partition_leader_epoch, header.base_offset))
                expected = header.next_offset
                position = at + header.size_bytes
            if position == segment.size or expected >= self._kept_below:
                break
            start = find_batch(disk, file.fd, position, segment.size, expected, last)
            if start == segment.size and following is None:
                self._is_end_unknown = True
                following = offset_behind(disk, file.fd, position, segment.size, expected, last)
                following = max(following, self._state.recovery_point, self._state.high_watermark)
            if start is not None or following is not None:
                why = why_not_a_batch(disk, file.fd, position, segment.size)
                self.damage_found = self.damage_found or f"{segment.path('.log')}: byte {position}: {why}"
                segment.index_next()
            if start in (None, segment.size) and following is not None:
                return following
        if position < segment.size:
            data_end = end_of_data(disk, file.fd, position, segment.size)
            why = why_not_a_batch(disk, file.fd, position, segment.size) if data_end > position else "only zeros follow"
            # A process that is killed in a write leaves a part of a batch: this one was there as a whole.
            torn = header_at(disk, file.fd, position)
            self._has_lost_a_batch = self._was_up and torn is not None and position + torn.size_bytes <= data_end
            _log.warning(
                "%s: cut at byte %d, behind offset %d: %s; %d bytes are gone",
                segment.path(".log"),
                position,
                expected - 1,
                why,
                segment.size - position,
            )
            segment.size = position
            disk.ftruncate(file.fd, position)
            self._was_cut = True
        if (index := segment.transaction_index_if_any()) is not None:
            index.truncate_to(expected)
        return expected

    def _clear_indexes(self, segment: LogSegment) -> None:
        segment.offset_index.reset()
        segment.time_index.reset()
        segment.max_timestamp, segment.max_timestamp_offset = segment.time_index.last_entry()
        segment.configure(self._config)

    def _truncate_indexes(self, segment: LogSegment, position: int) -> None:
        """Keeps the index entries up to the one for the batch at `position`. The later batches are indexed again."""
        index = segment.offset_index
        entries = len(index)
        while entries and index.entry_at(entries - 1)[1] > position:
            entries -= 1
        index.keep(entries)
        segment.time_index.truncate_to(Offset(index.last_offset() + 1))
        segment.max_timestamp, segment.max_timestamp_offset = segment.time_index.last_entry()
        segment.configure(self._config)

    def _reindex(self, segment: LogSegment) -> None:
        """Rebuilds the indexes of a segment without verifying its batches. The time index gets its last entry, as when
        a segment is sealed: a start looks at it."""
        if not segment.rebuild_indexes():
            self.damage_found = self.damage_found or f"{segment.path('.log')}: a batch in it cannot be read"
        segment.configure(self._config)


ProgressCallback = Callable[[int, int, TopicPartition], None]
"""Called with the number of loaded logs, the number of all logs and the log that was loaded last."""
