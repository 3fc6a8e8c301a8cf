"""The items that a reader yields for a file: dictionaries with `type`, `file` and the fields of the type."""

from typing import Any

__all__ = ["Item", "problem"]

Item = dict[str, Any]
"""type is `file`, `batch`, `record`, `entry`, or `problem`."""


def problem(file: str, position: int, message: str) -> Item:
    """Returns an item for a defect at a byte of a file."""
    return {"type": "problem", "file": file, "position": position, "message": message}
