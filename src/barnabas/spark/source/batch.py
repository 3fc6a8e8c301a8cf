"""Implements Spark's reader for batches: all records between two offsets of each partition."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from barnabas.errors import UsageError
from barnabas.spark.formats.options import FormatOptions
from barnabas.spark.source.data_loss import lost
from barnabas.spark.source.offset_reader import OffsetReader
from barnabas.spark.source.offsets import Plan
from barnabas.spark.source.options import SourceOptions
from barnabas.spark.source.planning import OffsetRange, combined, split
from barnabas.spark.source.pushdown import Condition, TakesConditions, first_ms, narrowed, pushdown_is_on
from barnabas.spark.source.schema import Columns
from barnabas.spark.source.tasks import RangePartition, SourceTaskConfig, read_ranges
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["BatchReader", "batch_reader"]


class BatchReader(DataSourceReader):
    """Reads ranges of offsets. Spark makes the reader when it plans the query, and pickles it for the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType, format_options: FormatOptions) -> None:
        self.options = SourceOptions.parse(options, streaming=False)
        self._conditions: list[Condition] = []
        self._config = SourceTaskConfig(
            self.options.client,
            self.options.on_data_loss,
            self.options.fetch_timeout_ms,
            Columns(schema, format_options),
        )

    def partitions(self) -> list[RangePartition]:
        with OffsetReader(self.options) as lookup:
            tasks = self._tasks(lookup)
        return [RangePartition(task) for task in tasks or [()]]  # without any Spark would make one of its own

    def _tasks(self, lookup: OffsetReader) -> list[tuple[OffsetRange, ...]]:
        limits = self.options.limits
        ranges = self._ranges(lookup)
        sizes = lookup.record_bytes([each.partition for each in ranges]) if limits.min_partitions else {}
        plan = Plan(limits.min_partitions, limits.max_records)
        return combined(split(ranges, plan, sizes), plan)

    def _ranges(self, lookup: OffsetReader) -> list[OffsetRange]:
        options = self.options
        partitions = lookup.topics().partitions
        start = lookup.resolve(options.starting, partitions)
        end = lookup.resolve(options.ending, partitions)
        if options.ending.kind == "offsets":
            end = self._reachable(end, lookup.latest(partitions))
        self._check_order(start, end)
        ranges = [OffsetRange(partition, start[partition], end[partition]) for partition in partitions]
        return self._narrowed(ranges, lookup)

    def _narrowed(self, ranges: list[OffsetRange], lookup: OffsetReader) -> list[OffsetRange]:
        """Returns the ranges without the offsets that the query's conditions leave out."""
        found = narrowed(ranges, self._conditions)
        since = first_ms(self._conditions)
        if since is None:
            return found
        first = lookup.at_times({each.partition: max(since, 0) for each in found})
        later = [each._replace(start=max(each.start, first[each.partition])) for each in found]
        return [each for each in later if each.size and first[each.partition] >= 0]

    def _reachable(
        self, wanted: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Returns the ends, at most those of the logs: records behind them may never be written. Raises DataLoss."""
        beyond = [
            OffsetRange(partition, latest[partition], end)
            for partition, end in wanted.items()
            if end > latest[partition]
        ]
        if beyond:
            what = self.options.ending.option
            lost(self.options.on_data_loss, beyond, f"option {what} wants more than the log has (or has committed)")
        return {partition: min(end, latest[partition]) for partition, end in wanted.items()}

    def _check_order(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
        """Raises UsageError if an option's offset is behind the end. Timestamps may have no record between them."""
        starting, ending = self.options.starting, self.options.ending
        for partition, first in start.items() if starting.kind == ending.kind == "offsets" else ():
            if first > end[partition]:
                raise UsageError(
                    f"options {starting.option} and {ending.option}: {partition} begins at {first}, behind its end"
                    f" {end[partition]}; an end is the offset behind the last one to read"
                )

    def read(self, partition: RangePartition) -> "Iterator[pyarrow.RecordBatch]":
        yield from read_ranges(self._config, partition.wanted)


class _NarrowingReader(TakesConditions, BatchReader):
    """A batch reader that takes the conditions of the query."""


def batch_reader(options: Mapping[str, str], schema: StructType, format_options: FormatOptions) -> BatchReader:
    """Returns a reader that takes conditions, if Spark's pushdown is on and the query asks for it by option
    filterPushdown. The option is needed because up to Spark 4.3 a reader that was narrowed for one query stays with the
    DataFrame, so its next query would read no more than that."""
    reader = BatchReader(options, schema, format_options)
    takes_conditions = pushdown_is_on() and reader.options.filter_pushdown
    return _NarrowingReader(options, schema, format_options) if takes_conditions else reader
