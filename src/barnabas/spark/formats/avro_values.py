"""Avro values: bare ones, and those behind the five bytes of a schema registry."""

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
from barnabas.spark.formats.registry import shared_registry
from barnabas.spark.formats.rules import FormatRules
from barnabas.spark.formats.shapes import Shape, built

__all__ = ["AvroDecoder", "ConfluentDecoder", "avro_decoder"]

_SCHEMAS_MAX: Final = 1000

Read = Callable[[bytes], Any]


def avro_decoder(rules: FormatRules, target: Any) -> "AvroDecoder":
    """Raises UsageError."""
    shape = avro_shape(parse_schema(rules.schema), target)
    if rules.value == "avro":
        return AvroDecoder(rules.schema, shape)
    return ConfluentDecoder(rules.schema, shape, shared_registry(rules))


class AvroDecoder:
    """Values that are written by one schema, which nothing in them tells."""

    def __init__(self, schema: str, shape: Shape) -> None:
        self._schemaless_reader = require_fastavro().schemaless_reader
        self._schema = reading_schema(schema)
        self._shape = shape

    def decode(self, values: Any, failures: dict[int, str]) -> Any:
        found: list[Any] = []
        for index, value in enumerate(values.to_pylist()):
            try:
                found.append(self._read(value))
            except _Unreadable as error:
                found.append(None)
                failures[index] = str(error)
        return built(self._shape, found, failures)

    def _read(self, value: bytes) -> Any:
        return self._read_by(self._schema, None, value, 0)

    def _read_by(self, writer: Any, reader: Any, value: bytes, start: int) -> Any:
        """Raises _Unreadable."""
        data = BytesIO(value)
        data.seek(start)
        try:
            found = self._schemaless_reader(data, writer, reader)
        except Exception as error:  # whatever damaged bytes make fastavro stumble over
            raise _Unreadable(f"not Avro of the schema: {type(error).__name__}: {error}") from None
        left = len(value) - data.tell()
        if left:
            raise _Unreadable(f"not Avro of the schema: {left} bytes are left")
        return found


class ConfluentDecoder(AvroDecoder):
    """Values that say which schema they are written by; it is brought into the reader's."""

    def __init__(self, schema: str, shape: Shape, registry: SchemaRegistryClient) -> None:
        super().__init__(schema, shape)
        self._registry = registry
        self._writers: dict[int, Any] = {}
        """Parsed schemas, or why there is none, by id."""

    def _read(self, value: bytes) -> Any:
        schema_id = schema_id_of(value)
        if schema_id is None:
            begin = value[:PREFIX_BYTES].hex() or "nothing"
            raise _Unreadable(f"it does not begin with a zero and a schema's id, but with {begin}")
        return self._read_by(self._writer(schema_id), self._schema, value, PREFIX_BYTES)

    def _writer(self, schema_id: int) -> Any:
        found = self._writers.get(schema_id)
        if found is None:
            if len(self._writers) >= _SCHEMAS_MAX:
                self._writers.clear()
            try:
                found = reading_schema(self._registry.schema_of(schema_id))
            except UnknownSchema as error:
                found = str(error)
            except UsageError as error:
                found = f"schema {schema_id} of the registry: {error}"
            self._writers[schema_id] = found
        if isinstance(found, str):
            raise _Unreadable(found)
        return found


class _Unreadable(Exception):
    """A value is no Avro of the schema."""
