"""Validates topic names by Kafka's rules, with Kafka's messages."""

from typing import Final

from barnabas.errors import InvalidTopic

__all__ = ["MAX_NAME_LENGTH", "has_collision_characters", "unify_collision_characters", "validate_topic_name"]

MAX_NAME_LENGTH: Final = 249
"""The bound lets `name-2147483647.<uuid>-delete` fit into the name of a directory."""

_LEGAL: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def validate_topic_name(name: str) -> None:
    """Raises InvalidTopic."""
    reason = _why_invalid(name)
    if reason is not None:
        raise InvalidTopic(f"Topic name is invalid: {reason}")


def _why_invalid(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL.issuperset(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def has_collision_characters(name: str) -> bool:
    """Returns whether the name could share a metric's name with another, because `.` and `_` look the same there."""
    return "." in name or "_" in name


def unify_collision_characters(name: str) -> str:
    return name.replace(".", "_")
