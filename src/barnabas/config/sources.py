"""Reads a broker's settings from server.properties, the environment and the command line; later ones win.

Every mistake is told in a line with the place of the setting, the rule and the name that was probably meant, all
of them at once. Settings that a Kafka knows and we do not need, and those of its plugins, are accepted and named in a
warning.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.config import kafka_names
from barnabas.config.broker import BrokerConfig, unknown_setting
from barnabas.config.broker_settings import BROKER_CONFIGS, setting_of
from barnabas.config.definitions import nearest
from barnabas.errors import InvalidConfig, UsageError, WrongSettings
from barnabas.printable import is_text

__all__ = ["ENVIRONMENT_PREFIX", "LoadedConfig", "load", "parse_properties", "parse_set", "read_properties"]

ENVIRONMENT_PREFIX: Final = "BARNABAS_"

_KAFKA_PREFIX: Final = "KAFKA_"
"""The variables from which Kafka's container images make their settings begin so."""
_FOREIGN_VARIABLES: Final = (
    *("CFG_", "LISTENER_NAME_", "CONFLUENT_", "CRUISE_CONTROL_", "RLMM_CONFIG_", "RSM_CONFIG_"),
    *("SUPER_USERS", "ALLOW_EVERYONE_IF_NO_ACL_FOUND"),
)
"""The beginnings of further ones; Bitnami's all begin with CFG_."""
_OF_KUBERNETES: Final = re.compile(r"_SERVICE_(HOST|PORT)(_|$)|_PORT_\d+_(TCP|UDP|SCTP)(_|$)")
"""Of a service named kafka-..., in the names of variables. One more has its address as its value."""
_ADDRESSES_OF_KUBERNETES: Final = ("tcp://", "udp://", "sctp://")

_NOT_SETTINGS: Final = frozenset(
    ("BARNABAS_CONFIG", "BARNABAS_BOOTSTRAP_SERVERS", "BARNABAS_BOOTSTRAP_SERVER", "BARNABAS_LOG_LEVEL")
)

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK: Final = " \t\f"


class LoadedConfig(NamedTuple):
    """A broker's settings, and warnings about them for its operator, one line each."""

    config: BrokerConfig
    warnings: tuple[str, ...]


class _Given(NamedTuple):
    text: str
    place: str


def load(
    files: Iterable[str | Path] = (),
    environment: Mapping[str, str] | None = None,
    arguments: Iterable[str] = (),
    *,
    options: Mapping[str, str] | None = None,
    not_settings: Collection[str] = (),
    defaults: Mapping[str, str] | None = None,
) -> LoadedConfig:
    """The settings of a broker. Raises WrongSettings, UsageError.

    `files`: server.properties in order. `environment`: os.environ where None. `arguments`: `--set NAME=VALUE`.
    `options`: settings from other options of the command line (such as --listen), by name; they win over all others.
    `not_settings`: BARNABAS_* variables that mean something else. `defaults`: settings that all others win over.
    """
    given = {name: _Given(text, "default") for name, text in (defaults or {}).items()}
    for path in files:
        given.update(_from_file(Path(path)))
    variables = os.environ if environment is None else environment
    from_environment, mistakes = _from_environment(variables, frozenset(not_settings))
    given.update(from_environment)
    for argument in arguments:
        name, text = parse_set(argument)
        given[name] = _Given(text, f"--set {argument}")
    given.update((name, _Given(text, "command line")) for name, text in (options or {}).items())
    return _checked(given, mistakes, _unread_variables(variables))


def parse_set(argument: str) -> tuple[str, str]:
    """Parses NAME=VALUE, as `--set` takes it. Raises UsageError."""
    name, equals, text = argument.partition("=")
    if not (equals and name.strip()):
        raise UsageError(f"--set {argument}: must be NAME=VALUE, such as --set log.segment.bytes=104857600")
    return name.strip(), text.strip()


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties format, as `java.util.Properties.load`: `#` and `!` comments, `=`, `:` or blanks between name
    and value, a backslash at the end continues the line, \\t \\n \\r \\f \\uXXXX escapes. The last of equal
    names wins."""
    return {name: value for name, value, _ in _properties(text)}


def _properties(text: str) -> Iterable[tuple[str, str, int]]:
    """Names and values with the number of the line on which each begins."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    index = 0
    while index < len(lines):
        first = index
        line = lines[index].lstrip(_BLANK)
        index += 1
        if not line or line[0] in "#!":
            continue
        while _continues(line) and index < len(lines):
            line = line[:-1] + lines[index].lstrip(_BLANK)
            index += 1
        if _continues(line):
            line = line[:-1]
        name, value = _split(line)
        yield _unescape(name), _unescape(value), first + 1


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """The raw name ends at the first unescaped `=`, `:` or blank; one `=` or `:` with blanks around it is eaten."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(raw: str) -> str:
    if "\\" not in raw:
        return raw
    pieces: list[str] = []
    position = 0
    while position < len(raw):
        character = raw[position]
        if character != "\\" or position + 1 == len(raw):
            pieces.append(character)
            position += 1
            continue
        escaped = raw[position + 1]
        if escaped == "u":
            digits = raw[position + 2 : position + 6]
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise UsageError(f"\\u{digits} is not \\u and four hexadecimal digits")
            pieces.append(chr(int(digits, 16)))
            position += 6
        else:
            pieces.append(_ESCAPES.get(escaped, escaped))
            position += 2
    try:  # a character beyond \\uFFFF is written as two
        return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise UsageError(f"{raw} has half a character: \\uD800 to \\uDFFF are written in pairs") from None


def read_properties(path: str | Path) -> dict[str, str]:
    """Returns the settings in a file. Raises UsageError, which names the file."""
    return {name: given.text for name, given in _from_file(Path(path)).items()}


def _from_file(path: Path) -> dict[str, _Given]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the settings file {path}: {reason}") from None
    try:
        return {name: _Given(value, f"{path}:{line}") for name, value, line in _properties(text)}
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _from_environment(
    environment: Mapping[str, str], not_settings: frozenset[str]
) -> tuple[dict[str, _Given], list[str]]:
    """Returns the settings, and a line about each variable that is none."""
    given: dict[str, _Given] = {}
    mistakes: list[str] = []
    names: dict[str, str] = {}
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _NOT_SETTINGS or variable in not_settings:
            continue
        names = names or _names_by_variable(ENVIRONMENT_PREFIX)
        name = names.get(variable)
        if name is None:
            mistakes.append(_unknown_variable(variable, names))
        elif not is_text(text):
            mistakes.append(f"environment variable {variable}={text} is not UTF-8")
        else:
            given[name] = _Given(text, f"environment variable {variable}")
    return given, mistakes


def _names_by_variable(prefix: str) -> dict[str, str]:
    return {
        prefix + name.replace(".", "_").replace("-", "_").upper(): name
        for name in (*kafka_names.WITHOUT_EFFECT, *BROKER_CONFIGS.names())
    }


def _unknown_variable(variable: str, names: Mapping[str, str]) -> str:
    close = nearest(variable, names)
    hint = f"did you mean {close}?" if close else "`barnabas serve --help` lists all settings"
    return f"environment variable {variable} names no setting of a broker; {hint}"


def _unread_variables(environment: Mapping[str, str]) -> list[str]:
    """Returns the variables that set something in containers of Kafka, and nothing here."""
    found = [
        variable
        for variable, text in environment.items()
        if variable.startswith(_KAFKA_PREFIX)
        and not text.startswith(_ADDRESSES_OF_KUBERNETES)
        and not _OF_KUBERNETES.search(variable)
    ]
    if not found:
        return []
    names = _names_by_variable(_KAFKA_PREFIX)
    plugins = (each.replace(".", "_").upper() for each in kafka_names.PLUGINS)
    beginnings = tuple(_KAFKA_PREFIX + each for each in (*_FOREIGN_VARIABLES, *plugins))
    return sorted(each for each in found if each in names or each.startswith(beginnings))


def _checked(given: Mapping[str, _Given], mistakes: list[str], unread: Sequence[str]) -> LoadedConfig:
    foreign: list[str] = []
    of_plugins: list[str] = []
    for name, (text, place) in given.items():
        setting = setting_of(name)
        if setting is None:
            if _known_to_kafka(name):
                foreign.append(name)
            elif _is_of_plugin(name):
                of_plugins.append(name)
            else:
                mistakes.append(f"{place}: {unknown_setting(name)}")
            continue
        try:
            setting.parse(text)
        except InvalidConfig as error:
            mistakes.append(f"{place}: {error}; {_rule(setting.rule, setting.type.name.lower())}")
    if foreign:
        mistakes += _lies({name: given[name] for name in foreign})
    warnings = (*_without_effect(foreign, of_plugins), *_about_variables(unread))
    if mistakes:
        raise WrongSettings(mistakes, warnings)
    try:
        config = BrokerConfig({name: text for name, (text, _) in given.items()})
    except InvalidConfig as error:
        raise UsageError(str(error)) from None
    return LoadedConfig(config, (*warnings, *config.limits_of_no_listener(given)))


def _known_to_kafka(name: str) -> bool:
    return kafka_names.without_effect(name)


def _is_of_plugin(name: str) -> bool:
    """Returns whether a name is so far from all of Kafka's that it is no mistyped one: Kafka gives each setting to its
    plugins, and starts with names that nobody knows."""
    known = (*BROKER_CONFIGS.names(), *kafka_names.WITHOUT_EFFECT)
    if name.startswith(kafka_names.PLUGINS):
        return nearest(name, known, 0.9) is None
    first, dot, _ = name.partition(".")
    return bool(dot) and first not in {each.partition(".")[0] for each in known} and nearest(name, known, 0.8) is None


def _lies(foreign: Mapping[str, _Given]) -> list[str]:
    refused = kafka_names.refusals({name: text for name, (text, _) in foreign.items()})
    return [
        f"{foreign[name].place}: {name}={foreign[name].text} cannot be honoured: {reason}; remove it to start without"
        for name, reason in refused.items()
    ]


def _rule(rule: object, kind: str) -> str:
    return f"it must be {'an' if kind == 'int' else 'a'} {kind}" + (f" in {rule}" if rule is not None else "")


def _without_effect(foreign: list[str], of_plugins: list[str]) -> tuple[str, ...]:
    if not (foreign or of_plugins):
        return ()
    parts = []
    if foreign:
        now = {name: kafka_names.OLD.get(name) for name in sorted(foreign)}
        names = (name if new is None else f"{name} (now {new})" for name, new in now.items())
        parts.append(f"of Kafka without effect here: {', '.join(names)}")
    if of_plugins:
        parts.append(f"of no Kafka, as those of plugins are: {', '.join(sorted(of_plugins))}")
    return ("settings " + "; and ".join(parts),)


def _about_variables(unread: Sequence[str]) -> tuple[str, ...]:
    if not unread:
        return ()
    names = _names_by_variable(ENVIRONMENT_PREFIX)
    read = [ENVIRONMENT_PREFIX + each.removeprefix(_KAFKA_PREFIX).removeprefix("CFG_") for each in unread]
    example = next((each for each in reversed(read) if each in names), "BARNABAS_NUM_PARTITIONS")
    are = "variables {} are" if len(unread) > 1 else "variable {} is"
    told = (
        f"environment {are.format(', '.join(unread))} not read: settings of a broker begin with {ENVIRONMENT_PREFIX}, "
        f"such as {example}"
    )
    return (told,)
