"""This process's loggers under Kafka's names for levels: what the resource type BROKER_LOGGER shows and changes.

Levels set this way last as long as the process, as in Kafka (KIP-412).
"""

import logging
from typing import Final

__all__ = ["LEVELS", "ROOT", "exists", "levels", "set_level", "unset_level"]

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
    """The level in force of each logger that exists."""
    manager = logging.Logger.manager
    names = sorted(name for name, logger in manager.loggerDict.items() if isinstance(logger, logging.Logger))
    return {ROOT: _level(logging.getLogger())} | {name: _level(logging.getLogger(name)) for name in names}


def exists(name: str) -> bool:
    return name == ROOT or isinstance(logging.Logger.manager.loggerDict.get(name), logging.Logger)


def set_level(name: str, level: str) -> None:
    """`level` is one of LEVELS."""
    logging.getLogger(None if name == ROOT else name).setLevel(LEVELS[level])


def unset_level(name: str) -> None:
    """Let a logger follow the one above it again."""
    logging.getLogger(name).setLevel(logging.NOTSET)


def _level(logger: logging.Logger) -> str:
    number = logger.getEffectiveLevel()
    found = _NAMES.get(number)
    if found is None:
        # A level between Kafka's: the next lower one lets through at least as much.
        lower = [value for value in _NAMES if value <= number]
        found = _NAMES[max(lower, default=min(_NAMES))]
    return found
