"""Reads log directories as a batch: `format("barnabas").option("segments", path)`."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from barnabas.errors import UsageError
from barnabas.log.directories.disk import Disk, ResourcePool
from barnabas.log.indexes.sparse_index import CorruptIndex
from barnabas.log.indexes.time_index import TimeIndex
from barnabas.spark.formats.options import FormatOptions
from barnabas.spark.segments.file_ranges import FileRange, split
from barnabas.spark.segments.file_reader import read_range
from barnabas.spark.segments.segment_files import SegmentFile, find_segments
from barnabas.spark.segments.transactions import PartitionTransactions, read_transactions
from barnabas.spark.source.data_loss import DEAD_LETTERS, OnLoss
from barnabas.spark.source.options import SourceOptions, Subscription
from barnabas.spark.source.planning import OffsetRange
from barnabas.spark.source.pushdown import Condition, TakesConditions, first_ms, narrowed, pushdown_is_on
from barnabas.spark.source.schema import Columns
from barnabas.spark.workers import TaskState, prepare_worker
from barnabas.types import Offset, TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["SegmentReader", "newest_values_of_segments", "segment_reader"]

_BROKERS_ONLY: Final = (
    *("starting", "ending", "minoffsets", "max", "polltimeoutms", "groupid", "fetchoffset", "kafkaconsumer"),
)
"""The beginnings of options that have no effect without a broker."""
_SUBSCRIPTIONS: Final = ("subscribe", "subscribepattern", "assign")


class _SegmentOptions:
    """The options that have an effect without a broker."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises UsageError."""
        given = {name.lower(): value for name, value in options.items()}
        self.paths = given.pop("segments")
        for name in given:
            if name.endswith("bootstrap.servers"):
                raise UsageError(
                    f"options segments and {name} contradict each other: the first reads files, without a broker"
                )
            if name.startswith(_BROKERS_ONLY):
                raise UsageError(f"option {name} has no effect with segments; select records by WHERE")
        has_subscription = any(name in given for name in _SUBSCRIPTIONS)
        required = {"bootstrap.servers": "none:1"} | ({} if has_subscription else {"subscribepattern": ".*"})
        parsed = SourceOptions.parse({**given, **required}, streaming=False)
        self.selects = _partition_filter(parsed.subscription) if has_subscription else None
        self.read_committed = parsed.client.get("isolation.level") == "read_committed"
        self.on_data_loss = parsed.on_data_loss
        if self.on_data_loss.what == DEAD_LETTERS:
            raise UsageError("options segments and onDataLoss=dlq contradict each other: there are no brokers")
        self.filter_pushdown = parsed.filter_pushdown
        self.min_partitions = parsed.limits.min_partitions


def _partition_filter(subscription: Subscription) -> Callable[[TopicPartition], bool]:
    if subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        return lambda partition: pattern.fullmatch(partition.topic) is not None
    if subscription.topics:
        return lambda partition: partition.topic in subscription.topics
    return lambda partition: partition in subscription.partitions


class _FilePartition(TaskState, InputPartition):
    def __init__(self, file_range: FileRange | None) -> None:
        self.file_range = file_range


class SegmentReader(DataSourceReader):
    """Reads segment files with a task for each file, or with more tasks if `minPartitions` asks for them. Spark makes
    the reader when it plans the query, and pickles it for the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType, format_options: FormatOptions) -> None:
        self.options = _SegmentOptions(options)
        self._columns = Columns(schema, format_options)
        self._conditions: list[Condition] = []

    def partitions(self) -> list[_FilePartition]:
        files = find_segments(self.options.paths, self.options.selects)
        since = first_ms(self._conditions)
        ranges = [
            FileRange(file, part.start, part.end)
            for file in files
            if since is None or not _is_older(file, since)
            for part in narrowed(
                [OffsetRange(file.partition, file.base_offset, file.next_base_offset)], self._conditions
            )
        ]
        ranges = split(ranges, self.options.min_partitions)
        if self.options.read_committed:
            groups = groupby(files, key=attrgetter("partition"))
            transactions = {partition: read_transactions(list(group)) for partition, group in groups}
            ranges = [_committed(each, transactions[each.file.partition]) for each in ranges]
        return [_FilePartition(each) for each in ranges if each.start < each.end] or [_FilePartition(None)]

    def read(self, partition: _FilePartition) -> "Iterator[pyarrow.RecordBatch]":
        prepare_worker()
        if partition.file_range is None:  # Spark would make a partition of its own if there were none
            return
        columns = self._columns
        for batch in read_range(partition.file_range, self.options.on_data_loss, headers=columns.with_headers):
            yield columns.convert(batch)


class _NarrowingSegmentReader(TakesConditions, SegmentReader):
    """A segment reader that takes the conditions of the query."""


def segment_reader(options: Mapping[str, str], schema: StructType, format_options: FormatOptions) -> SegmentReader:
    """Returns a reader that takes conditions if Spark's pushdown is on and option filterPushdown asks for it."""
    reader = SegmentReader(options, schema, format_options)
    takes_conditions = pushdown_is_on() and reader.options.filter_pushdown
    return _NarrowingSegmentReader(options, schema, format_options) if takes_conditions else reader


def newest_values_of_segments(options: Mapping[str, str], count: int) -> tuple[list[bytes | None], str]:
    """Returns about `count` values of the newest files, for schema inference, and the paths. Raises UsageError."""
    parsed = _SegmentOptions(options)
    files = find_segments(parsed.paths, parsed.selects)
    values: list[bytes | None] = []
    for file in sorted(files, key=attrgetter("base_offset"), reverse=True):
        whole = FileRange(file, file.base_offset, file.next_base_offset)
        for batch in read_range(whole, OnLoss("skip"), headers=False):
            values += batch.column("value").to_pylist()[: count - len(values)]
            if len(values) >= count:
                return values, parsed.paths
    return values, parsed.paths


def _committed(file_range: FileRange, transactions: PartitionTransactions) -> FileRange:
    """Returns the part of a range below the last stable offset, with its aborted transactions."""
    end = min(file_range.end, transactions.last_stable_offset)
    return file_range._replace(end=end, aborted=transactions.aborted_between(file_range.start, end))


def _is_older(file: SegmentFile, since_ms: int) -> bool:
    """Returns whether the time index shows that all records are older. The newest file may have records that are not in
    the index yet."""
    if file.is_newest:
        return False
    index = TimeIndex(file.path.removesuffix(".log") + ".timeindex", Offset(file.base_offset), Disk(), ResourcePool(1))
    try:
        index.load()
        index.sanity_check()
        return len(index) > 0 and index.last_timestamp() < since_ms
    except (CorruptIndex, OSError):
        return False
    finally:
        index.release()
