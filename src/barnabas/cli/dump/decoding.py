"""From a record of an internal topic to words, whatever it holds."""

from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.errors import CorruptMessage

__all__ = ["in_words"]

R = TypeVar("R")


def in_words(
    decode: Callable[[bytes, bytes | None], R],
    describe: Callable[[R, bytes, bytes | None], dict[str, Any]],
    key: bytes | None,
    value: bytes | None,
) -> dict[str, Any]:
    """What `describe` says of the decoded record. Never raises: what cannot be read says why under `unreadable`."""
    if key is None or len(key) < 2:
        return {"unreadable": "a record without a key"}
    try:
        record = decode(key, value)
    except CorruptMessage as error:
        return {"unreadable": str(error)}
    return describe(record, key, value)
