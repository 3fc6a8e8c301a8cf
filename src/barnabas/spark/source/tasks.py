"""The tasks of a read: they read ranges of offsets and return Arrow batches in Spark's form.

A worker process serves many tasks. Its readers, with their connections and metadata, stay in this module.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from barnabas.errors import OffsetOutOfRange
from barnabas.spark.source.data_loss import OnLoss, lost
from barnabas.spark.source.planning import OffsetRange
from barnabas.spark.source.schema import Columns
from barnabas.spark.workers import TaskState, prepare_worker

if TYPE_CHECKING:
    import pyarrow

    from barnabas.client.partition_reader import PartitionReader

__all__ = ["RangePartition", "SourceTaskConfig", "read_ranges"]

_READERS_MAX: Final = 4
"""The number of clusters or users whose connections one worker keeps."""
_readers: "dict[tuple[tuple[str, str], ...], PartitionReader]" = {}


class RangePartition(InputPartition):
    """The ranges of one task."""

    def __init__(self, wanted: Sequence[OffsetRange]) -> None:
        self.wanted = tuple(wanted)


class SourceTaskConfig(TaskState):
    """The configuration of a query's tasks, which are pickled with each task."""

    def __init__(
        self, client: Mapping[str, str], on_data_loss: OnLoss, fetch_timeout_ms: int, columns: Columns
    ) -> None:
        self.client = dict(client)
        self.on_data_loss = on_data_loss
        self.fetch_timeout_s = fetch_timeout_ms / 1000
        self.columns = columns


def read_ranges(config: SourceTaskConfig, wanted: Sequence[OffsetRange]) -> "Iterator[pyarrow.RecordBatch]":
    """Yields the batches of a task. Raises DataLoss and the client's errors."""
    prepare_worker()
    reader = _reader(config.client)
    for each in wanted:
        yield from _read(reader, config, each)


def _read(reader: "PartitionReader", config: SourceTaskConfig, wanted: OffsetRange) -> "Iterator[pyarrow.RecordBatch]":
    columns = config.columns
    while True:
        position = wanted.start
        batches = reader.read(
            wanted.partition, wanted.start, wanted.end, headers=columns.with_headers, timeout=config.fetch_timeout_s
        )
        try:
            for batch in batches:
                position = batch.column("offset")[-1].as_py() + 1
                yield columns.convert(batch)
            return
        except OffsetOutOfRange:
            wanted = _without_lost_offsets(reader, config, wanted._replace(start=position))


def _without_lost_offsets(reader: "PartitionReader", config: SourceTaskConfig, wanted: OffsetRange) -> OffsetRange:
    """Returns the rest of a range whose first offsets are gone. Raises DataLoss if the query is not to go on."""
    partition = wanted.partition
    first, end = reader.bounds(partition)
    if first > wanted.start:
        gone = OffsetRange(partition, wanted.start, min(first, wanted.end))
        lost(config.on_data_loss, [gone], f"the log begins at {first} now: retention or DeleteRecords took them")
        return wanted._replace(start=gone.end)
    gone = OffsetRange(partition, max(wanted.start, end), wanted.end)
    lost(
        config.on_data_loss, [gone], f"the log ends at {end} now: the topic was made again, or its leader lost records"
    )
    return wanted._replace(end=min(wanted.end, end))


def _reader(client: Mapping[str, str]) -> "PartitionReader":
    from barnabas.client.partition_reader import PartitionReader  # planning on the driver does without this import

    key = tuple(sorted(client.items()))
    found = _readers.get(key)
    if found is None:
        while len(_readers) >= _READERS_MAX:
            _readers.pop(next(iter(_readers))).close()
        found = _readers[key] = PartitionReader({"client.id": "barnabas-spark", **client})
    return found
