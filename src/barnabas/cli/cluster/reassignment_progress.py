"""The reassignments in progress, and how far their new replicas are."""

import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from barnabas import Admin
from barnabas.cli.framework.output import notice, size_text, table
from barnabas.cli.framework.replication import ids_text
from barnabas.cli.framework.resources import plural
from barnabas.client.errors import ItemsFailed
from barnabas.types import TopicPartition

__all__ = ["progress_rows", "progress_text", "wait_until_done"]

POLL_S: Final = 0.5


def progress_rows(admin: Admin, partitions: Collection[TopicPartition] | None = None) -> list[dict[str, Any]]:
    """Returns a row for each reassignment in progress, of these partitions or (None) of all."""
    running = admin.list_partition_reassignments()
    if partitions is not None:
        running = {tp: running[tp] for tp in partitions if tp in running}
    if not running:
        return []
    sizes = _sizes(admin, running)
    views = {view.name: view for view in admin.list_topics(internal=True)}
    rows = []
    for tp, found in sorted(running.items()):
        partition = views[tp.topic].partitions.get(tp.partition) if tp.topic in views else None
        in_sync = set(partition.in_sync_replicas) if partition is not None else set()
        whole = sizes.get((tp, partition.leader), 0) if partition is not None else 0
        behind = [node_id for node_id in found.adding_replicas if node_id not in in_sync]
        left = sum(max(0, whole - sizes.get((tp, node_id), 0)) for node_id in behind)
        rows.append(
            {
                **tp._asdict(),
                "replicas": list(found.replicas),
                "adding": list(found.adding_replicas),
                "removing": list(found.removing_replicas),
                "in_sync": [node_id for node_id in found.adding_replicas if node_id in in_sync],
                "bytes_left": left,
            }
        )
    return rows


def _sizes(admin: Admin, partitions: Collection[TopicPartition]) -> dict[tuple[TopicPartition, int], int]:
    """Returns the bytes of each partition on each live broker."""
    try:
        found = admin.describe_log_dirs(partitions=partitions)
    except ItemsFailed as error:
        found = dict(error.succeeded)
    return {
        (TopicPartition(replica.topic, replica.partition), node_id): replica.size_bytes
        for node_id, directories in found.items()
        for directory in directories
        for replica in directory.replicas
        if not replica.is_future
    }


def progress_text(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "no reassignment is in progress"
    cells = [
        (
            *(row["topic"], row["partition"]),
            *(ids_text(row[name]) for name in ("replicas", "adding", "removing", "in_sync")),
            size_text(row["bytes_left"]),
        )
        for row in rows
    ]
    return table(("topic", "partition", "replicas", "adding", "removing", "in sync", "to copy"), cells)


def wait_until_done(
    admin: Admin,
    partitions: Collection[TopicPartition],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Waits until the reassignments of these partitions are over, and tells the progress on a terminal's standard
    error."""
    before = ""
    while rows := progress_rows(admin, partitions):
        left = size_text(sum(row["bytes_left"] for row in rows))
        text = f"{plural(len(rows), 'partition')} of {len(partitions)} to go, {left} to copy"
        if text != before and sys.stderr.isatty():
            notice(text)
        before = text
        sleep(POLL_S)
