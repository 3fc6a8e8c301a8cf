"""`format("barnabas")`: what Spark asks for first."""

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from barnabas.spark.option_table import parse_bool
from barnabas.spark.schema import record_schema
from barnabas.spark.sessions import warn_of_missing_settings
from barnabas.spark.workers import settle

__all__ = ["BarnabasDataSource"]


class BarnabasDataSource(DataSource):
    """Topics as tables and streams. The modules behind it are imported by the processes that need them."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        return record_schema(headers=parse_bool(self.options.get("includeHeaders", "false"), "includeHeaders"))

    def reader(self, schema: StructType) -> DataSourceReader:
        settle()
        from barnabas.spark.batch import batch_reader

        warn_of_missing_settings()
        return batch_reader(self._options(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        settle()
        from barnabas.spark.stream import StreamReader

        warn_of_missing_settings()
        return StreamReader(self._options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        settle()
        from barnabas.spark.sink import batch_writer

        warn_of_missing_settings()
        return batch_writer(self._options(), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        settle()
        from barnabas.spark.sink import stream_writer

        return stream_writer(self._options(), schema)

    def _options(self) -> dict[str, Any]:
        return dict(self.options)
