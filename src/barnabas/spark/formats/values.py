"""Keys and values of a batch in the form that was asked for, and what does not parse beside them."""

from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from barnabas.errors import BarnabasError
from barnabas.spark.formats.rules import FormatRules

__all__ = ["Decoder", "MalformedValue", "ParsedValues", "ValueParser", "decoder_of", "texts_of"]

_SHOWN: Final = 80


class MalformedValue(BarnabasError):
    """A value does not parse, and the query is to fail for it (`mode=FAILFAST`)."""


class Decoder(Protocol):
    """One format's."""

    def decode(self, values: Any, failures: dict[int, str]) -> Any:
        """What a binary array without nulls says. What does not parse is null, its number and the reason in
        `failures`."""


class ParsedValues(NamedTuple):
    """Of one batch."""

    values: Any
    corrupt: Any
    """The raw values of those that do not parse, null for others."""


class ValueParser:
    """Parses the values of batches; lives as long as its task."""

    def __init__(self, rules: FormatRules, decoder: Decoder) -> None:
        self._rules = rules
        self._decoder = decoder

    def parse(self, batch: Any) -> ParsedValues:
        """Of a batch of our client's. Raises MalformedValue."""
        raw = batch.column("value")
        failures: dict[int, str] = {}
        if raw.null_count:
            there = [index for index, value in enumerate(raw.is_valid().to_pylist()) if value]
            found = self._decoder.decode(raw.drop_null(), failures)
            failures = {there[index]: reason for index, reason in failures.items()}
            places: list[int | None] = [None] * len(raw)
            for number, index in enumerate(there):
                places[index] = number
            found = found.take(pa.array(places, pa.int64()))
        else:
            found = self._decoder.decode(raw, failures)
        if failures and self._rules.mode == "FAILFAST":
            raise self._malformed(batch, failures)
        return ParsedValues(found, _only(raw, failures))

    def _malformed(self, batch: Any, failures: dict[int, str]) -> MalformedValue:
        index = min(failures)
        row = {name: batch.column(name)[index].as_py() for name in ("topic", "partition", "offset", "value")}
        shown = row["value"][:_SHOWN]
        return MalformedValue(
            f"{row['topic']}-{row['partition']}, offset {row['offset']}: the value is no"
            f" {self._rules.value} of the schema: {failures[index]} (it begins {shown!r}). To keep such rows aside set"
            " option mode=PERMISSIVE and look at column _corrupt; to begin behind it set startingOffsets"
        )


def _only(raw: Any, failures: dict[int, str]) -> Any:
    if not failures:
        return pa.nulls(len(raw), pa.binary())
    return raw.take(pa.array([index if index in failures else None for index in range(len(raw))], pa.int64()))


def decoder_of(rules: FormatRules, target: Any) -> Decoder:
    """For values of that Arrow type. Raises UsageError."""
    if rules.value == "json":
        from barnabas.spark.formats.json_values import JsonDecoder

        return JsonDecoder(target, rules.zone)
    if rules.value == "protobuf":
        from barnabas.spark.formats.protobuf_values import ProtobufDecoder

        return ProtobufDecoder(rules.descriptors, rules.message, target)
    if rules.value in ("avro", "confluent-avro"):
        from barnabas.spark.formats.avro_values import avro_decoder

        return avro_decoder(rules, target)
    return _TextDecoder()


class _TextDecoder:
    """UTF-8."""

    def decode(self, values: Any, failures: dict[int, str]) -> Any:
        try:
            return values.cast(pa.string())
        except (pa.ArrowInvalid, ValueError):
            found = [_text(index, value, failures) for index, value in enumerate(values.to_pylist())]
            return pa.array(found, pa.string())


def _text(index: int, value: bytes, failures: dict[int, str]) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        failures[index] = f"not UTF-8: {error.reason} at byte {error.start}"
        return None


def texts_of(keys: Any) -> Any:
    """Keys as texts; what is not UTF-8 in them is shown as U+FFFD."""
    try:
        return keys.cast(pa.string())
    except (pa.ArrowInvalid, ValueError):
        found = [None if key is None else key.decode("utf-8", "replace") for key in keys.to_pylist()]
        return pa.array(found, pa.string())
