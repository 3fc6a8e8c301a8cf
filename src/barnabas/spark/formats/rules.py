"""What the options say about keys and values: which format, which schema, what to do about what does not parse."""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql.types import DataType, StringType, StructType

from barnabas.errors import UsageError
from barnabas.spark.formats.times import time_zone
from barnabas.spark.option_table import parse_count

__all__ = ["CORRUPT", "FORMATS", "FormatRules"]

CORRUPT: Final = "_corrupt"
"""The column of raw values that do not parse."""
FORMATS: Final = ("binary", "string", "json")
_MODES: Final = ("PERMISSIVE", "FAILFAST")
_SAMPLE: Final = 1000
_OF_FORMAT: Final = {
    "valueSchema": ("json",),
    "timeZone": ("json",),
    "sampleSize": ("json",),
}
"""Which formats an option is for."""


class FormatRules(NamedTuple):
    """Made where a query is planned, and pickled for its tasks."""

    value: str = "binary"
    key: str = "binary"
    schema: str = ""
    """As given: a Spark type in DDL or JSON."""
    mode: str = "PERMISSIVE"
    zone: str = "UTC"
    sample_size: int = _SAMPLE
    value_type: DataType | None = None
    """What the schema makes of values; None where the query's own schema says it."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "FormatRules":
        """Raises UsageError."""
        given = {name.lower(): value for name, value in options.items()}
        value = _choice(given, "valueFormat", FORMATS)
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
            _choice(given, "keyFormat", ("binary", "string")),
            given.get("valueschema", "").strip(),
            mode,
            given.get("timezone", "UTC").strip(),
            parse_count(given.get("samplesize", str(_SAMPLE)), "sampleSize"),
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

    def _typed(self) -> "FormatRules":
        """With `value_type`, where the options alone say it."""
        if self.value == "string":
            return self._replace(value_type=StringType())
        if self.value == "json" and self.schema.startswith("{"):
            return self._replace(value_type=_type_of_json(self.schema))
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


def _choice(given: Mapping[str, str], option: str, choices: tuple[str, ...]) -> str:
    value = given.get(option.lower(), choices[0]).strip().lower()
    if value not in choices:
        raise UsageError(f"option {option}={value!r} must be one of {', '.join(choices)}")
    return value
