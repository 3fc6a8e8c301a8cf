"""The reassignments in progress, and how far their new replicas are."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from barnabas import Admin
from barnabas.cli.cluster.reassignment.throttle import Rates
from barnabas.cli.framework.output import size_text, table
from barnabas.cli.framework.progress import ProgressLines
from barnabas.cli.framework.replication import ids_text
from barnabas.cli.framework.resources import broker_ids, plural
from barnabas.client.admin.log_dirs import LogDir
from barnabas.client.errors import ItemsFailed
from barnabas.types import TopicPartition

__all__ = ["largest_replicas", "partition_sizes", "progress_rows", "progress_text", "seconds_text", "wait_until_done"]

POLL_S: Final = 0.5


def progress_rows(
    admin: Admin,
    partitions: Collection[TopicPartition] | None = None,
    rates: Mapping[int, Rates] | None = None,
) -> list[dict[str, Any]]:
    """Returns a row for each reassignment in progress, of these partitions or (None) of all. `rates`: the throttles of
    brokers, by which copies take a known time at least."""
    running = admin.list_partition_reassignments()
    if partitions is not None:
        running = {tp: running[tp] for tp in partitions if tp in running}
    if not running:
        return []
    sizes = _replica_sizes(_directories(admin, running))
    views = {view.name: view for view in admin.list_topics(internal=True)}
    rows = []
    times = _CopyTimes(rates or {})
    for tp, found in sorted(running.items()):
        partition = views[tp.topic].partitions.get(tp.partition) if tp.topic in views else None
        in_sync = set(partition.in_sync_replicas) if partition is not None else set()
        whole = sizes.get((tp, partition.leader), 0) if partition is not None else 0
        behind = {
            node_id: max(0, whole - sizes.get((tp, node_id), 0))
            for node_id in found.adding_replicas
            if node_id not in in_sync
        }
        if partition is not None:
            times.add(tp, partition.leader, behind)
        rows.append(
            {
                **tp._asdict(),
                "replicas": list(found.replicas),
                "adding": list(found.adding_replicas),
                "removing": list(found.removing_replicas),
                "in_sync": [node_id for node_id in found.adding_replicas if node_id in in_sync],
                "bytes_left": sum(behind.values()),
            }
        )
    for row in rows:
        row["throttle"], row["seconds_left"] = times.of(TopicPartition(row["topic"], row["partition"]))
    return rows


class _CopyTimes:
    """Estimates how long copies take at the rates of throttles: each broker has its rate for all that it copies."""

    def __init__(self, rates: Mapping[int, Rates]) -> None:
        self._rates = rates
        self._left: Counter[tuple[bool, int]] = Counter()
        """The bytes that a broker has to send (True) or to fetch (False)."""
        self._ways: dict[TopicPartition, set[tuple[bool, int]]] = {}

    def add(self, tp: TopicPartition, leader: int, behind: Mapping[int, int]) -> None:
        """Adds a partition, with the bytes that each of its new replicas lacks."""
        self._left[True, leader] += sum(behind.values())
        self._left.update({(False, node_id): size for node_id, size in behind.items()})
        self._ways[tp] = {(True, leader), *((False, node_id) for node_id in behind)}

    def of(self, tp: TopicPartition) -> tuple[int | None, float | None]:
        """Returns the lowest rate on the way of a partition's copies, and the seconds that they take at least. None:
        there is no rate."""
        limits = {way: rate for way in self._ways.get(tp, ()) if (rate := self._rate(*way)) is not None}
        seconds = [self._left[way] / rate for way, rate in limits.items() if rate > 0]
        return min(limits.values(), default=None), round(max(seconds), 1) if seconds else None

    def _rate(self, sends: bool, node_id: int) -> int | None:
        rates = self._rates.get(node_id, Rates())
        return rates.leader if sends else rates.follower


def partition_sizes(admin: Admin) -> dict[TopicPartition, int]:
    """Returns the bytes of a replica of each partition: of the largest one on a live broker."""
    return largest_replicas(_directories(admin, None))


def largest_replicas(directories: Mapping[int, Sequence[LogDir]]) -> dict[TopicPartition, int]:
    """Returns the bytes of the largest replica of each partition in brokers' log directories."""
    largest: dict[TopicPartition, int] = {}
    for (tp, _), size in _replica_sizes(directories).items():
        largest[tp] = max(size, largest.get(tp, 0))
    return largest


def _directories(admin: Admin, partitions: Collection[TopicPartition] | None) -> Mapping[int, Sequence[LogDir]]:
    """Returns the log directories of each live broker that answers, with these partitions or all."""
    try:
        return admin.describe_log_dirs(broker_ids(admin, None), partitions)
    except ItemsFailed as error:
        return dict(error.succeeded)


def _replica_sizes(directories: Mapping[int, Sequence[LogDir]]) -> dict[tuple[TopicPartition, int], int]:
    """Returns the bytes of partitions on each broker."""
    return {
        (TopicPartition(replica.topic, replica.partition), node_id): replica.size_bytes
        for node_id, found in directories.items()
        for directory in found
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
            f"{size_text(row['throttle'])}/s" if row["throttle"] is not None else None,
            seconds_text(row["seconds_left"]),
        )
        for row in rows
    ]
    headers = ("topic", "partition", "replicas", "adding", "removing", "in sync", "to copy", "throttle", "time left")
    return table(headers, cells)


def seconds_text(seconds: float | None) -> str | None:
    """`12 s`, `3 min 5 s`, `2 h 0 min`, rounded up; None for None."""
    if seconds is None:
        return None
    whole = math.ceil(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def wait_until_done(
    admin: Admin,
    partitions: Collection[TopicPartition],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Waits until the reassignments of these partitions are over, and tells the progress on a terminal's standard
    error."""
    progress = ProgressLines()
    first: tuple[float, int] | None = None
    while rows := progress_rows(admin, partitions):
        now, left = clock(), sum(row["bytes_left"] for row in rows)
        text = f"{plural(len(rows), 'partition')} of {len(partitions)} to go, {size_text(left)} to copy"
        first = first or (now, left)
        if left < first[1] and now > first[0]:
            rate = (first[1] - left) / (now - first[0])
            text += f", about {seconds_text(left / rate)} at {size_text(rate)}/s"
        progress.tell(text)
        sleep(POLL_S)
