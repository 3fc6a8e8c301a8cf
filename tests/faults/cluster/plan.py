"""The faults of a round, drawn from its seed before it begins.

A fault names a role (the leader of a partition, the controller), not a broker: who has the role is found out when the
fault happens. At most one data directory is lost at a time, and only when all replicas are in sync: min.insync.replicas
promises no more.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

__all__ = ["CALM_S", "PAUSE_S", "Deed", "Fault", "Role", "draw"]


class Deed(Enum):
    """The faults; each ends by itself after a while."""

    KILL = "killed"
    TERMINATE = "terminated"
    FREEZE = "stopped"
    WIPE = "wiped"
    CUT = "cut off"


class Role(Enum):
    """The brokers that a fault may hit."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    GROUP_COORDINATOR = "group coordinator"
    TRANSACTION_COORDINATOR = "transaction coordinator"
    ANY = "broker"
    ALL = "all brokers"


DEEDS = {Deed.KILL: 8, Deed.TERMINATE: 4, Deed.FREEZE: 5, Deed.WIPE: 2, Deed.CUT: 3}
ROLES = {
    Role.LEADER: 5,
    Role.FOLLOWER: 3,
    Role.CONTROLLER: 4,
    Role.GROUP_COORDINATOR: 2,
    Role.TRANSACTION_COORDINATOR: 2,
    Role.ANY: 1,
    Role.ALL: 1,
}
PAUSE_S = (1.0, 9.0)
"""From one fault to the next: less than some need to be mended, so that faults meet."""
CALM_S = (10.0, 14.0)
"""The same where each fault is to be felt alone, to measure it."""
FROZEN_S = ((0.2, 2.0), (2.0, 8.0), (10.0, 20.0))
DOWN_S = ((0.0, 0.0), (0.1, 1.0), (1.0, 8.0))
CUT_S = ((0.2, 2.0), (2.0, 12.0))


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at ``at_s`` of the round that ends ``for_s`` later, or as soon as its target lives again."""

    at_s: float
    deed: Deed
    role: Role
    partition: int
    """The number that chooses a partition, where the role is one of a partition."""
    for_s: float
    both_ways: bool = True
    """Whether a cut stops both directions, or only what comes from the target."""

    def __str__(self) -> str:
        one_way = "" if self.both_ways else " one way"
        which = f" of {self.partition}" if self.role in (Role.LEADER, Role.FOLLOWER) else ""
        return f"{self.role.value}{which} {self.deed.value}{one_way} at {self.at_s:.1f} for {self.for_s:.1f} s"


def draw(
    rng: random.Random, seconds: float, partitions: int, deeds: set[Deed], pause_s: tuple[float, float] = PAUSE_S
) -> list[Fault]:
    """Returns the faults of a round of so many seconds, of the given kinds, in the order of time. ``pause_s`` are the
    shortest and the longest time from one to the next."""
    faults: list[Fault] = []
    at_s = rng.uniform(0.5, 3.0)
    while at_s < seconds - 1.0:
        deed = rng.choices([*DEEDS], [*DEEDS.values()])[0]
        role = rng.choices([*ROLES], [*ROLES.values()])[0]
        longest = {Deed.FREEZE: FROZEN_S, Deed.CUT: CUT_S}.get(deed, DOWN_S)
        for_s = min(rng.uniform(*rng.choice(longest)), max(seconds - at_s, 0.5))
        if role is Role.ALL and deed in (Deed.WIPE, Deed.CUT):
            role = Role.ANY
        fault = Fault(at_s, deed, role, rng.randrange(partitions), for_s, both_ways=rng.random() < 0.6)
        if deed in deeds:
            faults.append(fault)
        at_s += rng.uniform(*pause_s)
    return faults
