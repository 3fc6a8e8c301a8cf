"""Shares one fsync among the appends of many requests (durability=fsync), which are acknowledged when it is done.

At a leader these are the appends of producers. At a follower they are those of its fetcher, which tells the leader of
them when they are on the disk.

While one round of fsyncs runs in its thread, new appends gather for the next round: the slower the disk, the larger the
groups.
"""

import asyncio
import logging
from concurrent.futures import Executor

from barnabas.errors import KafkaStorageError
from barnabas.log.flush import FlushTask
from barnabas.replication.partition import Partition

__all__ = ["GroupCommit"]

Round = list[tuple[Partition, FlushTask]]


class GroupCommit:
    """Called by a partition after each append. Only the sync itself runs in a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor, log: logging.Logger) -> None:
        self._loop = loop
        self._executor = executor
        self._log = log
        self._dirty: dict[Partition, None] = {}
        self._running = False

    def __call__(self, partition: Partition) -> None:
        self._dirty[partition] = None
        if not self._running:
            self._running = True
            self._loop.call_soon(self._begin_round)

    def _begin_round(self) -> None:
        self._running = False
        dirty, self._dirty = self._dirty, {}
        round_: Round = []
        for partition in dirty:
            if partition.is_retired:
                continue  # deleted meanwhile: its files are not ours to open any more
            try:
                task = partition.log.prepare_flush()
            except KafkaStorageError as error:
                self._failed(partition, error)
                continue
            if task is None:
                partition.flushed()
            else:
                round_.append((partition, task))
        if round_:
            self._running = True
            future = self._loop.run_in_executor(self._executor, _sync, round_)
            future.add_done_callback(lambda done: self._end_round(round_, done.exception()))

    def _end_round(self, round_: Round, bug: BaseException | None) -> None:
        for partition, task in round_:
            try:
                if bug is not None:
                    raise KafkaStorageError(f"{partition.topic_partition}: not synced: {bug!r}")
                is_durable = task.complete()
            except KafkaStorageError as error:
                self._failed(partition, error)
                continue
            if is_durable:
                partition.flushed()
            else:
                self._dirty[partition] = None
        self._begin_round()

    def _failed(self, partition: Partition, error: KafkaStorageError) -> None:
        """Fails the appends that wait for this commit."""
        self._log.error("%s", error)
        partition.flush_failed(error)


def _sync(round_: Round) -> None:
    """Runs the flushes in the thread."""
    for _, task in round_:
        task.run()
