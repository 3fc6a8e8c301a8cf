"""`format("barnabas").option("segments", path)`: batch reads of log directories."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from barnabas.errors import UsageError
from barnabas.log.directories.disk import Disk, ResourcePool
from barnabas.log.indexes.sparse_index import CorruptIndex
from barnabas.log.indexes.time_index import TimeIndex
from barnabas.spark.formats.rules import FormatRules
from barnabas.spark.segments.committed import Committed, committed_part
from barnabas.spark.segments.cutting import FileRange, cut
from barnabas.spark.segments.finding import SegmentFile, find_segments
from barnabas.spark.segments.reading import Piece, read_piece
from barnabas.spark.source.data_loss import DEAD_LETTERS, OnLoss
from barnabas.spark.source.options import SourceOptions, Subscription
from barnabas.spark.source.planning import OffsetRange
from barnabas.spark.source.pushdown import Condition, conditions_of, first_ms, narrowed
from barnabas.spark.source.schema import Columns
from barnabas.spark.workers import TaskState, settle
from barnabas.types import Offset, TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["SegmentReader", "newest_values_of_segments", "segment_reader"]

_OF_BROKERS: Final = (
    *("starting", "ending", "minoffsets", "max", "polltimeoutms", "groupid", "fetchoffset", "kafkaconsumer"),
)
_SUBSCRIPTIONS: Final = ("subscribe", "subscribepattern", "assign")


class _SegmentOptions:
    """What of the options counts without a broker."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises UsageError."""
        given = {name.lower(): value for name, value in options.items()}
        self.paths = given.pop("segments")
        for name in given:
            if name.endswith("bootstrap.servers"):
                raise UsageError(
                    f"options segments and {name} contradict each other: the first reads files, without a broker"
                )
            if name.startswith(_OF_BROKERS):
                raise UsageError(f"option {name} has no effect with segments; say by WHERE what is wanted")
        asks = any(name in given for name in _SUBSCRIPTIONS)
        least = {"bootstrap.servers": "none:1"} | ({} if asks else {"subscribepattern": ".*"})
        parsed = SourceOptions.parse({**given, **least}, streaming=False)
        self.wants = _wanting(parsed.subscription) if asks else None
        self.read_committed = parsed.client.get("isolation.level") == "read_committed"
        self.on_data_loss = parsed.on_data_loss
        if self.on_data_loss.what == DEAD_LETTERS:
            raise UsageError("options segments and onDataLoss=dlq contradict each other: there are no brokers")
        self.filter_pushdown = parsed.filter_pushdown
        self.min_partitions = parsed.limits.min_partitions


def _wanting(subscription: Subscription) -> Callable[[TopicPartition], bool]:
    if subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        return lambda partition: pattern.fullmatch(partition.topic) is not None
    if subscription.topics:
        return lambda partition: partition.topic in subscription.topics
    return lambda partition: partition in subscription.partitions


class _FilePartition(TaskState, InputPartition):
    def __init__(self, piece: Piece | None) -> None:
        self.piece = piece


class SegmentReader(DataSourceReader):
    """A task for each file, or for pieces of about the same size where `minPartitions` asks for more. Made where the
    query is planned, and pickled for the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType, rules: FormatRules) -> None:
        self.options = _SegmentOptions(options)
        self._columns = Columns(schema, rules)
        self._conditions: list[Condition] = []

    def partitions(self) -> list[_FilePartition]:
        files = find_segments(self.options.paths, self.options.wants)
        since = first_ms(self._conditions)
        wanted: list[FileRange] = [
            (file, part)
            for file in files
            if since is None or not _is_older(file, since)
            for part in narrowed(
                [OffsetRange(file.partition, file.base_offset, file.next_base_offset)], self._conditions
            )
        ]
        committed: dict[TopicPartition, Committed] = {}
        if self.options.read_committed:
            groups = groupby(files, key=attrgetter("partition"))
            committed = {partition: committed_part(list(group)) for partition, group in groups}
        pieces: list[Piece] = []
        for file, part in cut(wanted, self.options.min_partitions):
            seen = committed.get(file.partition)
            end = part.end if seen is None else min(part.end, seen.end)
            if part.start < end:
                pieces.append(Piece(file, part.start, end, None if seen is None else seen.touching(part.start, end)))
        return [_FilePartition(piece) for piece in pieces] or [_FilePartition(None)]

    def read(self, partition: _FilePartition) -> "Iterator[pyarrow.RecordBatch]":
        settle()
        if partition.piece is None:  # Spark makes a partition of its own where there is none
            return
        columns = self._columns
        for batch in read_piece(partition.piece, self.options.on_data_loss, headers=columns.with_headers):
            yield columns.convert(batch)


class _NarrowingSegmentReader(SegmentReader):
    """The same, told of the query's conditions."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        self._conditions, rest = conditions_of(filters)
        return rest


def segment_reader(options: Mapping[str, str], schema: StructType, rules: FormatRules) -> SegmentReader:
    """One that takes conditions only where that is switched on; see `batch_reader`."""
    switched_on = "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules
    reader = SegmentReader(options, schema, rules)
    return _NarrowingSegmentReader(options, schema, rules) if switched_on and reader.options.filter_pushdown else reader


def newest_values_of_segments(options: Mapping[str, str], count: int) -> tuple[list[bytes | None], str]:
    """About `count` values of the newest files, to find out their schema. Raises UsageError."""
    parsed = _SegmentOptions(options)
    files = find_segments(parsed.paths, parsed.wants)
    found: list[bytes | None] = []
    for file in sorted(files, key=attrgetter("base_offset"), reverse=True):
        for batch in read_piece(Piece(file, file.base_offset, file.next_base_offset), OnLoss("skip"), headers=False):
            found += batch.column("value").to_pylist()[: count - len(found)]
            if len(found) >= count:
                return found, parsed.paths
    return found, parsed.paths


def _is_older(file: SegmentFile, since_ms: int) -> bool:
    """Whether all its records are, as far as its time index tells. The newest one may have more than that knows."""
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
