"""Dumps `.index` and `.timeindex` files, and checks their entries in themselves and against the segment beside them.

Offset index: (offset - base i32, position i32). Time index: (timestamp i64, offset - base i32). Both may end in zeros:
an open segment's index is as large as it may become.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from barnabas.cli.dump.items import Item, problem
from barnabas.cli.dump.log_file import LogScan

__all__ = ["dump_offset_index", "dump_time_index"]

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")


def _base_offset(path: str) -> int:
    stem = Path(path).name.split(".")[0]
    return int(stem) if stem.isdigit() else 0


def _entries(path: str, packed: Struct) -> Iterator[tuple[int, tuple[int, ...]] | Item]:
    """Yields (position, fields) of the entries before the zeros, and a problem if the file's size is wrong."""
    data = Path(path).read_bytes()
    whole = len(data) - len(data) % packed.size
    end = len(data.rstrip(b"\0"))
    used = min(-(-end // packed.size) * packed.size, whole)
    for position in range(0, used, packed.size):
        yield position, packed.unpack_from(data, position)
    if whole != len(data):
        yield problem(path, whole, f"{len(data)} bytes are no multiple of an entry's {packed.size}")


def dump_offset_index(path: str, log: LogScan | None) -> Iterator[Item]:
    """Entries must go up, and each must point at a batch that begins at or before its offset."""
    base = _base_offset(path)
    starts = {} if log is None else {place.position: place for place in log.places}
    before: tuple[int, int] | None = None
    for found in _entries(path, _OFFSET_ENTRY):
        if isinstance(found, dict):
            yield found
            continue
        at, (relative, position) = found
        entry = f"entry {base + relative} -> {position}"
        yield {"type": "entry", "file": path, "position": at, "offset": base + relative, "log_position": position}
        if before is not None and (relative <= before[0] or position <= before[1]):
            yield problem(path, at, f"{entry} does not follow {base + before[0]} -> {before[1]}")
        before = (relative, position)
        place = starts.get(position)
        if log is not None and place is None:
            yield problem(path, at, f"{entry}: no batch begins there")
        elif place is not None and place.base_offset > base + relative:
            yield problem(path, at, f"{entry}: the batch there begins at {place.base_offset}")


def dump_time_index(path: str, log: LogScan | None) -> Iterator[Item]:
    """Timestamps and offsets must go up; the batch of the offset must have the timestamp."""
    base = _base_offset(path)
    before: tuple[int, int] | None = None
    for found in _entries(path, _TIME_ENTRY):
        if isinstance(found, dict):
            yield found
            continue
        at, (timestamp, relative) = found
        offset, entry = base + relative, f"entry {timestamp} -> {base + relative}"
        yield {"type": "entry", "file": path, "position": at, "timestamp": timestamp, "offset": offset}
        if before is not None and (timestamp < before[0] or relative < before[1]):
            yield problem(path, at, f"{entry} does not follow {before[0]} -> {base + before[1]}")
        before = (timestamp, relative)
        place = None if log is None else log.place_of(offset)
        if log is not None and place is None:
            yield problem(path, at, f"{entry}: the log ends before this offset")
        elif (
            place is not None and place.magic == 2 and place.max_timestamp != timestamp and place.base_offset <= offset
        ):
            yield problem(path, at, f"{entry}: the batch there has the timestamp {place.max_timestamp}")
