"""Assignors distribute the partitions among the members of a classic group. The group's leader runs one for all
members.

Main names: `Assignor` (the interface of an application's own), `Member`, `assignor_for`. An assignment depends on the
members alone, as with Kafka's assignors of the same names, and on the replicas' racks if members name theirs
(`RackAwareAssignor`).
"""

from barnabas.client.consumer.assignors.members import (
    Assignments,
    Assignor,
    LastAssignment,
    Member,
    RackAwareAssignor,
    ReplicaRacks,
    members_of,
)
from barnabas.client.consumer.assignors.racks import moved_to_other_racks, replica_racks
from barnabas.client.consumer.assignors.simple import RangeAssignor, RoundRobinAssignor
from barnabas.client.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from barnabas.errors import UsageError

__all__ = [
    "Assignments",
    "Assignor",
    "CooperativeStickyAssignor",
    "LastAssignment",
    "Member",
    "RackAwareAssignor",
    "RangeAssignor",
    "ReplicaRacks",
    "RoundRobinAssignor",
    "StickyAssignor",
    "assignor_for",
    "members_of",
    "moved_to_other_racks",
    "replica_racks",
]

_BY_NAME: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}


def assignor_for(strategy: object) -> Assignor:
    """Returns the assignor for an item of `partition.assignment.strategy`: a name, an assignor, or the class of one."""
    if isinstance(strategy, str):
        return _BY_NAME[strategy]
    assignor = strategy() if isinstance(strategy, type) else strategy
    if not isinstance(assignor, Assignor):
        raise UsageError(
            f"partition.assignment.strategy: {strategy!r} is no assignor: it needs name, cooperative, user_data, assign"
        )
    return assignor
