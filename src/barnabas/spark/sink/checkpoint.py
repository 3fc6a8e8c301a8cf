"""Reads the plan of a micro-batch from the query's checkpoint."""

import hashlib
import json
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

__all__ = ["BatchPlan", "read_batch_plan"]

_DIGITS: Final = 16


class BatchPlan(NamedTuple):
    """Spark's plan of a batch; both fields are empty if the plan cannot be read."""

    mark: str = ""
    """A hash of the batch's offsets, watermark and time. A batch that is repeated has the same mark. A later batch that
    gets the same number has at least another time, so another mark."""
    at_ms: int | None = None


def read_batch_plan(location: str | None, batch: int) -> BatchPlan:
    """Returns the plan of a batch. The plan is empty if the checkpoint is not on a disk of this machine."""
    directory = None if location is None else _local_path(location)
    if directory is None:
        return BatchPlan()
    try:
        content = (directory / "offsets" / str(batch)).read_bytes()
    except OSError:
        return BatchPlan()
    return BatchPlan(hashlib.sha256(content).hexdigest()[:_DIGITS], _timestamp_ms(content))


def _timestamp_ms(content: bytes) -> int | None:
    """Returns the batch's time from the second line of the file; the first line is the version of the format."""
    lines = content.splitlines()
    try:
        at_ms = json.loads(lines[1])["batchTimestampMs"]
    except (ValueError, LookupError, TypeError):
        return None
    return at_ms if isinstance(at_ms, int) else None


def _local_path(location: str) -> Path | None:
    parts = urlsplit(location)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(location)
