"""Decodes Avro values, with or without the five bytes of a schema registry before them."""

from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

from barnabas.client.schema_registry.registry_client import (
    PREFIX_BYTES,
    SchemaRegistryClient,
    UnknownSchema,
    schema_id_of,
)
from barnabas.errors import UsageError
from barnabas.spark.formats.avro_schema import avro_shape, parse_schema, reading_schema, require_fastavro
from barnabas.spark.formats.options import FormatOptions
from barnabas.spark.formats.registry import shared_registry
from barnabas.spark.formats.shapes import Shape, build_array

__all__ = ["AvroDecoder", "ConfluentDecoder", "avro_decoder"]

_SCHEMAS_MAX: Final = 1000

Read = Callable[[bytes], Any]


def avro_decoder(format_options: FormatOptions, target: Any) -> "AvroDecoder":
    """Raises UsageError."""
    shape = avro_shape(parse_schema(format_options.schema), target)
    if format_options.value == "avro":
        return AvroDecoder(format_options.schema, shape)
    return ConfluentDecoder(format_options.schema, shape, shared_registry(format_options))


class AvroDecoder:
    """Decodes values that were all written by the same schema."""

    def __init__(self, schema: str, shape: Shape) -> None:
        self._schemaless_reader = require_fastavro().schemaless_reader
        self._schema = reading_schema(schema)
        self._shape = shape

    def decode(self, values: Any, failures: dict[int, str]) -> Any:
        decoded: list[Any] = []
        for index, value in enumerate(values.to_pylist()):
            try:
                decoded.append(self._read(value))
            except _Unreadable as error:
                decoded.append(None)
                failures[index] = str(error)
        return build_array(self._shape, decoded, failures)

    def _read(self, value: bytes) -> Any:
        return self._read_by(self._schema, None, value, 0)

    def _read_by(self, writer: Any, reader: Any, value: bytes, start: int) -> Any:
        """Raises _Unreadable."""
        data = BytesIO(value)
        data.seek(start)
        try:
            decoded = self._schemaless_reader(data, writer, reader)
        except Exception as error:  # fastavro raises all kinds of errors for damaged bytes
            raise _Unreadable(f"not Avro of the schema: {type(error).__name__}: {error}") from None
        remaining = len(value) - data.tell()
        if remaining:
            raise _Unreadable(f"not Avro of the schema: {remaining} bytes are left")
        return decoded


class ConfluentDecoder(AvroDecoder):
    """Decodes values that begin with the id of their writer's schema, and converts them to the reader's schema."""

    def __init__(self, schema: str, shape: Shape, registry: SchemaRegistryClient) -> None:
        super().__init__(schema, shape)
        self._registry = registry
        self._writers: dict[int, Any] = {}
        """The parsed schemas by id; a text is the reason why there is none."""

    def _read(self, value: bytes) -> Any:
        schema_id = schema_id_of(value)
        if schema_id is None:
            prefix = value[:PREFIX_BYTES].hex() or "nothing"
            raise _Unreadable(f"the value does not begin with a zero and a schema's id, but with {prefix}")
        return self._read_by(self._writer(schema_id), self._schema, value, PREFIX_BYTES)

    def _writer(self, schema_id: int) -> Any:
        writer = self._writers.get(schema_id)
        if writer is None:
            if len(self._writers) >= _SCHEMAS_MAX:
                self._writers.clear()
            try:
                writer = reading_schema(self._registry.schema_of(schema_id))
            except UnknownSchema as error:
                writer = str(error)
            except UsageError as error:
                writer = f"schema {schema_id} of the registry: {error}"
            self._writers[schema_id] = writer
        if isinstance(writer, str):
            raise _Unreadable(writer)
        return writer


class _Unreadable(Exception):
    """A value cannot be decoded by its schema."""
