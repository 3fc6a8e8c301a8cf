"""The committed offsets of groups, and their lag behind the ends of their partitions."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from barnabas import Admin
from barnabas.cli.framework.outcomes import outcomes
from barnabas.cli.framework.resources import watermarks
from barnabas.client.admin.groups import GroupDescription
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.errors import GroupIdNotFound, KafkaError
from barnabas.types import TopicPartition

__all__ = ["group_rows", "lag_text", "total_lag"]

Row = dict[str, Any]


def group_rows(
    admin: Admin, groups: Mapping[str, GroupDescription | None], *, skip_refused: bool = False
) -> dict[str, list[Row]]:
    """Returns for each group a row for each partition that has a commit or a member.

    Groups that do not exist have none. With `skip_refused` groups whose offsets the brokers refuse are left out.
    """
    committed: dict[str, Mapping[TopicPartition, OffsetAndMetadata]] = {}
    for group in groups:
        try:
            committed[group] = admin.list_group_offsets(group)
        except GroupIdNotFound:
            committed[group] = {}
        except KafkaError:
            if not skip_refused:
                raise
    owned = {group: _owned(groups[group]) for group in committed}
    marks = _watermarks(admin, {tp for group, offsets in committed.items() for tp in (*offsets, *owned[group])})
    return {
        group: [
            _row(tp, offsets.get(tp), marks.get(tp), owned[group].get(tp)) for tp in sorted({*offsets, *owned[group]})
        ]
        for group, offsets in committed.items()
    }


def _owned(description: GroupDescription | None) -> dict[TopicPartition, Any]:
    """Returns the member that each partition is assigned to."""
    return {tp: member for member in (description.members if description else ()) for tp in member.assignment}


def _row(tp: TopicPartition, committed: OffsetAndMetadata | None, marks: tuple[int, int] | None, owner: Any) -> Row:
    offset = committed.offset if committed is not None else None
    end = marks[1] if marks is not None else None
    return {
        **tp._asdict(),
        "committed_offset": offset,
        "end_offset": end,
        "lag": None if offset is None or end is None else max(end - offset, 0),
        "metadata": committed.metadata if committed is not None else None,
        "member_id": owner.member_id if owner else None,
        "client_id": owner.client_id if owner else None,
        "host": owner.client_host if owner else None,
    }


def _watermarks(admin: Admin, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the watermarks of the partitions that exist: commits outlive topics."""
    views, _ = outcomes(lambda: admin.describe_topics({tp.topic for tp in partitions}))
    there = {TopicPartition(name, number) for name, view in views.items() for number in view.partitions}
    return watermarks(admin, [tp for tp in partitions if tp in there])


def total_lag(rows: Iterable[Row]) -> int | None:
    """Returns the sum of the lags that are known; None where there are none."""
    lags = [row["lag"] for row in rows if row["lag"] is not None]
    return sum(lags) if lags else None


def lag_text(rows: Sequence[Row]) -> str:
    """Returns `lag 5` with the number of partitions without a known lag, or `no commits`."""
    committed = [row for row in rows if row["committed_offset"] is not None]
    if not committed:
        return "no commits"
    total = total_lag(rows)
    parts = ["lag unknown" if total is None else f"lag {total}"]
    uncommitted, gone = len(rows) - len(committed), sum(row["end_offset"] is None for row in committed)
    if uncommitted:
        parts.append(f"{uncommitted} of {len(rows)} partitions without a commit")
    if gone:
        parts.append(f"{gone} of {len(rows)} partitions do not exist any more")
    return ", ".join(parts)
