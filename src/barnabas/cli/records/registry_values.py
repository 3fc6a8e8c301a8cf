"""Decodes keys and values that name their schema in a schema registry, to JSON."""

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from io import BytesIO
from math import isfinite
from typing import Any, Final
from uuid import UUID

from barnabas.cli.framework.output import CommandFailed, notice
from barnabas.cli.records.formats import JsonText, text_or_base64
from barnabas.client.fetch.record_batch import RecordBatch
from barnabas.client.schema_registry.registry_client import (
    PREFIX_BYTES,
    RegisteredSchema,
    SchemaRegistryClient,
    UnknownSchema,
    schema_id_of,
)
from barnabas.errors import UsageError
from barnabas.records.consumer_record import ConsumerRecord

__all__ = ["BatchDecoder", "RegistryDecoder", "Undecodable"]

_SCHEMAS_MAX: Final = 1000
_NOTICES_MAX: Final = 10
"""The most notices about values that cannot be decoded; further ones are only counted."""

Read = Callable[[bytes], Any]


class Undecodable(Exception):
    """A key or value does not match the schema that it names, or names no schema that can be read."""


class RegistryDecoder:
    """Reads Avro and JSON by the schemas of a registry; Protobuf's are not understood."""

    def __init__(self, settings: Mapping[str, str], timeout_s: float) -> None:
        """The settings are those of a registry without their prefix. Raises UsageError."""
        self._registry = SchemaRegistryClient(settings, timeout_s)
        self._readers: dict[int, Read | str] = {}
        """The reader of each schema, or the reason why there is none."""

    def decode(self, data: bytes) -> Any:
        """Decodes to JSON's types: times in ISO form, decimals and nan as texts, bytes that are not UTF-8 as
        `{"base64": ...}`. Raises Undecodable, RegistryUnavailable."""
        schema_id = schema_id_of(data)
        if schema_id is None:
            raise Undecodable(
                f"begins with {data[:PREFIX_BYTES].hex() or 'nothing'}, not with a zero and a schema's id"
            )
        read = self._readers.get(schema_id)
        if read is None:
            if len(self._readers) >= _SCHEMAS_MAX:
                self._readers.clear()
            read = self._readers[schema_id] = self._reader(schema_id)
        if isinstance(read, str):
            raise Undecodable(f"cannot be decoded: {read}")
        return read(data)

    def _reader(self, schema_id: int) -> Read | str:
        try:
            schema = self._registry.find(schema_id)
        except UnknownSchema as error:
            return str(error)
        if schema.kind == "AVRO":
            return _avro_reader(schema, schema_id)
        if schema.kind == "JSON":
            return _read_json
        return f"schema {schema_id} is {schema.kind}, which is not understood"


class BatchDecoder:
    """Decodes the keys or values of batches. One that cannot be decoded stays as it is, with a notice, and fails the
    command at its end."""

    def __init__(self, settings: Mapping[str, str], timeout_s: float, *, keys: bool, values: bool, quiet: bool) -> None:
        """Raises UsageError."""
        self._decoder = RegistryDecoder(settings, timeout_s)
        self._keys = keys
        self._values = values
        self._quiet = quiet
        self._failed = 0

    def decode(self, batch: RecordBatch) -> RecordBatch:
        """Replaces keys or values by JSON. Raises RegistryUnavailable."""
        for record in batch:
            if self._keys:
                record.key = self._decoded(record, "key", record.key)
            if self._values:
                record.value = self._decoded(record, "value", record.value)
        return batch

    def _decoded(self, record: ConsumerRecord, what: str, data: bytes | None) -> bytes | None:
        if data is None:
            return None
        try:
            found = self._decoder.decode(data)
        except Undecodable as error:
            self._failed += 1
            if not self._quiet and self._failed <= _NOTICES_MAX:
                more = "; further ones are only counted" if self._failed == _NOTICES_MAX else ""
                notice(f"% {record.topic}-{record.partition} offset {record.offset}: the {what} {error}{more}")
            return data
        return JsonText(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))

    def finish(self) -> None:
        """Raises CommandFailed if something could not be decoded."""
        if self._failed:
            raise CommandFailed(
                f"could not decode {self._failed} of the keys and values, which were printed as they are"
            )


def _read_json(data: bytes) -> Any:
    try:
        return json.loads(data[PREFIX_BYTES:])
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"is not JSON: {error}") from None


def _avro_reader(schema: RegisteredSchema, schema_id: int) -> Read | str:
    """Raises UsageError without fastavro."""
    try:
        from fastavro import parse_schema, schemaless_reader
    except ImportError:
        raise UsageError("Avro values need the package fastavro; install it with pip install fastavro") from None
    try:
        parsed = parse_schema(json.loads(schema.text))
    except Exception as error:  # fastavro raises errors of many types for an invalid document
        return f"schema {schema_id} is no Avro schema: {type(error).__name__}: {error}"

    def read(data: bytes) -> Any:
        body = BytesIO(data)
        body.seek(PREFIX_BYTES)
        try:
            found = _plain(schemaless_reader(body, parsed, None))
        except Exception as error:  # fastavro raises errors of many types for damaged bytes
            raise Undecodable(f"is not of schema {schema_id}: {type(error).__name__}: {error}") from None
        left = len(data) - body.tell()
        if left:
            raise Undecodable(f"is not of schema {schema_id}: {left} bytes are left")
        return found

    return read


def _plain(value: Any) -> Any:
    """Converts a value of fastavro to JSON's types."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return text_or_base64(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID) or (isinstance(value, float) and not isfinite(value)):
        return str(value)
    return value
