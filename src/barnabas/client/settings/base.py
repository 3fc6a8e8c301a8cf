"""What the settings of all clients share: names in both spellings, Python values or texts, immutability, secrets.

Whatever is wrong is a UsageError that names the setting, the rule and the way out.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, NoReturn

from barnabas.client.settings import foreign
from barnabas.config.definitions import ConfigDef, ConfigType, Importance, Rule, Setting, Value, nearest
from barnabas.errors import InvalidConfig, UsageError

__all__ = [
    "INT_MAX",
    "ClientSetting",
    "ClientSettings",
    "NotEmpty",
    "Row",
    "objects",
    "rows",
    "to_lower",
    "to_upper",
    "with_default",
]

INT_MAX: Final = 2**31 - 1

Row = tuple[str, ConfigType, Value, Rule | None, Importance, str]


class NotEmpty:
    """A rule: some text."""

    def broken_by(self, value: Value) -> str | None:
        return None if value else "String must be non-empty"

    def __str__(self) -> str:
        return "non-empty"


class ClientSetting(Setting):
    """A setting that may also take Python objects (`names` are the texts that stand for some of them), or texts in
    either case (`case` says in which they are kept)."""

    __slots__ = ("case", "names")

    def __init__(self, row: Row, case: str = "", names: Mapping[str, str] | None = None) -> None:
        name, kind, default, rule, importance, doc = row
        super().__init__(name, kind, default, doc, rule, importance)
        self.case = case
        self.names = names
        """Texts with a meaning, ours and Java's, and what they stand for; None: texts only, or objects only."""

    def take(self, value: object) -> object:
        """The parsed value of what a caller gave. Raises UsageError."""
        if self.type is ConfigType.CLASS:
            return self._object(value)
        if self.names is not None:
            return tuple(self._object(item) for item in _items(value))
        if self.type is ConfigType.PASSWORD:
            if not isinstance(value, str):
                raise UsageError(f"{self.name} takes a text, not {type(value).__name__}")
            return value
        text = self.text(value)
        if self.case:
            text = text.upper() if self.case == "upper" else text.lower()
        try:
            return self.parse(text)
        except InvalidConfig as error:
            rule = f" in {self.rule}" if self.rule is not None else ""
            raise UsageError(f"{error}; {self.name} takes a {self.type.name.lower()}{rule}") from None

    def text(self, value: object) -> str:
        """A Python value as server.properties would have it."""
        if isinstance(value, list | tuple | set | frozenset) and self.type is ConfigType.LIST:
            return ",".join(str(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value))
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str | int | float):
            return str(value)
        raise UsageError(f"{self.name} takes a {self.type.name.lower()}, not {type(value).__name__}")

    def _object(self, value: object) -> object:
        if not isinstance(value, str):
            return value
        text = value.strip()
        known = self.names or {}
        if text in known:
            return known[text]
        ours = sorted(set(known.values()))
        if ours:
            close = nearest(text, known)
            hint = f"did you mean {close!r}? " if close else ""
            raise UsageError(f"{self.name}={text!r} is not known: {hint}give one of {', '.join(ours)}, or an object")
        raise UsageError(f"{self.name} takes a Python object, not the text {text!r}")


def _items(value: object) -> Iterable[object]:
    if isinstance(value, str):
        return [item for item in (part.strip() for part in value.split(",")) if item]
    return value if isinstance(value, list | tuple) else (value,)


def with_default(settings: Iterable[ClientSetting], name: str, default: Value) -> Iterator[ClientSetting]:
    """The settings, one of them with another default."""
    for setting in settings:
        if setting.name == name:
            row = (name, setting.type, default, setting.rule, setting.importance, setting.doc)
            yield ClientSetting(row, setting.case, setting.names)
        else:
            yield setting


def rows(table: Iterable[Row]) -> Iterator[ClientSetting]:
    for row in table:
        yield ClientSetting(row)


def to_upper(table: Iterable[Row]) -> Iterator[ClientSetting]:
    """Settings whose text is taken in either case and kept in upper case."""
    for row in table:
        yield ClientSetting(row, case="upper")


def to_lower(table: Iterable[Row]) -> Iterator[ClientSetting]:
    for row in table:
        yield ClientSetting(row, case="lower")


def objects(row: Row, names: Mapping[str, str]) -> ClientSetting:
    """A setting that takes objects, or `names` for those that come with us."""
    return ClientSetting(row, names=names)


class ClientSettings:
    """One client's settings. Each definition is an attribute, dots written as underscores; unset is None.

    `ProducerSettings({"linger.ms": 5})`, `ProducerSettings({"linger_ms": 5})` and `ProducerSettings(linger_ms=5)` are
    the same. A value of None counts as not given.
    """

    definitions: ClassVar[ConfigDef]
    client: ClassVar[str]
    """What the messages call this client."""

    given: Mapping[str, object]
    """What the caller set, under Kafka's names."""
    warnings: tuple[str, ...]
    """What the caller should be told, one line each."""
    _values: dict[str, Any]
    _spellings: ClassVar[dict[str, str]]

    def __init_subclass__(cls) -> None:
        if "definitions" in cls.__dict__:
            cls._spellings = {setting.attribute: setting.name for setting in cls.definitions}
            cls._spellings.update((setting.name, setting.name) for setting in cls.definitions)

    def __init__(self, settings: Mapping[str, object] | None = None, /, **named: object) -> None:
        if settings is not None and not isinstance(settings, Mapping):
            example = '{"bootstrap.servers": "host:9092"}, or bootstrap_servers="host:9092"'
            raise UsageError(f"settings are a dict of Kafka's names, such as {example}, not {settings!r:.80}")
        given, without_effect = self._sorted_out(settings or {}, named)
        values: dict[str, Any] = self.definitions.defaults()
        for name, value in given.items():
            setting = self.definitions[name]
            assert isinstance(setting, ClientSetting), setting
            values[name] = setting.take(value)
        warnings = self._completed(values, given)
        if without_effect:
            warnings.append(f"settings of Kafka without effect here: {', '.join(sorted(without_effect))}")
        attributes = self.__dict__
        attributes["given"] = given
        attributes["warnings"] = tuple(warnings)
        attributes["_values"] = values
        attributes.update((self.definitions[name].attribute, value) for name, value in values.items())

    def _completed(self, values: dict[str, Any], given: Mapping[str, object]) -> list[str]:
        """Settle what depends on several settings; the warnings. Raises UsageError for what does not fit together."""
        return []

    def _sorted_out(
        self, settings: Mapping[str, object], named: Mapping[str, object]
    ) -> tuple[dict[str, object], list[str]]:
        given: dict[str, object] = {}
        without_effect: list[str] = []
        for source in (settings, named):
            for spelling, value in source.items():
                if value is None:
                    continue
                name = self._spellings.get(spelling)
                if name is None:
                    without_effect.append(self._of_kafka(spelling))
                elif name in given:
                    raise UsageError(f"{name} is given twice")
                else:
                    given[name] = value
        return given, without_effect

    def _of_kafka(self, spelling: str) -> str:
        """The name of a setting that Kafka knows and that may be ignored; UsageError for all others."""
        for name in (spelling, spelling.replace("_", ".")):
            reason = foreign.refusal(name)
            if reason is not None:
                raise UsageError(f"{name} cannot be honoured: {reason}")
            if name in foreign.WITHOUT_EFFECT:
                return name
            ours = foreign.LIBRDKAFKA.get(name)
            if ours is not None:
                raise UsageError(f"{name} is librdkafka's name: {ours}")
        close = nearest(spelling.replace("_", "."), self.definitions.names())
        hint = f"; did you mean {close}?" if close else "; docs/client-settings.md lists all"
        raise UsageError(f"a {self.client} has no setting {spelling}{hint}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"settings do not change; make new ones ({name})")

    def __getitem__(self, name: str) -> Any:
        """A value under Kafka's name."""
        return self._values[name]

    def replace(self, settings: Mapping[str, object] | None = None, /, **named: object) -> "ClientSettings":
        """As these, with some set anew."""
        changed = type(self)(settings, **named).given
        return type(self)({**self.given, **changed})

    def shown(self) -> dict[str, str]:
        """What was given, as texts for logs: no secrets."""
        texts = {}
        for name, value in self.given.items():
            texts[name] = "[hidden]" if self.definitions[name].sensitive else str(value)
        return texts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in self.shown().items())})"
