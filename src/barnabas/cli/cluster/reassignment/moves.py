"""The replicas of partitions as they are, and moves of them from the beginning to the end."""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Final

from barnabas import Admin
from barnabas.cli.cluster.reassignment.plan import Assignment
from barnabas.cli.cluster.reassignment.progress import wait_until_done
from barnabas.cli.cluster.reassignment.throttle import remove_throttle, set_throttle
from barnabas.cli.framework.app import Option
from barnabas.cli.framework.outcomes import outcomes
from barnabas.cli.framework.output import CommandFailed, notice
from barnabas.cli.framework.replication import ids_text
from barnabas.cli.framework.resources import broker_ids, plural
from barnabas.client.admin.reassignments import PartitionReassignment
from barnabas.connection.cluster import TopicView
from barnabas.types import TopicPartition

__all__ = [
    "Throttle",
    "alter_reassignments",
    "assignment_of",
    "begin_moves",
    "live_racks",
    "remove_throttle_at_end",
    "without_removing",
]

SETTLED_S: Final = 5.0
"""The time in which all brokers know of the end of a reassignment."""
POLL_S: Final = 0.2
PARTITIONS_AT_ONCE: Final = 1000
"""Barnabas's controller refuses more than 10,000 in one request."""

Throttle = Annotated[
    int,
    Option(
        metavar="BYTES",
        minimum=0,
        help="Copy at most so many bytes per second to and from each broker; 0 is no limit, or the one that is set.",
    ),
]


def assignment_of(views: Iterable[TopicView]) -> dict[TopicPartition, Sequence[int]]:
    """Returns all replicas of each partition, during a reassignment also those that leave at its end."""
    return {TopicPartition(view.name, p.partition): p.replicas for view in views for p in view.in_order()}


def without_removing(
    present: Assignment, running: Mapping[TopicPartition, PartitionReassignment]
) -> dict[TopicPartition, Sequence[int]]:
    """Returns the replicas of each partition once the running reassignments are done. The controller tells both parts
    of these: the broker that told the topics may not know of one that has just begun."""
    done = dict(present)
    for tp in present.keys() & running.keys():
        replicas, _, removing = running[tp]
        done[tp] = [node_id for node_id in replicas if node_id not in removing]
    return done


def live_racks(admin: Admin, wanted: Iterable[int] | None = None) -> dict[int, str | None]:
    """Returns the racks of these brokers, or of all that are live. Raises CommandFailed for one that is not live."""
    ids = broker_ids(admin, wanted)
    return {node_id: broker.rack for node_id, broker in admin.describe_cluster().brokers.items() if node_id in ids}


def begin_moves(admin: Admin, planned: Assignment, *, wait: bool, throttle: int) -> Mapping[TopicPartition, Exception]:
    """Begins the reassignments that change something, and may wait for their end. Returns the errors."""
    if not planned:
        return {}
    if throttle:
        set_throttle(admin, planned, throttle)
    failed = alter_reassignments(admin, planned)
    if wait:
        begun = {tp: replicas for tp, replicas in planned.items() if tp not in failed}
        wait_until_done(admin, begun)
        failed |= _not_moved(admin, begun)
        remove_throttle_at_end(admin)
    return failed


def alter_reassignments(
    admin: Admin, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, Exception]:
    """Begins reassignments, or cancels them (None), in requests that are not too large for a controller. Returns the
    errors."""
    failed: dict[TopicPartition, Exception] = {}
    partitions = list(wanted)
    for first in range(0, len(partitions), PARTITIONS_AT_ONCE):
        chunk: dict[tuple[str, int], Sequence[int] | None] = {
            tp: wanted[tp] for tp in partitions[first : first + PARTITIONS_AT_ONCE]
        }
        failed |= outcomes(partial(admin.alter_partition_reassignments, chunk))[1]
    return failed


def _not_moved(admin: Admin, planned: Assignment) -> dict[TopicPartition, CommandFailed]:
    """Returns an error for each partition whose reassignment is over and whose replicas are not those planned, as after
    a cancellation."""
    deadline = time.monotonic() + SETTLED_S
    while True:
        present = assignment_of(admin.list_topics(internal=True))
        others = {tp: present.get(tp, ()) for tp in planned if list(present.get(tp, ())) != list(planned[tp])}
        if not others or time.monotonic() >= deadline:
            break
        time.sleep(POLL_S)
    return {
        tp: CommandFailed(
            f"{tp} was not moved to {ids_text(planned[tp])}: "
            + (f"its replicas are {ids_text(found)}" if found else "it was deleted")
        )
        for tp, found in others.items()
    }


def remove_throttle_at_end(admin: Admin) -> None:
    """Removes the throttle of reassignments if none is in progress any more, and says so."""
    removed = remove_throttle(admin)
    if removed.topics:
        brokers, topics = ids_text(removed.brokers), plural(len(removed.topics), "topic")
        notice(f"removed the throttle from {topics} and the brokers {brokers}")
