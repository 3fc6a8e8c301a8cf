"""Parses the options about keys and values: their formats, the schema, and the mode for malformed values."""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql.types import DataType, StringType, StructType

from barnabas.errors import UsageError
from barnabas.spark.formats.times import time_zone
from barnabas.spark.option_table import parse_choice, parse_count

__all__ = ["CORRUPT", "FORMATS", "FormatOptions"]

CORRUPT: Final = "_corrupt"
"""The column of raw values that cannot be decoded."""
FORMATS: Final = ("binary", "string", "json", "avro", "confluent-avro", "protobuf")
_MODES: Final = ("PERMISSIVE", "FAILFAST")
_SAMPLE: Final = 1000
_REGISTRY: Final = "schema.registry."
_REGISTRY_TIMEOUT_MS: Final = 10_000
_FORMATS_OF: Final = {
    "valueSchema": ("json", "avro", "confluent-avro", "protobuf"),
    "messageName": ("protobuf",),
    "timeZone": ("json",),
    "sampleSize": ("json",),
    "schema.registry.url": ("confluent-avro",),
    "schema.registry.basic.auth.user.info": ("confluent-avro",),
    "schema.registry.timeout.ms": ("confluent-avro",),
}
"""The formats that an option is for."""


class FormatOptions(NamedTuple):
    """The options about keys and values. Spark pickles them for the tasks."""

    value: str = "binary"
    key: str = "binary"
    schema: str = ""
    """The option valueSchema: a Spark type in DDL or JSON, the JSON of an Avro schema, or a path of descriptors."""
    message: str = ""
    """The name of the protobuf message."""
    mode: str = "PERMISSIVE"
    zone: str = "UTC"
    sample_size: int = _SAMPLE
    registry: Mapping[str, str] = {}
    descriptors: bytes = b""
    """The contents of the file of protobuf descriptors, since tasks may run on machines without the file."""
    value_type: DataType | None = None
    """The Spark type of values; None if the query's own schema has it."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "FormatOptions":
        """Raises UsageError."""
        given = {name.lower(): value for name, value in options.items()}
        value = parse_choice(given, "valueFormat", FORMATS)
        for option, formats in _FORMATS_OF.items():
            if option.lower() in given and value not in formats:
                raise UsageError(f"option {option} is for valueFormat={'|'.join(formats)}, not for {value}")
        mode = given.get("mode", _MODES[0]).strip().upper()
        if mode not in _MODES:
            raise UsageError(
                f"option mode={given['mode']!r} must be {' or '.join(_MODES)}; to leave out rows that do not parse, add"
                f" WHERE {CORRUPT} IS NULL"
            )
        format_options = cls(
            value,
            parse_choice(given, "keyFormat", ("binary", "string")),
            given.get("valueschema", "").strip(),
            given.get("messagename", "").strip(),
            mode,
            given.get("timezone", "UTC").strip(),
            parse_count(given.get("samplesize", str(_SAMPLE)), "sampleSize"),
            {name.removeprefix(_REGISTRY): text for name, text in given.items() if name.startswith(_REGISTRY)},
        )
        time_zone(format_options.zone)
        return format_options._with_value_type()

    @property
    def is_parsed(self) -> bool:
        """Returns whether values are decoded, which may fail."""
        return self.value != "binary"

    @property
    def needs_sample(self) -> bool:
        """Returns whether the schema must be inferred from records."""
        return self.value == "json" and not self.schema

    @property
    def registry_timeout_s(self) -> float:
        return parse_count(self.registry.get("timeout.ms", str(_REGISTRY_TIMEOUT_MS)), f"{_REGISTRY}timeout.ms") / 1000

    def _with_value_type(self) -> "FormatOptions":
        """Returns the options with `value_type`, if it follows from them without records or a registry."""
        if self.value == "string":
            return self._replace(value_type=StringType())
        if self.value == "json" and self.schema.startswith("{"):
            return self._replace(value_type=_type_of_json(self.schema))
        if self.value == "avro":
            from barnabas.spark.formats.avro_schema import parse_schema, value_type

            if not self.schema:
                raise UsageError("valueFormat=avro needs option valueSchema: the writers' schema as Avro JSON")
            return self._replace(value_type=value_type(parse_schema(self.schema)))
        if self.value == "protobuf":
            from barnabas.spark.formats.protobuf_values import message_type, read_descriptors

            descriptors = read_descriptors(self.schema)
            return self._replace(descriptors=descriptors, value_type=message_type(descriptors, self.message))
        return self

    def ddl(self) -> str | None:
        """Returns the type of values in DDL, which only Spark can parse; None without DDL."""
        if self.value != "json" or self.value_type is not None or not self.schema:
            return None
        return self.schema if self.schema.lower().startswith("struct<") else f"struct<{self.schema}>"


def _type_of_json(text: str) -> StructType:
    try:
        struct = StructType.fromJson(json.loads(text))
    except Exception as error:  # pyspark raises all kinds of errors for a document that is no schema
        raise UsageError(
            f"option valueSchema begins with {{ and is not the JSON of a Spark schema ({error}); write"
            " `id bigint, name string` or what df.schema.json() gives"
        ) from None
    return struct
