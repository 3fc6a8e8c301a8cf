"""Status and lag of queries, from their checkpoints and the ends of their topics."""

from collections.abc import Mapping
from typing import Any, Final

from barnabas.pipeline.checkpoint import Checkpoint
from barnabas.types import TopicPartition

__all__ = ["lag_rows", "status_row"]

_RECENT: Final = 10
"""The number of batches that a throughput is the mean of."""


def status_row(checkpoint: Checkpoint, end_offsets: Mapping[TopicPartition, int] | None) -> dict[str, Any]:
    """Returns a query's last batch, its throughput, and its lag where it reads topics and the brokers have answered."""
    last = checkpoint.last
    state = "nothing read"
    if last is not None:
        state = "done" if last.number in checkpoint.commits else "under way, or interrupted"
    return {
        "query": checkpoint.name,
        "id": checkpoint.query_id,
        "batch": None if last is None else last.number,
        "state": state,
        "begun_ms": None if last is None else last.time_ms,
        "offsets_per_second": _throughput(checkpoint),
        "watermark_ms": None if last is None else last.watermark_ms,
        "lag": sum(row["lag"] for row in lag_rows(checkpoint, end_offsets)) if end_offsets else None,
        "unreadable": [str(path) for path, _ in checkpoint.damages],
    }


def _throughput(checkpoint: Checkpoint) -> float | None:
    """Returns the offsets a second from the first of the recent batches to the last committed one."""
    numbers = sorted(n for n in checkpoint.batches if n in checkpoint.commits)[-_RECENT:]
    if len(numbers) < 2:
        return None
    first, last = checkpoint.batches[numbers[0]], checkpoint.batches[numbers[-1]]
    passed = (last.time_ms - first.time_ms) / 1000
    count = sum(offset - first.offsets.get(partition, 0) for partition, offset in last.offsets.items())
    return round(count / passed, 1) if passed > 0 and last.offsets else None


def lag_rows(checkpoint: Checkpoint, end_offsets: Mapping[TopicPartition, int]) -> list[dict[str, Any]]:
    """Returns for each partition the offset that the query has read up to, the end offset, and the lag."""
    done = checkpoint.done
    read = {} if done is None else done.offsets
    return [
        {
            "query": checkpoint.name,
            **partition._asdict(),
            "read": read.get(partition),
            "end": end,
            "lag": max(end - read.get(partition, 0), 0),
        }
        for partition, end in sorted(end_offsets.items())
    ]
