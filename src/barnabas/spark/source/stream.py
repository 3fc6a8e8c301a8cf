"""Streaming reads: plans micro-batches for Spark's engine on the driver, and reads them in tasks."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from barnabas.spark.formats.options import FormatOptions
from barnabas.spark.source.micro_batches import MicroBatches
from barnabas.spark.source.offset_reader import OffsetReader
from barnabas.spark.source.offsets import BEHIND, nested, parse_stream_offset
from barnabas.spark.source.options import SourceOptions
from barnabas.spark.source.planning import combined, split
from barnabas.spark.source.schema import Columns
from barnabas.spark.source.tasks import RangePartition, SourceTaskConfig, read_ranges

if TYPE_CHECKING:
    import pyarrow

__all__ = ["StreamReader"]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the micro-batches of a query on the driver while the query runs. Pickled copies of it plan and read in
    other processes."""

    def __init__(self, options: Mapping[str, str], schema: StructType, format_options: FormatOptions) -> None:
        self._options = SourceOptions.parse(options, streaming=True)
        self._config = SourceTaskConfig(
            self._options.client,
            self._options.on_data_loss,
            self._options.fetch_timeout_ms,
            Columns(schema, format_options),
        )
        self._offset_reader: OffsetReader | None = None
        self._micro_batches: MicroBatches | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_micro_batches": None, "_offset_reader": None}

    def _planner(self) -> MicroBatches:
        if self._micro_batches is None:
            self._offset_reader = OffsetReader(self._options)
            self._micro_batches = MicroBatches(self._options, self._offset_reader)
        return self._micro_batches

    # --- on the driver ----------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        return self._planner().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns one of the limits of the options. MicroBatches keeps all of them itself, because Spark has no limit
        of several parts for Python; this one tells Spark that there are limits, which `trigger(once=True)` lifts."""
        limits = self._options.limits
        if limits.max_offsets:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets:
            return ReadMinRows(limits.min_offsets, limits.max_delay_ms)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = parse_stream_offset(start)
        after = self._planner().after(before, everything=isinstance(limit, ReadAllAvailable))
        return start if after is before else after.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Returns the ends of the partitions, which Spark shows as `latestOffset` in its progress reports. A source in
        Python has no other place there, so the metrics of Spark's Kafka connector stand in it, too."""
        latest = self._planner().latest()
        if latest is None:
            return None
        behind = self._planner().behind()
        return {**nested(latest), **({BEHIND: behind} if behind else {})}

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner().freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        until = parse_stream_offset(end)
        pieces = split(self._planner().to_read(parse_stream_offset(start), until), until.plan, until.record_bytes)
        return [RangePartition(task) for task in combined(pieces, until.plan)]

    def stop(self) -> None:
        if self._offset_reader is not None:
            self._offset_reader.close()
            self._offset_reader = self._micro_batches = None

    # --- in tasks ---------------------------------------------------------------------------------------------------

    def read(self, partition: RangePartition) -> "Iterator[pyarrow.RecordBatch]":
        return read_ranges(self._config, partition.wanted)
