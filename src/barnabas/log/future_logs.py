"""The future logs of a broker: copies of logs in other data directories, which are to take the place of these logs.

A future log is in a directory of Kafka's name for it, `flights-3.<32 hex digits>-future`. The directory alone says that
the partition is to be moved: a start that finds it goes on with the copy.
"""

import contextlib
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaStorageError
from barnabas.log.directories.checkpoints import read_partition_metadata, write_partition_metadata
from barnabas.log.directories.data_directory import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    Belongs,
    DataDirectory,
    aside_directory_name,
    parse_directory_name,
)
from barnabas.log.log_loader import LogEnvironment, LogState, Verification, load_log
from barnabas.log.unified_log import UnifiedLog
from barnabas.types import FIRST_OFFSET, TopicPartition

__all__ = ["FutureLog", "FutureLogs"]

_FUTURE_NAME: Final = re.compile(r"(.+-\d+)\.[0-9a-f]{32}" + FUTURE_SUFFIX)
_NEW: Final = LogState(Verification.NONE, trusted_boot=True)

_log = logging.getLogger(__name__)

States = Callable[[TopicPartition], LogState]
CurrentLog = Callable[[TopicPartition], tuple[UnifiedLog, DataDirectory] | None]
"""Returns the current log of a partition and the data directory that it is in."""


class FutureLog:
    """The future log of a partition. `log` is None until it is opened."""

    __slots__ = ("directory", "home", "log", "state", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, home: DataDirectory, directory: str, state: LogState) -> None:
        self.topic_partition = topic_partition
        self.home = home
        self.directory = directory
        self.state = state
        self.log: UnifiedLog | None = None


class FutureLogs:
    """The future logs by partition, at most one of each."""

    def __init__(self, now_ms: Callable[[], int], delete: Callable[[str, int], None]) -> None:
        """`delete` is told the path of a directory that is to be removed, and when."""
        self._now_ms = now_ms
        self._delete = delete
        self._logs: dict[TopicPartition, FutureLog] = {}

    def __iter__(self) -> Iterator[FutureLog]:
        return iter(list(self._logs.values()))

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._logs

    def get(self, topic_partition: TopicPartition) -> FutureLog | None:
        return self._logs.get(topic_partition)

    def create(self, topic_partition: TopicPartition, home: DataDirectory, topic_id: uuid.UUID | None) -> FutureLog:
        """Makes the directory of a future log. Raises KafkaStorageError."""
        assert topic_partition not in self._logs, topic_partition
        directory = f"{home.path}/{aside_directory_name(topic_partition, FUTURE_SUFFIX)}"
        try:
            home.lower_checkpoints(topic_partition, FIRST_OFFSET)
            os.mkdir(directory)
            if topic_id is not None:
                write_partition_metadata(directory, topic_id)
        except OSError as error:
            self._delete(directory, self._now_ms())
            raise KafkaStorageError(f"{directory} cannot be made: {error.strerror}") from error
        future = self._logs[topic_partition] = FutureLog(topic_partition, home, directory, _NEW)
        return future

    def find(self, homes: Mapping[DataDirectory, States], current: CurrentLog, belongs: Belongs | None) -> None:
        """Finds the future logs of before the start, in the data directories with the states of their logs. Raises
        OSError.

        One that is of no use is removed. One whose current log is gone is put aside under Kafka's name for that: it has
        a part of the records.
        """
        for home, states in homes.items():
            for name in sorted(os.listdir(home.path)):
                found = _FUTURE_NAME.fullmatch(name)
                topic_partition = parse_directory_name(found[1]) if found else None
                if topic_partition is not None:
                    self._find(topic_partition, home, f"{home.path}/{name}", states, current(topic_partition), belongs)

    def _find(
        self,
        topic_partition: TopicPartition,
        home: DataDirectory,
        path: str,
        states: States,
        current: tuple[UnifiedLog, DataDirectory] | None,
        belongs: Belongs | None,
    ) -> None:
        topic_id = read_partition_metadata(path)
        if current is None and (belongs is None or belongs(topic_partition, topic_id)):
            aside = f"{home.path}/{aside_directory_name(topic_partition, STRAY_SUFFIX)}"
            os.rename(path, aside)
            _log.warning("%s: the log that this is a copy of is gone: renamed to %s", path, aside)
            return
        if current is None or current[1] is home or topic_partition in self._logs or topic_id != current[0].topic_id:
            self._discard(topic_partition, home, path)
            return
        state = states(topic_partition)
        is_complete = state.verification is not Verification.FULL and not current[1].is_old
        if is_complete and not current[0].config.compacted:
            self._logs[topic_partition] = FutureLog(topic_partition, home, path, state)
            return
        # Records may have been lost, or compacted away, from the current log since they were copied: begin anew.
        self._discard(topic_partition, home, path)
        try:
            self.create(topic_partition, home, topic_id)
        except KafkaStorageError as error:
            _log.warning("%s stays in %s: %s", topic_partition, current[1].path, error.message)

    def open(self, future: FutureLog, config: LogConfig, environment: LogEnvironment) -> UnifiedLog:
        """Opens a future log, or makes an empty one. Blocks; may run in any thread. Raises KafkaStorageError."""
        try:
            log = load_log(future.directory, future.topic_partition, config, environment, future.state)
        except OSError as error:
            raise KafkaStorageError(f"{future.directory} cannot be opened: {error.strerror}") from error
        future.log = log
        return log

    def remove(self, future: FutureLog) -> None:
        """Removes a future log from the list alone, if it is there."""
        if self._logs.get(future.topic_partition) is future:
            del self._logs[future.topic_partition]

    def drop(self, future: FutureLog) -> None:
        """Deletes a future log. Nobody may write to it any more. One that cannot be renamed is found at the next
        start."""
        self.remove(future)
        if future.log is not None:
            future.log.release()
        with contextlib.suppress(OSError):
            self._discard(future.topic_partition, future.home, future.directory)

    def _discard(self, topic_partition: TopicPartition, home: DataDirectory, path: str) -> None:
        deleted = f"{home.path}/{aside_directory_name(topic_partition, DELETE_SUFFIX)}"
        os.rename(path, deleted)
        self._delete(deleted, self._now_ms())

    def close(self, *, completely: bool) -> None:
        """Closes all files, `completely` or as a crash would."""
        for future in self._logs.values():
            if future.log is not None and completely:
                with contextlib.suppress(KafkaStorageError):  # the next start verifies more of it
                    future.log.close(flush=False)
            elif future.log is not None:
                future.log.release()
        self._logs.clear()
