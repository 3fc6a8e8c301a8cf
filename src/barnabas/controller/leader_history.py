"""Decides which rows a write adds to the history of leaders: which leaders moved, why, and how long it took."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from barnabas.registry.registry import Change, LeaderChange, SetPartition
from barnabas.types import BrokerId

__all__ = ["Cause", "leader_changes"]


class Cause(NamedTuple):
    """The reason of a write. `since` is the monotonic time at which the controller was told of the event."""

    since: float
    reason: str = ""
    """'' if brokers have stopped or are back: then each partition tells which one."""
    fenced: Mapping[BrokerId, str] = {}
    """The brokers that the write fences, and why."""
    silent_s: float = 0.0
    """The time before `since` for which nothing was heard of these brokers."""


def leader_changes(
    image: MetadataImage, changes: Iterable[Change], cause: Cause, now: float, wall_ms: int
) -> list[LeaderChange]:
    """Returns a row for each partition that gets another leader, or the same one in a new leader epoch. `image` is the
    one before the changes, `now` and `wall_ms` are the time of the write."""
    took_ms = round((now - cause.since) * 1000)
    found: list[LeaderChange] = []
    for change in changes:
        if not isinstance(change, SetPartition):
            continue
        before, after = image.partition(change.name, change.partition_index), change.partition
        if before is None or before.leader_epoch == after.leader_epoch:
            continue
        found.append(
            LeaderChange(
                *(wall_ms, change.name, change.partition_index, before.leader, after.leader, after.leader_epoch),
                *(_reason(image, before, after, cause), took_ms),
                round(cause.silent_s * 1000) if before.leader in cause.fenced else 0,
            )
        )
    return found


def _reason(image: MetadataImage, before: PartitionImage, after: PartitionImage, cause: Cause) -> str:
    reason = cause.reason
    if before.leader in cause.fenced:
        reason = f"broker {before.leader}: {cause.fenced[before.leader]}"
    elif not reason and before.leader != NO_LEADER and (after.leader != before.leader):
        reason = f"broker {before.leader} stopped"
    elif not reason:
        reason = f"broker {after.leader} is back"
    if after.leader not in (NO_LEADER, before.leader, *before.isr, *before.elr):
        reason += "; unclean, records may be lost"
    return reason
