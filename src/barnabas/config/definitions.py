"""Defines settings: name, type, default, rule, documentation, and how the value is parsed, validated and formatted.

`--help`, the docs page, DescribeConfigs and validation read these objects. A bad value raises `InvalidConfig` with
Kafka's wording, because the same check answers AlterConfigs; at start-up `sources` turns it into a UsageError that also
says where the value came from.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from barnabas.errors import InvalidConfig
from barnabas.late_imports import import_late

__all__ = [
    "ConfigDef",
    "ConfigEntry",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "DynamicMode",
    "Importance",
    "OneOf",
    "Range",
    "Rule",
    "Setting",
    "Value",
    "at_least",
    "between",
    "nearest",
]

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None


class ConfigType(IntEnum):
    """A setting's type; the number is DescribeConfigs' config_type."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The source of a value. The number is DescribeConfigs' config_source."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class DynamicMode(IntEnum):
    """Whether a broker setting can change while the broker runs."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


class Importance(IntEnum):
    HIGH = 0
    MEDIUM = 1
    LOW = 2


class ConfigSynonym(NamedTuple):
    """One place that could set a value, most specific first. `value` is None where it is sensitive."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One line of DescribeConfigs. `value` is None where the setting is unset or sensitive."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str


class Rule(Protocol):
    """A condition on a parsed value."""

    def broken_by(self, value: Value) -> str | None:
        """Returns Kafka's sentence about an invalid value; None for a valid one."""

    def __str__(self) -> str:
        """Returns the rule as help and docs show it."""


class Range:
    """A number between two bounds, both inclusive; None is open."""

    __slots__ = ("high", "low")

    def __init__(self, low: float | None, high: float | None) -> None:
        self.low = low
        self.high = high

    def broken_by(self, value: Value) -> str | None:
        assert isinstance(value, int | float), value
        if self.low is not None and value < self.low:
            return f"Value must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {self.high}"
        return None

    def __str__(self) -> str:
        low = "" if self.low is None else f"{self.low},"
        high = "" if self.high is None else f",{self.high}"
        return f"[{low}...{high}]"


def at_least(low: float) -> Range:
    return Range(low, None)


def between(low: float, high: float) -> Range:
    return Range(low, high)


class OneOf:
    """A string, or each item of a list, from a fixed choice."""

    __slots__ = ("choices",)

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def broken_by(self, value: Value) -> str | None:
        if value in self.choices:
            return None
        return f"String must be one of: {', '.join(self.choices)}"

    def __str__(self) -> str:
        return f"[{', '.join(self.choices)}]"


_INTEGER_BITS: Final = {ConfigType.INT: 31, ConfigType.SHORT: 15, ConfigType.LONG: 63}
_DIGITS: Final = frozenset("0123456789")


class Setting:
    """One setting. `default` is a parsed value; None means unset. `synonyms` are the broker settings, in order of
    precedence, from which this one takes its value if it is not set."""

    __slots__ = ("default", "doc", "dynamic", "importance", "name", "rule", "synonyms", "type")

    def __init__(
        self,
        name: str,
        type: ConfigType,
        default: Value,
        doc: str,
        rule: Rule | None = None,
        importance: Importance = Importance.MEDIUM,
        dynamic: DynamicMode = DynamicMode.READ_ONLY,
        synonyms: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.doc = doc
        self.rule = rule
        self.importance = importance
        self.dynamic = dynamic
        self.synonyms = synonyms

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def attribute(self) -> str:
        """The name in Python: dots and dashes become underscores."""
        return self.name.replace(".", "_").replace("-", "_")

    def parse(self, text: str) -> Value:
        """Parses a text. Raises InvalidConfig with Kafka's sentence."""
        value = self._convert(text.strip(), text)
        rule = self.rule
        if rule is None:
            return value
        # Of a list from a fixed choice, the wrong item is shown; otherwise the whole value.
        for checked in value if isinstance(value, tuple) and isinstance(rule, OneOf) else (value,):
            problem = rule.broken_by(checked)
            if problem is not None:
                raise self._invalid(self._java(checked), problem)
        return value

    def format(self, value: Value) -> str | None:
        """Returns a value as the protocol shows it: lists joined by commas, booleans in lower case, None if unset."""
        if value is None:
            return None
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)

    def _convert(self, text: str, original: str) -> Value:
        kind = self.type
        if kind in _INTEGER_BITS:
            return self._integer(text, original)
        if kind is ConfigType.BOOLEAN:
            lowered = text.lower()
            if lowered not in ("true", "false"):
                raise self._invalid(original, "Expected value to be either true or false")
            return lowered == "true"
        if kind is ConfigType.LIST:
            return tuple(item.strip() for item in text.split(",")) if text else ()
        if kind is ConfigType.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise self._invalid(original, "Not a number of type DOUBLE") from None
        return text

    def _integer(self, text: str, original: str) -> int:
        digits = text[1:] if text[:1] in ("-", "+") else text
        # int() would also take 1_000 and Arabic digits, which Kafka's tools could not read back.
        if digits and _DIGITS.issuperset(digits) and len(digits) < 40:
            value = int(text)
            limit = 1 << _INTEGER_BITS[self.type]
            if -limit <= value < limit:
                return value
        raise self._invalid(original, f"Not a number of type {self.type.name}")

    def _java(self, value: Value) -> str:
        return f"[{', '.join(value)}]" if isinstance(value, tuple) else str(self.format(value))

    def _invalid(self, shown: str, problem: str) -> InvalidConfig:
        shown = "[hidden]" if self.sensitive else shown
        return InvalidConfig(f"Invalid value {shown} for configuration {self.name}: {problem}")


class ConfigDef:
    """A set of settings by name, in order of definition."""

    __slots__ = ("_settings",)

    def __init__(self, settings: Iterable[Setting]) -> None:
        self._settings = {setting.name: setting for setting in settings}

    def __contains__(self, name: object) -> bool:
        return name in self._settings

    def __getitem__(self, name: str) -> Setting:
        return self._settings[name]

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._settings.values())

    def __len__(self) -> int:
        return len(self._settings)

    def get(self, name: str) -> Setting | None:
        return self._settings.get(name)

    def names(self) -> list[str]:
        return list(self._settings)

    def defaults(self) -> dict[str, Value]:
        return {name: setting.default for name, setting in self._settings.items()}

    def parse_all(self, texts: Mapping[str, str]) -> dict[str, Value]:
        """The values of known settings. Raises InvalidConfig for the first bad one; KeyError for an unknown name."""
        return {name: self._settings[name].parse(text) for name, text in texts.items()}


def nearest(name: str, names: Iterable[str], cutoff: float = 0.7) -> str | None:
    """Returns the name that a misspelt one probably meant, or None."""
    close = import_late("difflib").get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return close[0] if close else None
