"""Measures the cost of Spark itself: a source that yields one prepared Arrow batch again and again, and a sink that
drops its rows. No source or sink in Python can be quicker, whatever it reads from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from barnabas.spark.source.schema import record_schema
from barnabas.spark.workers import settle

BATCH_BYTES = 1024 * 1024
"""The size of a batch of our source."""


class ReadySource(DataSource):
    """Options: `rows` in all (of a stream: of one micro-batch), `size` of a value in bytes, `partitions`, and
    `batchBytes`."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType | str:
        return record_schema(headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ReadyStream(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return Nowhere()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return NowhereStream()


class Share(InputPartition):
    def __init__(self, rows: int) -> None:
        self.rows = rows


class ReadyReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.rows = int(options["rows"])
        self.size = int(options["size"])
        self.shares = int(options["partitions"])
        self.batch_bytes = int(options.get("batchBytes", BATCH_BYTES))

    def partitions(self) -> list[Share]:
        settle()
        return [Share(self.rows // self.shares) for _ in range(self.shares)]

    def read(self, partition: Share) -> Iterator[pa.RecordBatch]:
        settle()
        count = max(self.batch_bytes // self.size, 1)
        batch = _batch(count, self.size)
        for left in range(partition.rows, 0, -count):
            yield batch if left >= count else batch.slice(0, left)


class ReadyStream(ReadyReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Has more rows at each request, or only once for a query that reads the available rows."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._is_frozen = False

    def initialOffset(self) -> dict[str, int]:
        return {"batches": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_frozen = True

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"batches": 1 if self._is_frozen else start["batches"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Share]:  # type: ignore[override]
        return ReadyReader.partitions(self) if start != end else []


class _Nowhere:
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Any, batchId: int = 0) -> None:
        settle()

    def abort(self, messages: Any, batchId: int = 0) -> None:
        pass


class Nowhere(_Nowhere, DataSourceArrowWriter):
    pass


class NowhereStream(_Nowhere, DataSourceStreamArrowWriter):
    pass


def _batch(count: int, size: int) -> pa.RecordBatch:
    schema = to_arrow_schema(record_schema(headers=False), timezone="UTC")
    columns = {
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array([b"v" * size] * count),
        "topic": pa.array(["orders"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array([1_735_689_600_000_000] * count, pa.int64()),
        "timestampType": pa.array([0] * count, pa.int32()),
    }
    return pa.RecordBatch.from_arrays([columns[each.name].cast(each.type) for each in schema], schema=schema)
