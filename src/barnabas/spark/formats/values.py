"""Decodes the keys and values of a batch, and keeps the raw values that cannot be decoded."""

from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from barnabas.errors import BarnabasError
from barnabas.spark.formats.options import FormatOptions

__all__ = ["Decoder", "MalformedValue", "ParsedValues", "ValueParser", "keys_to_strings", "make_decoder"]

_SHOWN: Final = 80


class MalformedValue(BarnabasError):
    """A value cannot be decoded, and the query has `mode=FAILFAST`."""


class Decoder(Protocol):
    """Decodes the values of one format."""

    def decode(self, values: Any, failures: dict[int, str]) -> Any:
        """Returns the decoded values of a binary array without nulls. A value that cannot be decoded is null, and
        `failures` gets the reason under its number."""


class ParsedValues(NamedTuple):
    """The decoded values of a batch, and the raw values that cannot be decoded."""

    values: Any
    corrupt: Any
    """The raw values that cannot be decoded, null for others."""


class ValueParser:
    """Decodes the values of a task's batches."""

    def __init__(self, format_options: FormatOptions, decoder: Decoder) -> None:
        self._format_options = format_options
        self._decoder = decoder

    def parse(self, batch: Any) -> ParsedValues:
        """Decodes the column `value` of a batch. Raises MalformedValue."""
        raw = batch.column("value")
        failures: dict[int, str] = {}
        if raw.null_count:
            present = [index for index, is_valid in enumerate(raw.is_valid().to_pylist()) if is_valid]
            values = self._decoder.decode(raw.drop_null(), failures)
            failures = {present[index]: reason for index, reason in failures.items()}
            indices: list[int | None] = [None] * len(raw)
            for number, index in enumerate(present):
                indices[index] = number
            values = values.take(pa.array(indices, pa.int64()))
        else:
            values = self._decoder.decode(raw, failures)
        if failures and self._format_options.mode == "FAILFAST":
            raise self._malformed(batch, failures)
        return ParsedValues(values, _corrupt_values(raw, failures))

    def _malformed(self, batch: Any, failures: dict[int, str]) -> MalformedValue:
        index = min(failures)
        row = {name: batch.column(name)[index].as_py() for name in ("topic", "partition", "offset", "value")}
        shown = row["value"][:_SHOWN]
        return MalformedValue(
            f"{row['topic']}-{row['partition']}, offset {row['offset']}: the value is no"
            f" {self._format_options.value} of the schema: {failures[index]} (it begins with {shown!r}). To keep such"
            " rows aside set option mode=PERMISSIVE and look at column _corrupt; to begin after it set startingOffsets"
        )


def _corrupt_values(raw: Any, failures: dict[int, str]) -> Any:
    if not failures:
        return pa.nulls(len(raw), pa.binary())
    return raw.take(pa.array([index if index in failures else None for index in range(len(raw))], pa.int64()))


def make_decoder(format_options: FormatOptions, target: Any) -> Decoder:
    """Returns the decoder of a query's values to an Arrow type. Raises UsageError."""
    if format_options.value == "json":
        from barnabas.spark.formats.json_values import JsonDecoder

        return JsonDecoder(target, format_options.zone)
    if format_options.value == "protobuf":
        from barnabas.spark.formats.protobuf_values import ProtobufDecoder

        return ProtobufDecoder(format_options.descriptors, format_options.message, target)
    if format_options.value in ("avro", "confluent-avro"):
        from barnabas.spark.formats.avro_values import avro_decoder

        return avro_decoder(format_options, target)
    return _TextDecoder()


class _TextDecoder:
    """Decodes UTF-8."""

    def decode(self, values: Any, failures: dict[int, str]) -> Any:
        try:
            return values.cast(pa.string())
        except (pa.ArrowInvalid, ValueError):
            texts = [_text(index, value, failures) for index, value in enumerate(values.to_pylist())]
            return pa.array(texts, pa.string())


def _text(index: int, value: bytes, failures: dict[int, str]) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        failures[index] = f"not UTF-8: {error.reason} at byte {error.start}"
        return None


def keys_to_strings(keys: Any) -> Any:
    """Returns keys as texts, with U+FFFD in place of bytes that are not UTF-8."""
    try:
        return keys.cast(pa.string())
    except (pa.ArrowInvalid, ValueError):
        texts = [None if key is None else key.decode("utf-8", "replace") for key in keys.to_pylist()]
        return pa.array(texts, pa.string())
