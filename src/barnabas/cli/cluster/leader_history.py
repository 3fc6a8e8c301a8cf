"""`barnabas cluster history`: why leaders moved."""

from collections.abc import Sequence

from barnabas import Admin
from barnabas.cli.framework.output import table, time_text
from barnabas.cli.framework.resources import chosen_partitions, is_pattern, name_pattern, split_partitions
from barnabas.client.admin.cluster import LeaderChange

__all__ = ["chosen_changes", "history_text"]


def chosen_changes(admin: Admin, changes: Sequence[LeaderChange], asked: Sequence[str]) -> list[LeaderChange]:
    """Returns the changes of the partitions `flights`, `flights:0,2` and `^flights`; of all if none is asked for. The
    topics may be deleted since. Raises as `chosen_partitions` for what has no changes and does not exist."""
    if not asked:
        return list(changes)
    chosen: set[LeaderChange] = set()
    for text in asked:
        found = _changes_of(changes, text)
        if not found:
            chosen_partitions(admin, [text])
        chosen.update(found)
    return [change for change in changes if change in chosen]


def _changes_of(changes: Sequence[LeaderChange], text: str) -> list[LeaderChange]:
    name, numbers = split_partitions(text)
    pattern = name_pattern(name) if is_pattern(name) else None
    return [
        change
        for change in changes
        if (pattern.fullmatch(change.topic) is not None if pattern else change.topic == name)
        and (numbers is None or change.partition in numbers)
    ]


def history_text(changes: Sequence[LeaderChange], asked: Sequence[str]) -> str:
    if not changes:
        return "no leader" + (f" of {', '.join(asked)}" if asked else "") + " has moved"
    rows = [
        (
            *(time_text(c.time_ms), c.topic, c.partition, _leader(c.from_leader), _leader(c.to_leader)),
            *(c.leader_epoch, c.noticed_after_ms, c.took_ms, c.reason),
        )
        for c in changes
    ]
    return table(
        ("time", "topic", "partition", "from", "to", "epoch", "noticed after ms", "elected in ms", "reason"), rows
    )


def _leader(node_id: int) -> str:
    return str(node_id) if node_id >= 0 else "none"
