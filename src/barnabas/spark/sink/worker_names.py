"""Names tasks for their transactional ids: no two live tasks share a name, and there are few names in all.

A transactional id is made of the name of a worker process and a number that goes up with each task. A worker process
runs one task at a time. The numbers begin again with each batch, when all transactions of the batch before have ended.

Spark's partition and attempt numbers would not do. When Spark repeats a stage because shuffled data are lost, attempts
count from 0 again while tasks of the first attempt still run. The next batch may also begin while a task of the last
one is still being killed. Of two tasks with the same id, the later one would abort the transaction of the earlier one,
even after the decision. Spark's task id is unique, but brokers would keep the ids of a week
(transactional.id.expiration.ms).

With workers that stay, a run uses at most as many ids for each worker as one batch has tasks. A new worker uses new
ids. Spark stops idle workers after a minute, so a query with batches further apart uses an id for each worker and
batch, and a query without spark.python.worker.reuse an id for each task.
"""

import os
import secrets
from typing import Final, NamedTuple

__all__ = ["WorkerNames", "WriteName", "next_task_name"]

_RUNS_MAX: Final = 64
"""The number of runs of queries that one process remembers."""
_NAME_BYTES: Final = 6


class WriteName(NamedTuple):
    """Identifies a batch of a run of a writer."""

    writer: str
    run: str
    batch: int


class _WorkerName:
    """The name of this process in a run, and the number of tasks of the run's newest batch."""

    def __init__(self, batch: int) -> None:
        self.name = secrets.token_urlsafe(_NAME_BYTES)
        self.batch = batch
        self.tasks = 0


class WorkerNames:
    """Holds the names that one process has in its runs."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], _WorkerName] = {}

    def next(self, write: WriteName) -> str:
        """Returns a name for one more task of the write. Only tasks of earlier batches may have had the name."""
        key = write.writer, write.run
        worker = self._names.pop(key, None) or _WorkerName(write.batch)
        while len(self._names) >= _RUNS_MAX:
            self._names.pop(next(iter(self._names)))  # if that run comes again, it gets a new name
        self._names[key] = worker
        if write.batch > worker.batch:  # a late task of an older batch must not reset the numbers
            worker.batch, worker.tasks = write.batch, 0
        worker.tasks += 1
        return f"{worker.name}.{worker.tasks - 1}"


_names = WorkerNames()


def next_task_name(write: WriteName) -> str:
    return _names.next(write)


def _forget() -> None:
    """Drops the names in a forked process, which must not share them with its parent."""
    global _names
    _names = WorkerNames()


os.register_at_fork(after_in_child=_forget)
