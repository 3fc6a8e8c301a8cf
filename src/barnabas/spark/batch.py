"""Batch reads: everything from here to there, in as many tasks as asked for."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from barnabas.errors import UsageError
from barnabas.spark.lookup import Lookup
from barnabas.spark.loss import lost
from barnabas.spark.offsets import Plan
from barnabas.spark.options import SourceOptions
from barnabas.spark.planning import OffsetRange, split
from barnabas.spark.reading import RangePartition, TaskRules, read_range
from barnabas.spark.schema import Columns
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["BatchReader", "batch_reader"]

_NOTHING: Final = OffsetRange(TopicPartition("", 0), 0, 0)
"""Spark makes a partition of its own where there is none, and reads that."""


class BatchReader(DataSourceReader):
    """Reads ranges of offsets. Made where the query is planned, and pickled for the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = SourceOptions.parse(options, streaming=False)
        self._rules = TaskRules(
            self._options.client, self._options.on_data_loss, self._options.fetch_timeout_ms, Columns(schema)
        )

    def partitions(self) -> list[RangePartition]:
        with Lookup(self._options) as lookup:
            pieces = self._pieces(lookup)
        return [RangePartition(piece) for piece in pieces or [_NOTHING]]

    def _pieces(self, lookup: Lookup) -> list[OffsetRange]:
        limits = self._options.limits
        ranges = self._ranges(lookup)
        sizes = lookup.record_bytes([each.partition for each in ranges]) if limits.min_partitions else {}
        return split(ranges, Plan(limits.min_partitions, limits.max_records), sizes)

    def _ranges(self, lookup: Lookup) -> list[OffsetRange]:
        options = self._options
        partitions = lookup.topics().partitions
        start = lookup.resolve(options.starting, partitions)
        end = lookup.resolve(options.ending, partitions)
        if options.ending.kind == "offsets":
            end = self._reachable(end, lookup.latest(partitions))
        self._check_order(start, end)
        return [OffsetRange(where, start[where], end[where]) for where in partitions]

    def _reachable(
        self, wanted: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Not beyond the end of the log: nobody knows whether those records will ever be there. Raises DataLoss."""
        beyond = [OffsetRange(where, latest[where], end) for where, end in wanted.items() if end > latest[where]]
        if beyond:
            what = self._options.ending.option
            lost(self._options.on_data_loss, beyond, f"option {what} wants more than the log has (or has committed)")
        return {where: min(end, latest[where]) for where, end in wanted.items()}

    def _check_order(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
        """Only what was written down can be a mistake; two times may well have nothing between them."""
        starting, ending = self._options.starting, self._options.ending
        for where, first in start.items() if starting.kind == ending.kind == "offsets" else ():
            if first > end[where]:
                raise UsageError(
                    f"options {starting.option} and {ending.option}: {where} begins at {first}, behind its end"
                    f" {end[where]}; an end is the offset behind the last one to read"
                )

    def read(self, partition: RangePartition) -> "Iterator[pyarrow.RecordBatch]":
        if partition.wanted.size:
            yield from read_range(self._rules, partition.wanted)


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    return BatchReader(options, schema)
