"""How the members of a classic group share partitions; the member that leads computes it for all.

Main names: `Assignor` (what a caller's own must be), `Member`, `assignor_for`. Pure functions from what the members
tell to who gets what, so that members of any make give and take the same.
"""

from barnabas.client.consumer.assignors.members import Assignor, LastAssignment, Member, Shares, members_of
from barnabas.client.consumer.assignors.simple import RangeAssignor, RoundRobinAssignor
from barnabas.client.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from barnabas.errors import UsageError

__all__ = [
    "Assignor",
    "CooperativeStickyAssignor",
    "LastAssignment",
    "Member",
    "RangeAssignor",
    "RoundRobinAssignor",
    "Shares",
    "StickyAssignor",
    "assignor_for",
    "members_of",
]

_BY_NAME: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}


def assignor_for(strategy: object) -> Assignor:
    """What an item of `partition.assignment.strategy` stands for: a name, an assignor, or the class of one."""
    if isinstance(strategy, str):
        return _BY_NAME[strategy]
    assignor = strategy() if isinstance(strategy, type) else strategy
    if not isinstance(assignor, Assignor):
        raise UsageError(
            f"partition.assignment.strategy: {strategy!r} is no assignor: it needs name, cooperative, user_data, assign"
        )
    return assignor
