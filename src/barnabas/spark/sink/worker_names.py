"""Transactional ids that no two live tasks share, and not one for each task.

Neither partition nor attempt is one: a stage that Spark begins anew, because what was shuffled is gone, counts attempts
from 0 again while tasks of its first attempt live on, and so does the next batch while a task of the last one is still
being killed. Whoever of two had an id last would abort what the other has written, even after it was decided. Spark's
own number of a task is one, but brokers would then keep all ids of a week.

A worker process does one task at a time, so ids are the process's: its name, and a number that goes up with each task
and begins anew with the next batch. That begins when all of the batch before has ended.

Brokers keep an id for a week (transactional.id.expiration.ms). A run with the same workers all the time has as many ids
as one batch had tasks for each of them at most. But a worker that is new has new ids: Spark ends idle ones after a
minute, so a query whose batches are further apart takes one for each worker and batch, and one without
spark.python.worker.reuse one for each task.
"""

import os
import secrets
from typing import Final, NamedTuple

__all__ = ["WorkerNames", "WriteName", "next_in_this_process"]

_WRITES_MAX: Final = 64
"""Runs of queries that one process remembers."""
_NAME_BYTES: Final = 6


class WriteName(NamedTuple):
    """Which batch of which run of which writer."""

    writer: str
    run: str
    batch: int


class _Used:
    """What a run has of a process: a name of its own, and how many tasks of its newest batch."""

    def __init__(self, batch: int) -> None:
        self.name = secrets.token_urlsafe(_NAME_BYTES)
        self.batch = batch
        self.tasks = 0


class WorkerNames:
    """Those of one process."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, str], _Used] = {}

    def next(self, write: WriteName) -> str:
        """For one more task of the write: what no other task has, but for those of batches before."""
        key = write.writer, write.run
        used = self._used.pop(key, None) or _Used(write.batch)
        while len(self._used) >= _WRITES_MAX:
            self._used.pop(next(iter(self._used)))  # should it come again, it has another name
        self._used[key] = used
        if write.batch > used.batch:  # a task of an older batch is one that is late, and must not be in the way
            used.batch, used.tasks = write.batch, 0
        used.tasks += 1
        return f"{used.name}.{used.tasks - 1}"


_names = WorkerNames()


def next_in_this_process(write: WriteName) -> str:
    return _names.next(write)


def _forget() -> None:
    """A fork is another process."""
    global _names
    _names = WorkerNames()


os.register_at_fork(after_in_child=_forget)
