"""The base of all clients' settings: names in both spellings, Python values or texts, immutability, secrets.

A class of settings declares each setting once, as an attribute: `linger_ms: int = setting(...)` is Kafka's `linger.ms`.
Every mistake raises a UsageError that names the setting, the rule and a remedy.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, NoReturn

from barnabas.client.settings import foreign
from barnabas.config.definitions import ConfigDef, ConfigType, Importance, Rule, Setting, Value, nearest
from barnabas.errors import InvalidConfig, UsageError

__all__ = [
    "INT_MAX",
    "ClientSetting",
    "ClientSettings",
    "NotEmpty",
    "setting",
    "with_default",
]

INT_MAX: Final = 2**31 - 1
TEXT_BYTES_MAX: Final = 2**15 - 1


class NotEmpty:
    """The rule that a text must not be empty."""

    def broken_by(self, value: Value) -> str | None:
        return None if value else "String must be non-empty"

    def __str__(self) -> str:
        return "non-empty"


class ClientSetting(Setting):
    """A setting that may also take Python objects (`names` are the texts that stand for some of them), or texts in
    upper and lower case (`case` is the one in which they are kept)."""

    __slots__ = ("case", "names")

    def __init__(self, *definition: Any, case: str, names: Mapping[str, str] | None) -> None:
        super().__init__(*definition)
        self.case = case
        self.names = names
        """Texts with a meaning, Barnabas's and Java's, and the values that they stand for. None: texts only, or objects
        only."""

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.name = attribute.replace("_", ".")

    def take(self, value: object) -> object:
        """Returns the parsed value of a caller's value. Raises UsageError."""
        if isinstance(value, str) and not self.name.endswith(".location"):  # the name of a file need not be UTF-8
            self._check_sendable(value)
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

    def _check_sendable(self, text: str) -> None:
        """Raises UsageError, which may not show the text: it may be secret."""
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise UsageError(f"{self.name} is not UTF-8: it has half a character (a lone surrogate)") from None
        if self.type is ConfigType.STRING and size > TEXT_BYTES_MAX:
            raise UsageError(f"{self.name} has {size:,} bytes, and a text of a request at most {TEXT_BYTES_MAX:,}")

    def text(self, value: object) -> str:
        """Returns a Python value as the text that a properties file would have."""
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


def setting(
    type: ConfigType,
    default: Value,
    rule: Rule | None,
    importance: Importance,
    doc: str,
    *,
    case: str = "",
    names: Mapping[str, str] | None = None,
) -> Any:
    """Declares a setting in the body of a class of settings. Its type for type checkers is the attribute's."""
    return ClientSetting("", type, default, doc, rule, importance, case=case, names=names)


def with_default(inherited: Any, default: Value) -> Any:
    """Declares an inherited setting anew, with another default."""
    assert isinstance(inherited, ClientSetting), inherited
    known = inherited
    return setting(known.type, default, known.rule, known.importance, known.doc, case=known.case, names=known.names)


class ClientSettings:
    """One client's settings. Each definition is an attribute, dots written as underscores; unset is None.

    `ProducerSettings({"linger.ms": 5})`, `ProducerSettings({"linger_ms": 5})` and `ProducerSettings(linger_ms=5)` are
    the same. A value of None counts as not given.
    """

    own: ClassVar[tuple[ClientSetting, ...]] = ()
    """The settings that the class declares and its base has not."""
    definitions: ClassVar[ConfigDef] = ConfigDef(())
    client: ClassVar[str]
    """The client's name in messages."""

    given: Mapping[str, object]
    """The settings that the caller gave, under Kafka's names."""
    warnings: tuple[str, ...]
    """Warnings for the caller, one line each."""
    _values: dict[str, Any]
    _spellings: ClassVar[dict[str, str]]

    def __init_subclass__(cls) -> None:
        inherited = {known.name: known for known in cls.definitions}
        declared = {found.name: found for found in vars(cls).values() if isinstance(found, ClientSetting)}
        cls.own = tuple(found for name, found in declared.items() if name not in inherited)
        cls.definitions = ConfigDef((*cls.own, *(inherited | declared).values()))
        cls._spellings = {found.attribute: found.name for found in cls.definitions}
        cls._spellings.update((found.name, found.name) for found in cls.definitions)

    def __init__(self, settings: Mapping[str, object] | None = None, /, **named: object) -> None:
        if settings is not None and not isinstance(settings, Mapping):
            example = '{"bootstrap.servers": "host:9092"}, or bootstrap_servers="host:9092"'
            raise UsageError(f"settings are a dict of Kafka's names, such as {example}, not {settings!r:.80}")
        given, without_effect = self._sorted_out(settings or {}, named)
        values: dict[str, Any] = self.definitions.defaults()
        for name, value in given.items():
            definition = self.definitions[name]
            assert isinstance(definition, ClientSetting), definition
            values[name] = definition.take(value)
        warnings = self._completed(values, given)
        if without_effect:
            warnings.append(f"settings of Kafka without effect here: {', '.join(sorted(without_effect))}")
        attributes = self.__dict__
        attributes["given"] = given
        attributes["warnings"] = tuple(warnings)
        attributes["_values"] = values
        attributes.update((self.definitions[name].attribute, value) for name, value in values.items())

    def _completed(self, values: dict[str, Any], given: Mapping[str, object]) -> list[str]:
        """Sets the values that depend on several settings, and returns warnings. Raises UsageError for values that
        do not fit together."""
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
        """Returns the name of a setting of Kafka that may be ignored. Raises UsageError for all others."""
        for name in (spelling, spelling.replace("_", ".")):
            reason = foreign.refusal(name)
            if reason is not None:
                raise UsageError(f"{name} cannot be honoured: {reason}")
            if name in foreign.WITHOUT_EFFECT:
                return name
            ours = foreign.LIBRDKAFKA.get(name)
            if ours is not None:
                raise UsageError(f"{name} is librdkafka's name: {ours}")
        ours = foreign.PYTHON_CLIENTS.get(spelling)
        if ours is not None:
            raise UsageError(f"{spelling} is a name of kafka-python or aiokafka: {ours}")
        close = nearest(spelling.replace("_", "."), self.definitions.names())
        hint = f"; did you mean {close}?" if close else "; docs/client-settings.md lists all"
        raise UsageError(f"a {self.client} has no setting {spelling}{hint}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"settings do not change; make new ones ({name})")

    def __getitem__(self, name: str) -> Any:
        """Returns a value by Kafka's name."""
        return self._values[name]

    def replace(self, settings: Mapping[str, object] | None = None, /, **named: object) -> "ClientSettings":
        """Returns these settings with some set anew."""
        changed = type(self)(settings, **named).given
        return type(self)({**self.given, **changed})

    def shown(self) -> dict[str, str]:
        """Returns the given settings as texts for logs, without secrets."""
        texts = {}
        for name, value in self.given.items():
            texts[name] = "[hidden]" if self.definitions[name].sensitive else str(value)
        return texts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in self.shown().items())})"
