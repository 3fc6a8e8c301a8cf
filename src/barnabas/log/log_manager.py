"""Opens, creates, deletes and maintains all logs of a broker.

The periodic functions are plain calls for a scheduler; those that may block on the device say so and have a variant
that returns the blocking part.
"""

import contextlib
import logging
import os
import re
import uuid
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

from barnabas.clock import Clock
from barnabas.config.log_config import LONG_MAX, LogConfig
from barnabas.errors import DirectoryUnusable, KafkaStorageError, UsageError
from barnabas.log.directories.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_CHECKPOINT,
    format_topic_id,
)
from barnabas.log.directories.data_directory import (
    DELETE_SUFFIX,
    FSYNC,
    STRAY_SUFFIX,
    WAYS_OUT,
    Belongs,
    DataDirectory,
    LogDirectory,
    aside_directory_name,
    read_boot_id,
)
from barnabas.log.directories.deletion_queue import DeletionQueue
from barnabas.log.directories.disk import Disk, ResourcePool, default_pool_limit, fsync_directory
from barnabas.log.directories.placement import DirectoryUse, choose_directory
from barnabas.log.directories.space_reserve import free_bytes
from barnabas.log.flush import FlushTask
from barnabas.log.future_logs import FutureLog, FutureLogs
from barnabas.log.holes import Hole
from barnabas.log.log_loader import LogEnvironment, ProgressCallback, Verification, create_log, load_log
from barnabas.log.moved_logs import LogInDirectory, choose_log, mark_replaced, replaced_logs, set_aside
from barnabas.log.producers.producer_state_manager import ALL_PRODUCERS_MAX, DEFAULT_PRODUCER_EXPIRATION_MS, fair_share
from barnabas.log.unified_log import UnifiedLog
from barnabas.out_of_memory import end_if_out_of_memory
from barnabas.thread_pool import ThreadPool
from barnabas.types import FIRST_OFFSET, BrokerId, Offset, TopicPartition

__all__ = ["Judge", "LogManager"]

_log = logging.getLogger(__name__)

_ROOM_MIN: Final = 16 * 1024**2
"""A directory with less free space gets no new log if another one has more."""
_PREFERRED_MAX: Final = 10_000
"""The number of partitions without a log whose directory is remembered. Clients may name any."""

Judge = Callable[[Mapping[TopicPartition, UnifiedLog]], None]
"""Raises UsageError if these logs must not be used by this start."""


class LogManager:
    """The logs by partition. `startup` is called first, `shutdown` last.

    In between all calls are on one thread, except for those that say so, and the checkpoints, which may run in any.
    """

    def __init__(
        self,
        data_dirs: Sequence[str | os.PathLike[str]],
        clock: Clock,
        *,
        disk: Disk | None = None,
        boot_id: str | None = None,
        open_files_max: int | None = None,
        producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
        recovery_threads: int = 2,
        durability: str = "page-cache",
    ) -> None:
        assert data_dirs, "a broker needs a data directory"
        self.directories = [DataDirectory(os.fspath(path)) for path in data_dirs]
        self.cordoned: Container[str] = ()
        """The paths of those that get no new logs as long as there are others."""
        self.lost_logs: dict[TopicPartition, Hole] = {}
        """The logs that are made anew although they had records, and what these were. Set before `startup`."""
        self._clock = clock
        self._boot_id = read_boot_id() if boot_id is None else boot_id
        self._recovery_threads = recovery_threads
        self._durability = durability
        self._deletions = DeletionQueue()
        self._environment = LogEnvironment(
            clock,
            disk or Disk(),
            ResourcePool(open_files_max or default_pool_limit),
            self._deletions,
            producer_expiration_ms,
        )
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self._home: dict[TopicPartition, DataDirectory] = {}
        self._counts: Counter[DataDirectory] = Counter()
        """The number of logs in each directory."""
        self._preferred: dict[TopicPartition, DataDirectory] = {}
        self._replaced: dict[TopicPartition, LogInDirectory] = {}
        """The logs that were moved, in the directory of before, while the new ones are not on the disk."""
        self.futures = FutureLogs(clock.wall_ms, self._deletions.add)

    # -- start and stop ------------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        """The cluster id in meta.properties, known after `startup`."""
        return self.directories[0].cluster_id

    def claim_directories(self) -> None:
        """Locks the data directories that a broker has used before and reads their ids. `startup` opens them all.

        Raises UsageError where another broker uses one of them, or two have the same id.
        """
        try:
            for directory in self.directories:
                directory.claim()
            self._check_ids_differ()
        except UsageError:
            self.release_directories()
            raise

    def _check_ids_differ(self) -> None:
        by_id: dict[uuid.UUID, str] = {}
        for directory in self.directories:
            if directory.directory_id is None:
                continue
            other = by_id.setdefault(directory.directory_id, directory.path)
            if other != directory.path:
                raise DirectoryUnusable(
                    f"log.dirs: {other} and {directory.path} have the same directory.id "
                    f"{format_topic_id(directory.directory_id)} in {META_PROPERTIES}: one is a copy of the other; name "
                    "only one of them"
                )

    @property
    def may_have_lost_records(self) -> bool:
        """Whether records that were acknowledged may be missing, because the machine went down. Known after
        `startup`."""
        return any(directory.may_have_lost_records for directory in self.directories)

    def directory_paths(self) -> dict[uuid.UUID, str]:
        """Returns the path of each data directory by its id, known after `startup`."""
        return {d.directory_id: os.path.realpath(d.path) for d in self.directories if d.directory_id is not None}

    def release_directories(self) -> None:
        for directory in self.directories:
            directory.unlock()

    def startup(
        self,
        config_for: Callable[[str], LogConfig],
        *,
        node_id: BrokerId,
        cluster_id: str | None = None,
        belongs: Belongs | None = None,
        judge: Judge = lambda _: None,
        progress: ProgressCallback | None = None,
        tells_losses: bool = False,
    ) -> None:
        """Locks the directories, opens all logs and recovers them after a crash. Raises UsageError.

        `config_for` gives a topic's settings by its name. Logs that `belongs` says no to are put aside, not opened, if
        `judge` does not raise UsageError for those that are.
        Without a `cluster_id` the one of an existing directory holds, or a new one is made. With `tells_losses`,
        `note_registration` is called before the first record is written.
        """
        self.claim_directories()
        try:
            for directory in self.directories:
                directory.open(cluster_id=cluster_id, node_id=node_id)
                cluster_id = directory.cluster_id
            self._load_all(config_for, belongs, judge, progress)
            for directory in self.directories:
                if directory.has_checkpoints:
                    # Entries of logs that were deleted or truncated would be taken for those of later records there.
                    self._write_all_checkpoints(directory)
            for directory in self.directories:
                if not (tells_losses and directory.may_have_lost_records):
                    self._mark_running(directory)
        except OSError as error:
            self.abandon()
            raise self.unusable(error) from error
        except BaseException:
            self.abandon()
            raise

    def note_next_registration(self, next_id: str, recorded: str) -> None:
        """Notes in each directory which registration is about to be made. Raises UsageError."""
        try:
            for directory in self.directories:
                directory.note_next_registration(next_id, recorded)
        except OSError as error:
            raise self.unusable(error) from error

    def note_registration(self, broker_epoch: int, *, accepted: bool = False) -> None:
        """Notes in each directory that this registration was made, and that others know which records may have been
        lost: until then the next start says so again. Those that the operator has `accepted` follow by a call of their
        own. Raises UsageError."""
        try:
            for directory in self.directories:
                if directory.is_accepted is not accepted:
                    continue
                if directory.may_have_lost_records:
                    self._mark_running(directory)
                directory.note_registration(broker_epoch)
        except OSError as error:
            raise self.unusable(error) from error
        except KafkaStorageError as error:
            raise DirectoryUnusable(f"{error.message}; make room or mend the disk, then start again") from error

    def _mark_running(self, directory: DataDirectory) -> None:
        if self._durability == FSYNC and directory.may_have_unsynced_records:
            # acknowledged before the setting: from now on nobody will say that they may be lost
            for topic_partition, log in self._logs.items():
                if self._home[topic_partition] is directory:
                    log.flush()
        directory.mark_running(self._boot_id, self._durability)

    def unusable(self, error: OSError) -> DirectoryUnusable:
        """Returns the error of a start for one of the operating system."""
        way_out = WAYS_OUT.get(error.errno or 0, "mend it, or choose another with --data-dir")
        return DirectoryUnusable(
            f"{error.filename or self.directories[0].path} cannot be used: {error.strerror}; {way_out}"
        )

    def abandon(self) -> None:
        """Closes all files and releases the directories without writing anything."""
        for log in self._logs.values():
            log.release()
        self._logs.clear()
        self.futures.close(completely=False)
        self.release_directories()

    def _load_all(
        self,
        config_for: Callable[[str], LogConfig],
        belongs: Belongs | None,
        judge: Judge,
        progress: ProgressCallback | None,
    ) -> None:
        jobs: list[tuple[TopicPartition, str, DataDirectory]] = []
        unused: list[tuple[DataDirectory, LogDirectory, str]] = []
        states = {directory: directory.states(self._boot_id) for directory in self.directories}
        newer: set[TopicPartition] = set()
        for directory in sorted(self.directories, key=lambda directory: directory.is_old):
            found, strays = directory.log_directories(belongs)
            unused += [(directory, log, "is of no topic that this broker has") for log in strays]
            if directory.is_old:
                for old in [old for old in found if old.topic_partition in newer]:
                    unused.append((directory, old, "is older than the log of this partition in another directory"))
                    found.remove(old)
            else:
                newer.update(log.topic_partition for log in found)
            jobs += [(tp, path, directory) for tp, path in found]
        current = [(tp, directory) for tp, _, directory in jobs]
        for directory in self.directories:
            jobs += [(tp, path, directory) for tp, path in replaced_logs(directory, current)]

        def load(job: tuple[TopicPartition, str, DataDirectory]) -> UnifiedLog:
            tp, path, directory = job
            return load_log(path, tp, config_for(tp.topic), self._environment, states[directory](tp))

        with contextlib.ExitStack() as pools:
            loads: dict[DataDirectory, Iterator[UnifiedLog]] = {}
            for directory in self.directories:
                run: Callable[..., Iterator[UnifiedLog]] = map
                if directory.is_cold and (self._recovery_threads > 1 or len(self.directories) > 1):
                    run = pools.enter_context(ThreadPool(self._recovery_threads, "barnabas-recovery")).map
                loads[directory] = run(load, [job for job in jobs if job[2] is directory])
            for tp, _, directory in jobs:
                log = next(loads[directory])
                loaded = LogInDirectory(log, directory)
                if tp in self._logs:
                    verifications = {states[each](tp).verification for each in (directory, self._home[tp])}
                    other = LogInDirectory(self._logs[tp], self._home[tp])
                    loaded = choose_log(other, loaded, power_was_lost=Verification.FULL in verifications)
                self._place(*loaded)
                if progress is not None:
                    progress(len(self._logs), len(jobs), tp)
        judge(self._logs)
        for directory, unused_log, why in unused:
            directory.put_aside(unused_log, why)
        self.futures.find(states, self._current, belongs)
        for directory in self.directories:
            for path in directory.deleted_directories():
                self._deletions.add(path, self._clock.wall_ms())

    def _current(self, topic_partition: TopicPartition) -> LogInDirectory | None:
        log = self._logs.get(topic_partition)
        return None if log is None else LogInDirectory(log, self._home[topic_partition])

    def _place(self, log: UnifiedLog, home: DataDirectory) -> None:
        topic_partition = log.topic_partition
        if topic_partition in self._home:
            self._counts[self._home[topic_partition]] -= 1
        self._logs[topic_partition], self._home[topic_partition] = log, home
        self._counts[home] += 1
        log.lower_checkpoints = partial(home.lower_checkpoints, topic_partition)

    def shutdown(self, *, flush: bool = True, broker_epoch: int = -1) -> None:
        """Closes all logs and records that in the directories. Blocks; with `flush` all records are on the device
        afterwards.

        Without it (tests) the logs stay trusted until the machine goes down. Raises KafkaStorageError after all that
        could be closed is closed; a directory where that failed is not marked as clean.
        """
        failures: dict[DataDirectory, KafkaStorageError] = {}
        self.futures.close(completely=True)
        for topic_partition, log in self._logs.items():
            home = self._home[topic_partition]
            try:
                log.close(flush=flush)
            except KafkaStorageError as error:
                failures[home] = error
            except Exception as error:  # a bug in one log must not leave the others open
                end_if_out_of_memory(error)
                _log.exception("closing %s failed", log.topic_partition)
                failures[home] = KafkaStorageError(f"{log.topic_partition}: {error!r}")
        try:
            for directory in self.directories:
                if directory in failures:
                    continue  # the others are clean
                try:
                    if flush:
                        fsync_directory(directory.path)  # the names of the logs
                    self._write_all_checkpoints(directory)
                    directory.mark_clean(broker_epoch)
                except OSError as error:
                    failures[directory] = KafkaStorageError(f"{error.filename}: {error.strerror}")
        finally:
            self.release_directories()
        for failure in failures.values():
            raise failure

    # -- logs ----------------------------------------------------------------------------------------------------------

    @property
    def logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        return self._logs

    @property
    def damaged(self) -> dict[TopicPartition, str]:
        """The logs that lack records, and which: they must not lead while a replica that is in sync has all."""
        return {tp: missing for tp, log in self._logs.items() if (missing := log.missing) is not None}

    def get(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        return self._logs.get(topic_partition)

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID | None,
        config: LogConfig,
        *,
        replica_position: int | None = None,
    ) -> UnifiedLog:
        """Returns the log, and creates it in the preferred directory or in the one that `choose_directory` names.
        Raises KafkaStorageError."""
        log = self._logs.get(topic_partition)
        if log is not None:
            log.config = config
            if topic_id is not None and log.topic_id is None:
                self._set_topic_id(log, topic_id)
            return log
        preferred = self._preferred.pop(topic_partition, None)  # where it fails, the next try may be elsewhere
        directory = preferred or self.choose_directory(topic_partition, replica_position)
        path = f"{directory.path}/{topic_partition}"
        lost = self.lost_logs.get(topic_partition)
        try:
            if lost is None:
                self._forget_checkpoints(topic_partition, directory)
            log = create_log(path, topic_partition, config, self._environment, topic_id)
            if lost is not None:  # the checkpoints tell of it until the log does
                log.note_lost(lost)
                self._forget_checkpoints(topic_partition, directory)
        except OSError as error:
            raise KafkaStorageError(f"{path} cannot be made: {error.strerror}") from error
        self.lost_logs.pop(topic_partition, None)
        self._place(log, directory)
        return log

    def _forget_checkpoints(self, topic_partition: TopicPartition, directory: DataDirectory) -> None:
        """Removes the offsets of former logs of a partition from the checkpoints. Raises OSError."""
        for each in self.directories:
            each.vanished.pop(topic_partition, None)
        # entries of other deleted logs go with it, so that a topic with many partitions waits for one sync
        directory.lower_checkpoints(topic_partition, FIRST_OFFSET, keep=partial(self._is_known_in, directory))

    def _is_known_in(self, directory: DataDirectory, topic_partition: TopicPartition) -> bool:
        return topic_partition in directory.vanished or self._has_log_in(directory, topic_partition)

    def _has_log_in(self, directory: DataDirectory, topic_partition: TopicPartition) -> bool:
        replaced = self._replaced.get(topic_partition)
        return self._home.get(topic_partition) is directory or (replaced is not None and replaced.home is directory)

    def _set_topic_id(self, log: UnifiedLog, topic_id: uuid.UUID) -> None:
        try:
            log.set_topic_id(topic_id)
        except OSError as error:
            raise KafkaStorageError(f"{log.directory}: {error.strerror}") from error

    def choose_directory(
        self,
        topic_partition: TopicPartition,
        replica_position: int | None,
        *,
        room: int = _ROOM_MIN,
        anew: bool = False,
    ) -> DataDirectory:
        """Returns the directory for a log that needs `room`: one that has it, if there is any. `anew` is for a log that
        is damaged where it is: on another disk, if there is one with room."""
        if len(self.directories) == 1:
            return self.directories[0]
        usable = [
            not each.has_failed and each.path not in self.cordoned and free_bytes(each.path) >= room
            for each in self.directories
        ]
        if anew:
            device = self._home[topic_partition].device
            elsewhere = [known and each.device != device for known, each in zip(usable, self.directories, strict=True)]
            usable = elsewhere if any(elsewhere) else usable
        uses = [
            DirectoryUse(each.device, self._counts[each], is_usable)
            for each, is_usable in zip(self.directories, usable, strict=True)
        ]
        return self.directories[choose_directory(topic_partition, replica_position, uses)]

    def aside(self, topic_partition: TopicPartition) -> str:
        """Returns the directory of a log of this partition that was put aside; '' if there is none. Raises OSError."""
        unique = "0" * 32
        before, after = aside_directory_name(topic_partition, STRAY_SUFFIX, uuid.UUID(unique)).rsplit(unique, 1)
        known = re.compile(re.escape(before) + "[0-9a-f]{32}" + re.escape(after))
        usable = (each.path for each in self.directories if not each.has_failed)
        names = ((path, name) for path in usable for name in os.listdir(path))
        return next((f"{path}/{name}" for path, name in names if known.fullmatch(name)), "")

    def delete(self, topic_partition: TopicPartition) -> None:
        """Deletes a log now; its files are removed after file.delete.delay.ms. Raises KafkaStorageError.

        Slices of it that are being sent stay readable.
        """
        self._delete_later(self._take_out(topic_partition, DELETE_SUFFIX))

    def put_aside(self, topic_partition: TopicPartition) -> str:
        """Puts a log aside under Kafka's name for such ones, `-stray`, and keeps its records. Returns the directory.
        Raises KafkaStorageError."""
        return self._take_out(topic_partition, STRAY_SUFFIX).directory

    def _take_out(self, topic_partition: TopicPartition, suffix: str) -> UnifiedLog:
        self.drop_replaced(topic_partition)
        log = self._logs[topic_partition]
        self._set_aside(LogInDirectory(log, self._home[topic_partition]), suffix)
        del self._logs[topic_partition]
        self._counts[self._home.pop(topic_partition)] -= 1
        future = self.futures.get(topic_partition)
        if future is not None:
            self.futures.remove(future)
        return log

    def _set_aside(self, former: LogInDirectory, suffix: str) -> None:
        log, path = former.log, former.log.directory
        try:
            set_aside(*former, suffix)
        except OSError as error:
            raise KafkaStorageError(f"{path} cannot be renamed: {error.strerror}") from error
        self._deletions.rename_below(path, log.directory)

    def _delete_later(self, log: UnifiedLog) -> None:
        self._deletions.add(log.directory, self._clock.wall_ms() + log.config.file_delete_delay_ms)

    # -- moves between directories -------------------------------------------------------------------------------------

    def directory_at(self, path: str) -> DataDirectory | None:
        """Returns the data directory at a path; None if there is none."""
        path = os.path.normpath(path)
        return next((directory for directory in self.directories if directory.path == path), None)

    def prefer(self, topic: str, partition_index: int, directory: DataDirectory) -> None:
        """Remembers where the log of a partition is to be created."""
        topic_partition = TopicPartition(topic, partition_index)
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = directory
        if len(self._preferred) > _PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]

    def open_future(self, future: FutureLog, config: LogConfig) -> UnifiedLog:
        """Opens a future log, or makes an empty one. Blocks; safe in any thread. Raises KafkaStorageError."""
        return self.futures.open(future, config, self._environment)

    def move_into_place(self, future: FutureLog) -> None:
        """Makes a future log with all records the current one, by one rename. Raises KafkaStorageError, and has then
        changed nothing.

        The log of before stays until `drop_replaced`: it has records that are not on the disk here.
        """
        topic_partition, log = future.topic_partition, future.log
        assert log is not None, future.directory
        path = f"{future.home.path}/{topic_partition}"
        try:
            os.rename(future.directory, path)
        except OSError as error:
            raise KafkaStorageError(f"{future.directory} cannot be renamed: {error.strerror}") from error
        self.futures.remove(future)
        self._deletions.rename_below(future.directory, path)
        log.rename_directory(path)
        self._replaced[topic_partition] = LogInDirectory(self._logs[topic_partition], self._home[topic_partition])
        self._place(log, future.home)

    def mark_replaced(self, topic_partition: TopicPartition) -> None:
        """Takes the name from the log of before a move, if there is one. Blocks for syncs; safe in any thread. Raises
        OSError."""
        replaced = self._replaced.get(topic_partition)
        if replaced is not None:
            before = replaced.log.directory
            try:
                mark_replaced(replaced, self._home[topic_partition])
            finally:
                self._deletions.rename_below(before, replaced.log.directory)

    def drop_replaced(self, topic_partition: TopicPartition) -> None:
        """Deletes the log of before a move, if there is one. May block; safe in any thread. Raises
        KafkaStorageError."""
        replaced = self._replaced.pop(topic_partition, None)
        if replaced is None:
            return
        try:
            self._set_aside(replaced, DELETE_SUFFIX)
        except KafkaStorageError:
            self._replaced[topic_partition] = replaced
            raise
        self._delete_later(replaced.log)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Applies changed settings to the logs of a topic."""
        for tp, log in self._logs.items():
            if tp.topic == topic:
                log.config = config

    def directory_of(self, topic_partition: TopicPartition) -> DataDirectory:
        """Returns the data directory of the log. Raises KeyError if there is no such log."""
        return self._home[topic_partition]

    # -- from time to time ---------------------------------------------------------------------------------------------

    def cleanup_logs(self, now_ms: int, *, busy: Container[TopicPartition] = ()) -> int:
        """Applies retention to all logs (log.retention.check.interval.ms). Returns the number of deleted segments.

        Those that are `busy`, being cleaned, wait for the next time. What fails for one log is reported and does not
        keep the others from it.
        """
        dropped = 0
        for log in list(self._logs.values()):
            if log.topic_partition in busy:
                continue
            try:
                dropped += log.delete_old_segments(now_ms)
            except KafkaStorageError as error:
                _log.error("retention: %s", error)
        return dropped

    def discard_files(self, paths: Iterable[str]) -> None:
        """Hands files over to the thread that removes them."""
        for path in paths:
            self._deletions.add(path, self._clock.wall_ms())

    def remove_deleted(self, now_ms: int) -> int:
        """Removes files whose delay has passed. May block for large files; safe in any thread."""
        return self._deletions.remove_due(now_ms)

    def set_producer_expiration(self, expiration_ms: int) -> None:
        """Sets producer.id.expiration.ms for the next `expire_producers`."""
        self._environment = replace(self._environment, producer_expiration_ms=expiration_ms)
        for log in self._logs.values():
            log.producers.expiration_ms = expiration_ms

    def expire_producers(self, now_ms: int) -> int:
        """Removes producers that have been idle for producer.id.expiration.ms."""
        return sum(log.producers.remove_expired(now_ms) for log in self._logs.values())

    def bound_producers(self) -> None:
        """Removes producers from the logs that have most of them if all logs together have too many."""
        counts = [len(log.producers.producers) for log in self._logs.values()]
        if sum(counts) > ALL_PRODUCERS_MAX:
            share = fair_share(counts, ALL_PRODUCERS_MAX)
            for log in self._logs.values():
                log.producers.forget_oldest(share)

    def collect_flushes(self, now_ms: int) -> list[FlushTask]:
        """Returns the flushes that are due: of rolled segments and of logs whose flush.ms has passed; not of offline
        logs. Writes leader epochs that a disk has refused.

        Run the tasks in any thread, then `complete` them here. What fails for one log is reported and does not keep the
        others from it.
        """
        tasks = []
        for log in self._logs.values():
            flush_ms = log.config.flush_ms
            with contextlib.suppress(OSError):  # the next time
                log.leader_epochs.write_if_dirty()
            due = flush_ms != LONG_MAX and now_ms - log.last_flush_ms >= flush_ms
            up_to = log.log_end_offset if due else log.active_segment.base_offset
            if up_to <= log.flush_point or log.offline_reason is not None:
                continue
            try:
                task = log.prepare_flush(up_to)
            except KafkaStorageError as error:
                _log.error("flush: %s", error)
                continue
            if task is not None:
                tasks.append(task)
        return tasks

    def flush_dirty_logs(self, now_ms: int) -> int:
        """Runs the flushes that are due and blocks. Returns their number. Raises KafkaStorageError."""
        tasks = self.collect_flushes(now_ms)
        for task in tasks:
            task.run()
            task.complete()
        return len(tasks)

    def write_checkpoints(self, directory: DataDirectory) -> None:
        """Writes the checkpoints of a directory that have changed, but for the cleaned offsets. Blocks for syncs; safe
        in any thread. Raises OSError."""
        for checkpoint in (_LOG_START_OFFSETS, _HIGH_WATERMARKS, _RECOVERY_POINTS):
            self._write_checkpoint(checkpoint, directory)

    def _write_all_checkpoints(self, directory: DataDirectory) -> None:
        self.write_checkpoints(directory)
        self._write_checkpoint(_CLEANED_OFFSETS, directory)

    def checkpoint_recovery_points(self) -> None:
        """Writes the recovery points if they have changed. Blocks for a sync. Raises OSError."""
        self._checkpoint(_RECOVERY_POINTS)

    def checkpoint_log_start_offsets(self) -> None:
        """Writes the log start offsets that are within a segment. Blocks for a sync. Raises OSError."""
        self._checkpoint(_LOG_START_OFFSETS)

    def checkpoint_high_watermarks(self) -> None:
        """Writes the high watermarks. Raises OSError."""
        self._checkpoint(_HIGH_WATERMARKS)

    def checkpoint_cleaned_offsets(self, *, before: Callable[[str], None] = lambda _: None) -> None:
        """Writes the cleaned offsets if they have changed. Blocks for a sync. Raises OSError.

        `before` is called before each write, when its offsets are known, with the path of the data directory.
        """
        self._checkpoint(_CLEANED_OFFSETS, before)

    def _checkpoint(self, checkpoint: "_Checkpoint", before: Callable[[str], None] = lambda _: None) -> None:
        failure: OSError | None = None
        for directory in self.directories:
            try:
                self._write_checkpoint(checkpoint, directory, before)
            except OSError as error:  # the other directories are on other disks
                failure = error
        if failure is not None:
            raise failure

    def _write_checkpoint(
        self, checkpoint: "_Checkpoint", directory: DataDirectory, before: Callable[[str], None] = lambda _: None
    ) -> None:
        def offsets() -> dict[TopicPartition, Offset]:
            # Copies: this may run beside the thread that creates, moves and deletes logs.
            replaced = list(self._replaced.values())
            logs = [LogInDirectory(log, home) for tp, log in list(self._logs.items()) if (home := self._home.get(tp))]
            found = (
                (log.topic_partition, checkpoint.value(log)) for log, home in (*replaced, *logs) if home is directory
            )
            vanished = directory.vanished.copy() if checkpoint is _HIGH_WATERMARKS else {}
            return vanished | {tp: offset for tp, offset in found if offset is not None}

        directory.write_checkpoint(
            checkpoint.name, offsets, sync=checkpoint.sync, before=partial(before, directory.path)
        )


class _Checkpoint(NamedTuple):
    name: str
    value: Callable[[UnifiedLog], Offset | None]
    sync: bool


def _start_within_segment(log: UnifiedLog) -> Offset | None:
    is_within = log.has_undeleted or log.log_start_offset > log.segments[0].base_offset
    return log.log_start_offset if is_within else None


_RECOVERY_POINTS: Final = _Checkpoint(RECOVERY_CHECKPOINT, attrgetter("recovery_point"), sync=True)
_LOG_START_OFFSETS: Final = _Checkpoint(LOG_START_CHECKPOINT, _start_within_segment, sync=True)
_HIGH_WATERMARKS: Final = _Checkpoint(HIGH_WATERMARK_CHECKPOINT, attrgetter("high_watermark"), sync=False)
_CLEANED_OFFSETS: Final = _Checkpoint(CLEANER_CHECKPOINT, attrgetter("cleaned_offset"), sync=True)
