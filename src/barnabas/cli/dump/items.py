"""What a reader finds in a file: a dictionary with `type`, `file` and what belongs to the type."""

from typing import Any

__all__ = ["Item", "problem"]

Item = dict[str, Any]
"""type is `file`, `batch`, `record`, `entry`, or `problem`."""


def problem(file: str, position: int, message: str) -> Item:
    """Something is wrong at a byte of a file."""
    return {"type": "problem", "file": file, "position": position, "message": message}
