"""What a query's checkpoint tells the sink about the micro-batch that it is to commit."""

import hashlib
import json
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

__all__ = ["Planned", "planned"]

_DIGITS: Final = 16


class Planned(NamedTuple):
    """What Spark has planned for a batch."""

    mark: str = ""
    """Of its offsets, watermark and time: a batch that is repeated has the same one; where its number is given out
    again, to rows that were read anew, the time at least is another."""
    at_ms: int | None = None


def planned(location: str | None, batch: int) -> Planned:
    """Nothing where the checkpoint is not on a disk of this machine, or its place is not known."""
    folder = None if location is None else _local(location)
    if folder is None:
        return Planned()
    try:
        content = (folder / "offsets" / str(batch)).read_bytes()
    except OSError:
        return Planned()
    return Planned(hashlib.sha256(content).hexdigest()[:_DIGITS], _time(content))


def _time(content: bytes) -> int | None:
    """The first line of JSON has it, behind the one of the version."""
    lines = content.splitlines()
    try:
        at_ms = json.loads(lines[1])["batchTimestampMs"]
    except (ValueError, LookupError, TypeError):
        return None
    return at_ms if isinstance(at_ms, int) else None


def _local(location: str) -> Path | None:
    parts = urlsplit(location)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(location)
