"""What a query's checkpoint tells the sink about the micro-batch that it is to commit."""

import hashlib
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

__all__ = ["plan_of"]

_DIGITS: Final = 16


def plan_of(location: str | None, batch: int) -> str:
    """A mark of what Spark has planned for the batch: offsets, watermark, time. A batch that is repeated has the same
    one; where its number is given out again, to rows that were read anew, the time at least is another.

    Empty where the checkpoint is not on a disk of this machine, or its place is not known.
    """
    folder = None if location is None else _local(location)
    if folder is None:
        return ""
    try:
        planned = (folder / "offsets" / str(batch)).read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(planned).hexdigest()[:_DIGITS]


def _local(location: str) -> Path | None:
    parts = urlsplit(location)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(location)
