"""Checks of what tests give to the kit."""

import threading
from collections.abc import Iterable, Mapping
from typing import TypeGuard

from barnabas.client.admin.arguments import READERS
from barnabas.client.admin.topics import NewTopic
from barnabas.errors import UsageError

__all__ = [
    "new_topics",
    "refuse_settings",
    "require_count",
    "require_number",
    "require_partition",
    "require_patience",
    "require_timeout",
]


def require_number(value: object, least: float, most: float, rule: str) -> None:
    """Raises UsageError, which tells the rule and the value, unless it is a number between `least` and `most`."""
    if isinstance(value, bool) or not (isinstance(value, int | float) and least <= value <= most):
        raise UsageError(f"{rule}, not {value!r}")


def require_count(value: object, most: int, rule: str) -> None:
    """Raises UsageError, which tells the rule and the value, unless it is a whole number from 1 to `most`."""
    if not (_is_whole(value) and 1 <= value <= most):
        raise UsageError(f"{rule}, not {value!r}")


def require_partition(value: object) -> None:
    """Raises UsageError unless it is a whole number."""
    if not _is_whole(value):
        raise UsageError(f"partitions have the numbers 0, 1 and so on, not {value!r}")


def require_patience(value: object) -> None:
    """Raises UsageError unless it is a number of seconds that a thread can wait."""
    require_number(value, 0, threading.TIMEOUT_MAX, "patience is a number of seconds from 0 on")


def require_timeout(value: object) -> None:
    """Raises UsageError unless it is a number of seconds; those below 0 are none."""
    require_number(value, float("-inf"), float("inf"), "timeout is a number of seconds")


def new_topics(topics: NewTopic | str | Iterable[NewTopic | str]) -> list[NewTopic]:
    """Returns the topics that are to be created. Raises UsageError as an administrator does."""
    checked: list[NewTopic] = READERS["topics"]("topics", topics)
    return checked


def refuse_settings(settings: object, refused: Mapping[str, str]) -> None:
    """Raises UsageError for a setting that is among the refused ones, which come with the reasons."""
    if not isinstance(settings, Mapping):
        raise UsageError(
            f'settings has values under Kafka\'s names, as in {{"num.partitions": 4}}; it is not {settings!r}'
        )
    for name in settings:
        if name in refused:
            raise UsageError(f"settings: {name} is not for a test to set: {refused[name]}")


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
