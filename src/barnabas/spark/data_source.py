"""Implements Spark's data source `format("barnabas")`."""

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from barnabas.errors import UsageError
from barnabas.spark.formats.options import FormatOptions
from barnabas.spark.option_table import parse_bool
from barnabas.spark.source.schema import record_schema
from barnabas.spark.workers import log_missing_settings, prepare_worker

__all__ = ["BarnabasDataSource"]


class BarnabasDataSource(DataSource):
    """Makes the readers and writers of a query. Each process imports only the modules that it needs."""

    _format_options: FormatOptions | None = None
    _inferred: str = ""
    """The type of values in DDL, if it was inferred from records."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType | str:
        """Returns the schema of a query without one of its own. Spark pickles an inferred schema with this object."""
        format_options = self._format()
        if format_options.needs_sample:
            from barnabas.spark.formats.inference import ddl_of, infer_schema
            from barnabas.spark.source.sampling import newest_values

            values, source = newest_values(self._options(), format_options.sample_size)
            format_options = format_options._replace(value_type=infer_schema(values, source))
            self._format_options, self._inferred = format_options, ddl_of(format_options.value_type)
        headers = parse_bool(self.options.get("includeHeaders", "false"), "includeHeaders")
        return record_schema(headers=headers, format_options=format_options)

    def reader(self, schema: StructType) -> DataSourceReader:
        prepare_worker()
        from barnabas.spark.source.batch import batch_reader

        log_missing_settings()
        if "segments" in self.options:
            from barnabas.spark.segments.segment_reader import segment_reader

            return segment_reader(self._options(), schema, self._format())
        return batch_reader(self._options(), schema, self._format())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        prepare_worker()
        from barnabas.spark.source.stream import StreamReader

        log_missing_settings()
        if "segments" in self.options:
            raise UsageError("option segments is for batch reads (spark.read): files do not tell when they grow")
        if self._inferred:
            raise UsageError(
                "a stream needs a schema that stays the same when it goes on tomorrow. From the newest records it would"
                f" be: option valueSchema='{self._inferred}'"
            )
        return StreamReader(self._options(), schema, self._format())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        prepare_worker()
        from barnabas.spark.sink.writers import batch_writer

        log_missing_settings()
        return batch_writer(self._options(), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        prepare_worker()
        from barnabas.spark.sink.writers import StreamWriter

        return StreamWriter(self._options(), schema)

    def _format(self) -> FormatOptions:
        if self._format_options is None:
            self._format_options = FormatOptions.parse(self._options())
            if self._format_options.value == "confluent-avro":
                from barnabas.spark.formats.registry import with_reader_schema

                self._format_options = with_reader_schema(self._format_options, self._options())
        return self._format_options

    def _options(self) -> dict[str, Any]:
        return dict(self.options)
