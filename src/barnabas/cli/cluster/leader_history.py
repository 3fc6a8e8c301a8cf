"""`barnabas cluster history`: why leaders moved."""

from collections.abc import Sequence

from barnabas.cli.framework.output import table, time_text
from barnabas.cli.framework.resources import is_pattern, name_pattern, split_partitions
from barnabas.client.admin.cluster import LeaderChange

__all__ = ["chosen_changes", "history_text"]


def chosen_changes(changes: Sequence[LeaderChange], asked: Sequence[str]) -> list[LeaderChange]:
    """Returns the changes of the partitions `flights`, `flights:0,2` and `^flights`; of all if none is asked for. The
    topics may be deleted since. Raises UsageError."""
    if not asked:
        return list(changes)
    chosen: dict[LeaderChange, None] = {}
    for text in asked:
        name, numbers = split_partitions(text)
        pattern = name_pattern(name) if is_pattern(name) else None
        for change in changes:
            named = pattern.fullmatch(change.topic) is not None if pattern else change.topic == name
            if named and (numbers is None or change.partition in numbers):
                chosen[change] = None
    return [change for change in changes if change in chosen]


def history_text(changes: Sequence[LeaderChange]) -> str:
    if not changes:
        return "no leader has moved"
    rows = [
        (
            *(time_text(c.time_ms), c.topic, c.partition, _leader(c.from_leader), _leader(c.to_leader)),
            *(c.leader_epoch, c.took_ms, c.reason),
        )
        for c in changes
    ]
    return table(("time", "topic", "partition", "from", "to", "epoch", "ms", "reason"), rows)


def _leader(node_id: int) -> str:
    return str(node_id) if node_id >= 0 else "none"
