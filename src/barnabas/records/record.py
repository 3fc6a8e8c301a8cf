"""One record, independent of the format that it was stored in."""

from typing import NamedTuple

__all__ = ["Headers", "Record"]

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record with its absolute offset and its timestamp in milliseconds (-1: none)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
