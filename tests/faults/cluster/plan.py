"""The faults of a round, drawn from its seed before it begins.

A fault names a role (the leader of a partition, the controller), not a broker: who has the role is found out when the
fault happens. At most one broker loses data directories at a time, or has old ones, and only when all replicas are in
sync: min.insync.replicas promises no more. All brokers may find other directories than they had, or an old registry, if
they get their own back: their starts are refused until then.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

__all__ = [
    "BAD_MACHINE",
    "CALM_S",
    "DIRECTORIES",
    "LINKS",
    "ONE_MACHINE",
    "PAUSE_S",
    "ZOOKEEPER",
    "Deed",
    "Fault",
    "Role",
    "draw",
]


class Deed(Enum):
    """The faults; each ends by itself after a while."""

    KILL = "killed"
    TERMINATE = "terminated"
    FREEZE = "stopped"
    WIPE = "wiped"
    CUT = "cut off"
    FLAP = "cut off again and again"
    WORSEN = "connected badly"
    UNMOUNT = "started without a mount"
    OLD_COPY = "given an old copy of its directories"
    COPY = "copied and started beside"
    OLD_REGISTRY = "given an old registry"
    STARVE = "left without descriptors"
    SWALLOW = "cut off from large packets"
    FAIL_DISK = "given a disk that fails"
    HANG_DISK = "given a disk that stands still"
    CLOCK = "given another time"
    MEMORY = "left without memory"
    ALLOCATIONS = "denied allocations"


class Role(Enum):
    """The brokers that a fault may hit."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    GROUP_COORDINATOR = "group coordinator"
    TRANSACTION_COORDINATOR = "transaction coordinator"
    ANY = "broker"
    ALL = "all brokers"
    ZOOKEEPER_LEADER = "ZooKeeper's leader"
    QUORUM = "ZooKeeper's quorum"
    CONTROLLER_AND_ZOOKEEPER_LEADER = "controller and ZooKeeper's leader"


DEEDS = {
    Deed.KILL: 8,
    Deed.TERMINATE: 4,
    Deed.FREEZE: 5,
    Deed.WIPE: 2,
    Deed.CUT: 3,
    Deed.UNMOUNT: 3,
    Deed.OLD_COPY: 3,
    Deed.COPY: 2,
    Deed.OLD_REGISTRY: 2,
    Deed.STARVE: 2,
    Deed.FAIL_DISK: 4,
    Deed.HANG_DISK: 3,
    Deed.CLOCK: 2,
    Deed.MEMORY: 2,
    Deed.ALLOCATIONS: 4,
}
BAD_MACHINE = {Deed.FAIL_DISK, Deed.HANG_DISK, Deed.CLOCK}
"""Faults that need a `BadMachine`."""
DISKS = {Deed.FAIL_DISK, Deed.HANG_DISK}
"""All brokers at once have but one disk, that of the registry's file."""
DIRECTORIES = {Deed.UNMOUNT, Deed.OLD_COPY, Deed.COPY, Deed.OLD_REGISTRY}
"""Faults of what lies on the disks."""
ALL_SHARE = 0.3
"""How many of them meet all brokers at once."""
LACKS = {Deed.STARVE, Deed.MEMORY, Deed.ALLOCATIONS, *BAD_MACHINE}
"""Faults of what a machine has for its processes."""
LACKING_S = ((0.5, 3.0), (3.0, 12.0))
AWAY_S = ((0.5, 3.0), (3.0, 10.0), (10.0, 15.0))
ROLES = {
    Role.LEADER: 5,
    Role.FOLLOWER: 3,
    Role.CONTROLLER: 4,
    Role.GROUP_COORDINATOR: 2,
    Role.TRANSACTION_COORDINATOR: 2,
    Role.ANY: 1,
    Role.ALL: 1,
}
LINKS = {Deed.CUT, Deed.FLAP, Deed.WORSEN, Deed.SWALLOW}
"""Faults of a machine's links. All others hit processes."""
ONE_MACHINE = {Deed.COPY, Deed.OLD_REGISTRY, Deed.STARVE, Deed.MEMORY, Deed.ALLOCATIONS}
"""Faults of brokers that share a file, or that are no grandchildren of the harness."""
ZOOKEEPER = {Role.ZOOKEEPER_LEADER, Role.QUORUM, Role.CONTROLLER_AND_ZOOKEEPER_LEADER}
MACHINES_DEEDS = {
    **{deed: weight for deed, weight in DEEDS.items() if deed not in ONE_MACHINE},
    Deed.CUT: 8,
    Deed.FLAP: 4,
    Deed.WORSEN: 4,
    Deed.SWALLOW: 4,
}
MACHINES_ROLES = {
    **ROLES,
    Role.ZOOKEEPER_LEADER: 4,
    Role.QUORUM: 2,
    Role.CONTROLLER_AND_ZOOKEEPER_LEADER: 3,
}
ALONE_SHARE = 0.2
"""How many rounds have one fault alone, to the end: a machine that is cut off from all others, or one bad disk."""
ALONE_ROLES = (Role.LEADER, Role.CONTROLLER)
ALONE_ROLES_OF_MACHINES = (*ALONE_ROLES, Role.ZOOKEEPER_LEADER)
PAUSE_S = (1.0, 9.0)
"""From one fault to the next: less than some need to be mended, so that faults meet."""
CALM_S = (10.0, 14.0)
"""The same where each fault is to be felt alone, to measure it."""
FROZEN_S = ((0.2, 2.0), (2.0, 8.0), (10.0, 20.0))
DOWN_S = ((0.0, 0.0), (0.1, 1.0), (1.0, 8.0))
CUT_S = ((0.2, 2.0), (2.0, 12.0))
MACHINES_CUT_S = (*CUT_S, (12.0, 25.0))
"""Longer than ZooKeeper's session may be."""


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
    """Whether a fault of links meets both directions, or only what comes from the target."""
    one_peer: bool = False
    """Whether a fault of links meets those to one of the others, or to all."""

    def __str__(self) -> str:
        which = f" of {self.partition}" if self.role in (Role.LEADER, Role.FOLLOWER) else ""
        return f"{self.role.value}{which} {self.what} at {self.at_s:.1f} for {self.for_s:.1f} s"

    @property
    def what(self) -> str:
        """The fault in words, without its target and times."""
        if self.deed not in LINKS:
            return self.deed.value
        one_peer = " from one other" if self.one_peer else ""
        return f"{self.deed.value}{one_peer}{'' if self.both_ways else ' one way'}"


def draw(
    rng: random.Random,
    seconds: float,
    partitions: int,
    deeds: set[Deed],
    pause_s: tuple[float, float] = PAUSE_S,
    *,
    machines: bool = False,
) -> list[Fault]:
    """Returns the faults of a round of so many seconds, of the given kinds, in the order of time. ``pause_s`` are the
    shortest and the longest time from one to the next. ``machines``: each broker is on a machine of its own, with a
    ZooKeeper."""
    deed_weights, role_weights = (MACHINES_DEEDS, MACHINES_ROLES) if machines else (DEEDS, ROLES)
    faults: list[Fault] = []
    at_s = rng.uniform(0.5, 3.0)
    alone = sorted(deeds & ({Deed.CUT} if machines else DISKS), key=lambda deed: deed.name)
    if rng.random() < ALONE_SHARE and alone:
        role = rng.choice(ALONE_ROLES_OF_MACHINES if machines else ALONE_ROLES)
        return [Fault(at_s, rng.choice(alone), role, rng.randrange(partitions), max(seconds - at_s, 0.5))]
    while at_s < seconds - 1.0:
        deed = rng.choices([*deed_weights], [*deed_weights.values()])[0]
        role = rng.choices([*role_weights], [*role_weights.values()])[0]
        if role in ZOOKEEPER and deed not in (Deed.KILL, Deed.FREEZE, *LINKS):
            deed = Deed.KILL
        meets_all = rng.random() < ALL_SHARE
        if deed is Deed.OLD_REGISTRY or (meets_all and deed in (Deed.UNMOUNT, Deed.OLD_COPY)):
            role = Role.ALL
        longest = FROZEN_S if deed is Deed.FREEZE or role is Role.QUORUM else DOWN_S
        if deed in LINKS:
            longest = MACHINES_CUT_S if machines else CUT_S
        if deed in DIRECTORIES:
            longest = AWAY_S
        if deed in LACKS:
            longest = LACKING_S
        for_s = min(rng.uniform(*rng.choice(longest)), max(seconds - at_s, 0.5))
        if role is Role.ALL and (deed in (Deed.WIPE, Deed.COPY, *LINKS) or (machines and deed in DISKS)):
            role = Role.ANY
        fault = Fault(
            at_s,
            deed,
            role,
            rng.randrange(partitions),
            for_s,
            both_ways=rng.random() < 0.6,
            one_peer=machines and rng.random() < 0.4,
        )
        if deed in deeds:
            faults.append(fault)
        at_s += rng.uniform(*pause_s)
    return faults
