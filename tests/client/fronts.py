"""What both fronts of a client have in common."""

import inspect
from typing import Any

__all__ = ["public_methods"]


def public_methods(front: type) -> dict[str, Any]:
    """Returns the public methods by name, each with its arguments."""
    return {
        name: inspect.signature(member).replace(return_annotation=None)
        for name, member in inspect.getmembers(front, inspect.isfunction)
        if not name.startswith("_")
    }
