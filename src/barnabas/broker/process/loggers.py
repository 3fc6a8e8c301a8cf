"""Shows and changes the loggers of this process under Kafka's names for levels (resource type BROKER_LOGGER).

Levels set this way last as long as the process, as in Kafka (KIP-412).
"""

import logging
from collections.abc import Sequence
from typing import Final

from barnabas.controller.requests import ConfigOp, ConfigOperation
from barnabas.errors import InvalidConfig, InvalidRequest

__all__ = ["LEVELS", "ROOT", "alter", "levels"]

ROOT: Final = "root"
LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
_NAMES: Final = {number: name for name, number in LEVELS.items()}


def levels() -> dict[str, str]:
    """Returns the effective level of each existing logger."""
    known = logging.Logger.manager.loggerDict.items()
    names = sorted(name for name, logger in known if isinstance(logger, logging.Logger))
    return {ROOT: _level(logging.getLogger())} | {name: _level(logging.getLogger(name)) for name in names}


def alter(operations: Sequence[ConfigOperation], *, validate_only: bool) -> None:
    """Sets or unsets levels, all or none. Raises InvalidConfig or InvalidRequest."""
    for operation in operations:
        _check(operation)
    if validate_only:
        return
    for name, kind, level in operations:
        logger = logging.getLogger(None if name == ROOT else name)
        # Without a level of its own, a logger follows the one above it.
        logger.setLevel(LEVELS[level or ""] if kind == ConfigOp.SET else logging.NOTSET)


def _check(operation: ConfigOperation) -> None:
    name, kind, level = operation
    if kind not in (ConfigOp.SET, ConfigOp.DELETE):
        what = f"{ConfigOp(kind).name} operation" if kind in set(ConfigOp) else f"Unknown operation type {kind}"
        raise InvalidRequest(f"{what} is not allowed for the BROKER_LOGGER resource")
    if name != ROOT and not isinstance(logging.Logger.manager.loggerDict.get(name), logging.Logger):
        raise InvalidConfig(f"Logger {name} does not exist!")
    if kind == ConfigOp.DELETE and name == ROOT:
        raise InvalidRequest(f"Removing the log level of the {ROOT} logger is not allowed")
    if kind == ConfigOp.SET and level not in LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}"
        )


def _level(logger: logging.Logger) -> str:
    number = logger.getEffectiveLevel()
    if number in _NAMES:
        return _NAMES[number]
    # A level between Kafka's: the next lower one lets through at least as much.
    return _NAMES[max((value for value in _NAMES if value < number), default=min(_NAMES))]
