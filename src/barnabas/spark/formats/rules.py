"""What the options say about keys and values: which format, which schema, what to do about what does not parse."""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql.types import DataType, StringType, StructType

from barnabas.errors import UsageError
from barnabas.spark.formats.times import time_zone
from barnabas.spark.option_table import parse_choice, parse_count

__all__ = ["CORRUPT", "FORMATS", "FormatRules"]

CORRUPT: Final = "_corrupt"
"""The column of raw values that do not parse."""
FORMATS: Final = ("binary", "string", "json", "avro", "confluent-avro", "protobuf")
_MODES: Final = ("PERMISSIVE", "FAILFAST")
_SAMPLE: Final = 1000
_REGISTRY: Final = "schema.registry."
_REGISTRY_TIMEOUT_MS: Final = 10_000
_OF_FORMAT: Final = {
    "valueSchema": ("json", "avro", "confluent-avro", "protobuf"),
    "messageName": ("protobuf",),
    "timeZone": ("json",),
    "sampleSize": ("json",),
    "schema.registry.url": ("confluent-avro",),
    "schema.registry.basic.auth.user.info": ("confluent-avro",),
    "schema.registry.timeout.ms": ("confluent-avro",),
}
"""Which formats an option is for."""


class FormatRules(NamedTuple):
    """Made where a query is planned, and pickled for its tasks."""

    value: str = "binary"
    key: str = "binary"
    schema: str = ""
    """As given: for JSON a Spark type in DDL or JSON, for Avro its JSON, for protobuf the path of its descriptors."""
    message: str = ""
    """Of protobuf."""
    mode: str = "PERMISSIVE"
    zone: str = "UTC"
    sample_size: int = _SAMPLE
    registry: Mapping[str, str] = {}
    descriptors: bytes = b""
    """What stands in the file of protobuf's descriptors: tasks may run where it is not."""
    value_type: DataType | None = None
    """What the schema makes of values; None where the query's own schema says it."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "FormatRules":
        """Raises UsageError."""
        given = {name.lower(): value for name, value in options.items()}
        value = parse_choice(given, "valueFormat", FORMATS)
        for option, formats in _OF_FORMAT.items():
            if option.lower() in given and value not in formats:
                raise UsageError(f"option {option} is for valueFormat={'|'.join(formats)}, not for {value}")
        mode = given.get("mode", _MODES[0]).strip().upper()
        if mode not in _MODES:
            raise UsageError(
                f"option mode={given['mode']!r} must be {' or '.join(_MODES)}; to leave out rows that do not parse, ask"
                f" for `{CORRUPT} IS NULL`"
            )
        rules = cls(
            value,
            parse_choice(given, "keyFormat", ("binary", "string")),
            given.get("valueschema", "").strip(),
            given.get("messagename", "").strip(),
            mode,
            given.get("timezone", "UTC").strip(),
            parse_count(given.get("samplesize", str(_SAMPLE)), "sampleSize"),
            {name.removeprefix(_REGISTRY): text for name, text in given.items() if name.startswith(_REGISTRY)},
        )
        time_zone(rules.zone)
        return rules._typed()

    @property
    def is_parsed(self) -> bool:
        """Whether values may fail to parse."""
        return self.value != "binary"

    @property
    def needs_sample(self) -> bool:
        """Whether the schema has to be found out from records."""
        return self.value == "json" and not self.schema

    @property
    def registry_timeout_s(self) -> float:
        return parse_count(self.registry.get("timeout.ms", str(_REGISTRY_TIMEOUT_MS)), f"{_REGISTRY}timeout.ms") / 1000

    def _typed(self) -> "FormatRules":
        """With `value_type`, where the options alone say it."""
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
        """A Spark type that only Spark itself can parse."""
        if self.value != "json" or self.value_type is not None or not self.schema:
            return None
        return self.schema if self.schema.lower().startswith("struct<") else f"struct<{self.schema}>"


def _type_of_json(text: str) -> StructType:
    try:
        found = StructType.fromJson(json.loads(text))
    except Exception as error:  # pyspark raises whatever the document makes it stumble over
        raise UsageError(
            f"option valueSchema begins with {{ and is not the JSON of a Spark schema ({error}); write"
            " `id bigint, name string` or what df.schema.json() gives"
        ) from None
    return found
