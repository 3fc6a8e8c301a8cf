"""Moves replicas between the data directories of a broker, one after the other (AlterReplicaLogDirs).

A thread does what blocks, one piece at a time; it has no other work, so a slow target disk holds up nothing else. The
future directories are the list of the moves: a broker that finds some at its start goes on with them.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from barnabas.config.broker import BrokerConfig
from barnabas.errors import (
    BarnabasError,
    CorruptMessage,
    InvalidReplicaAssignment,
    LogDirNotFound,
    NotLeaderOrFollower,
    ReplicaNotAvailable,
)
from barnabas.log.future_logs import FutureLog
from barnabas.log.log_manager import LogManager
from barnabas.out_of_memory import end_if_out_of_memory
from barnabas.replication.log_dir_move import LogDirMove
from barnabas.replication.rate_limiter import RateLimiter
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.thread_pool import ThreadPool

__all__ = ["LogDirMoves"]

WAIT_MAX_S: Final = 1.0
"""After this time a change of the rate counts."""
CLEAN_UP_AGAIN_S: Final = 60.0
"""After this time a log is removed from its directory of before if that failed."""


class LogDirMoves:
    """Used on the event loop's thread."""

    def __init__(
        self,
        replicas: ReplicaManager,
        logs: LogManager,
        loop: asyncio.AbstractEventLoop,
        log: logging.Logger,
        *,
        config: Callable[[], BrokerConfig],
        run: Callable[[Coroutine[Any, Any, None]], object],
        logs_changed: Callable[[], None],
    ) -> None:
        """`config` returns the settings as they are now. `run` starts a coroutine. `logs_changed` is
        called when a move begins: the log must not be cleaned any more."""
        self._replicas = replicas
        self._logs = logs
        self._loop = loop
        self._log = log
        self._config = config
        self.limiter = RateLimiter(
            config().replica_alter_log_dirs_io_max_bytes_per_second,
            loop.time(),
            windows=config().alter_log_dirs_replication_quota_window_num,
            window_s=config().alter_log_dirs_replication_quota_window_size_seconds,
        )
        self._start = run
        self._logs_changed = logs_changed
        self._thread = ThreadPool(1, "barnabas-move")
        self._waiting: dict[FutureLog, None] = {}
        """The moves, the present one first."""
        self._stopped = False

    @property
    def is_busy(self) -> bool:
        """Whether a replica is being moved, or waits for that."""
        return bool(self._waiting)

    def resume(self) -> None:
        """Goes on with the moves that the last process has not completed."""
        for future in self._logs.futures:
            self._add(future)

    def move(self, topic: str, partition_index: int, path: str) -> None:
        """Begins to move a replica into the data directory at `path`, unless it is there or on its way. A move to
        another one is cancelled.

        A replica that this broker does not have yet is created there later. Raises LogDirNotFound, ReplicaNotAvailable
        or UnknownTopicOrPartition without the replica, InvalidReplicaAssignment for a cordoned directory,
        KafkaStorageError.
        """
        logs = self._logs
        target = logs.directory_at(path)
        if target is None:
            raise LogDirNotFound(f"{path} is no data directory of this broker")
        if target.path in logs.cordoned:
            raise InvalidReplicaAssignment(f"{path} takes no new replicas: cordoned.log.dirs names it")
        try:
            partition = self._replicas.replica_of(topic, partition_index)
        except BarnabasError as error:
            logs.prefer(topic, partition_index, target)
            if isinstance(error, NotLeaderOrFollower):
                raise ReplicaNotAvailable(f"this broker has no replica of {topic}-{partition_index}") from None
            raise
        topic_partition = partition.topic_partition
        future = logs.futures.get(topic_partition)
        if future is not None and future.home is not target:
            self._cancel(future)
            future = None
        if future is not None or logs.directory_of(topic_partition) is target:
            return
        partition.log.check_online()
        logs.drop_replaced(topic_partition)
        self._add(logs.futures.create(topic_partition, target, partition.topic_id))
        self._logs_changed()

    def _cancel(self, future: FutureLog) -> None:
        self._logs.futures.remove(future)
        if future is not next(iter(self._waiting), None):
            self._waiting.pop(future, None)
            self._logs.futures.drop(future)

    def _add(self, future: FutureLog) -> None:
        self._waiting[future] = None
        if len(self._waiting) == 1:
            self._start(self._run())

    async def _run(self) -> None:
        while self._waiting and not self._stopped:
            future = next(iter(self._waiting))
            await self._move(future)
            del self._waiting[future]

    async def _move(self, future: FutureLog) -> None:
        topic_partition, futures = future.topic_partition, self._logs.futures
        partition = self._replicas.get(*topic_partition)
        if partition is None or futures.get(topic_partition) is not future:
            futures.drop(future)
            return
        move = LogDirMove(partition, future, self._logs)
        try:
            for work in move.steps():
                before = move.bytes_copied
                await self._loop.run_in_executor(self._thread, work)
                await self._slow_down(move.bytes_copied - before)
                if self._stopped:
                    return
                if not move.is_in_place and futures.get(topic_partition) is not future:
                    break  # cancelled, or the replica was deleted
        except (BarnabasError, OSError) as error:
            if isinstance(error, CorruptMessage):
                partition.log.damage.note(f"{partition.log.directory}: {error}")
            self._report(move, future, str(error))
            if move.is_in_place:
                self._loop.call_later(CLEAN_UP_AGAIN_S, self._clean_up_again, move)
        except Exception as error:  # a bug must not end the other moves
            end_if_out_of_memory(error)
            self._log.exception("moving %s failed", topic_partition)
            self._report(move, future, repr(error))
        if not move.is_in_place:
            futures.drop(future)
        else:
            self._log.info("%s is in %s now", topic_partition, future.home.path)

    def _clean_up_again(self, move: LogDirMove) -> None:
        if not self._stopped:
            self._start(self._clean_up(move))

    async def _clean_up(self, move: LogDirMove) -> None:
        try:
            for work in move.clean_up():
                await self._loop.run_in_executor(self._thread, work)
                if self._stopped:
                    return
        except (BarnabasError, OSError):  # told before
            self._loop.call_later(CLEAN_UP_AGAIN_S, self._clean_up_again, move)

    async def _slow_down(self, copied: int) -> None:
        """Waits until more may be copied."""
        if not copied:
            return
        limiter, now = self.limiter, self._loop.time
        limiter.set_rate(self._config().replica_alter_log_dirs_io_max_bytes_per_second, now())
        limiter.take(copied, now())
        while not self._stopped and (wait_s := limiter.wait_s(now())) > 0:
            await asyncio.sleep(min(wait_s, WAIT_MAX_S))
            limiter.set_rate(self._config().replica_alter_log_dirs_io_max_bytes_per_second, now())

    def _report(self, move: LogDirMove, future: FutureLog, reason: str) -> None:
        if move.is_in_place:
            outcome = f"its log of before is not removed yet, tried again every {CLEAN_UP_AGAIN_S:.0f} s"
        else:
            outcome = f"it stays where it is and does not move to {future.home.path}"
        self._log.error("%s: %s: %s", future.topic_partition, outcome, reason)

    def close(self) -> None:
        """Ends the moves after the piece of work that is under way. A start goes on with them."""
        self._stopped = True
        self._thread.shutdown(wait=True, cancel_futures=True)
