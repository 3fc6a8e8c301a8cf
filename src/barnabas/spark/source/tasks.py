"""What a task does: it reads ranges of offsets, and hands over Arrow batches in Spark's form.

A worker process serves many tasks. Connections and metadata stay with it, in this module.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from barnabas.errors import OffsetOutOfRange
from barnabas.spark.source.data_loss import OnLoss, lost
from barnabas.spark.source.planning import OffsetRange
from barnabas.spark.source.schema import Columns
from barnabas.spark.workers import TaskState, settle

if TYPE_CHECKING:
    import pyarrow

    from barnabas.client.partition_reader import PartitionReader

__all__ = ["RangePartition", "TaskRules", "read_ranges"]

_READERS_MAX: Final = 4
"""Clusters, or users, that one worker keeps connections for."""
_readers: "dict[tuple[tuple[str, str], ...], PartitionReader]" = {}


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: Sequence[OffsetRange]) -> None:
        self.wanted = tuple(wanted)


class TaskRules(TaskState):
    """What all tasks of a query need to know; it is pickled with each of them."""

    def __init__(
        self, client: Mapping[str, str], on_data_loss: OnLoss, fetch_timeout_ms: int, columns: Columns
    ) -> None:
        self.client = dict(client)
        self.on_data_loss = on_data_loss
        self.fetch_timeout_s = fetch_timeout_ms / 1000
        self.columns = columns


def read_ranges(rules: TaskRules, wanted: Sequence[OffsetRange]) -> "Iterator[pyarrow.RecordBatch]":
    """The task's batches. Raises DataLoss, and what the client raises."""
    settle()
    reader = _reader(rules.client)
    for each in wanted:
        yield from _read(reader, rules, each)


def _read(reader: "PartitionReader", rules: TaskRules, wanted: OffsetRange) -> "Iterator[pyarrow.RecordBatch]":
    columns = rules.columns
    while True:
        position = wanted.start
        batches = reader.read(
            wanted.partition, wanted.start, wanted.end, headers=columns.with_headers, timeout=rules.fetch_timeout_s
        )
        try:
            for batch in batches:
                position = batch.column("offset")[-1].as_py() + 1
                yield columns.convert(batch)
            return
        except OffsetOutOfRange:
            wanted = _behind_the_gap(reader, rules, wanted._replace(start=position))


def _behind_the_gap(reader: "PartitionReader", rules: TaskRules, wanted: OffsetRange) -> OffsetRange:
    """What is left of a range whose first offsets are gone. Raises DataLoss if the query is not to go on."""
    where = wanted.partition
    first, end = reader.bounds(where)
    if first > wanted.start:
        gone = OffsetRange(where, wanted.start, min(first, wanted.end))
        lost(rules.on_data_loss, [gone], f"the log begins at {first} now: retention or DeleteRecords took them")
        return wanted._replace(start=gone.end)
    gone = OffsetRange(where, max(wanted.start, end), wanted.end)
    lost(rules.on_data_loss, [gone], f"the log ends at {end} now: the topic was made again, or its leader lost records")
    return wanted._replace(end=min(wanted.end, end))


def _reader(client: Mapping[str, str]) -> "PartitionReader":
    from barnabas.client.partition_reader import PartitionReader  # who plans need not wait for it

    key = tuple(sorted(client.items()))
    found = _readers.get(key)
    if found is None:
        while len(_readers) >= _READERS_MAX:
            _readers.pop(next(iter(_readers))).close()
        found = _readers[key] = PartitionReader({"client.id": "barnabas-spark", **client})
    return found
