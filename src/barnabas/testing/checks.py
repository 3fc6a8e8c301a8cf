"""Checks of what tests give to the kit."""

from collections.abc import Mapping

from barnabas.errors import UsageError

__all__ = ["refuse_settings", "require_count", "require_number"]


def require_number(value: object, least: float, most: float, rule: str) -> None:
    """Raises UsageError, which tells the rule and the value, unless it is a number between `least` and `most`."""
    if not (isinstance(value, int | float) and least <= value <= most):
        raise UsageError(f"{rule}, not {value!r}")


def require_count(value: object, most: int, rule: str) -> None:
    """Raises UsageError, which tells the rule and the value, unless it is a whole number from 1 to `most`."""
    if not (isinstance(value, int) and 1 <= value <= most):
        raise UsageError(f"{rule}, not {value!r}")


def refuse_settings(settings: Mapping[str, object], refused: Mapping[str, str]) -> None:
    """Raises UsageError for a setting that is among the refused ones, which come with the reasons."""
    for name in settings:
        if name in refused:
            raise UsageError(f"settings: {name} is not for a test to set: {refused[name]}")
