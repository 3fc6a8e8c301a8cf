"""Places the replicas of new partitions: Kafka's striped placement.

Racks take turns, and within a rack its brokers do. With racks A, B, C of three brokers each and all offsets 0:

    partition 0: A0 B0 C0
    partition 1: B1 C1 A1
    partition 2: C2 A2 B2

so leaders are spread evenly, replicas of a partition leave the rack, and they follow their leader in different orders.
A fenced broker is taken only when the others of its rack are used up, and never leads a new partition.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Any, Protocol

from barnabas.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from barnabas.metadata.image import BrokerImage
from barnabas.types import BrokerId

__all__ = ["Randomness", "StripedReplicaPlacer", "validate_manual_assignment"]


class Randomness(Protocol):
    """The part of random.Random that placement uses. Tests hand in their own."""

    def randrange(self, stop: int, /) -> int: ...

    def shuffle(self, items: list[Any], /) -> None: ...


class _Ring:
    """A ring of brokers: each epoch begins one further, and within an epoch each broker comes once."""

    def __init__(self, brokers: list[BrokerId], randomness: Randomness) -> None:
        self.brokers = sorted(brokers)
        self._offset = randomness.randrange(len(brokers)) if brokers else 0
        self._taken = 0
        self._epoch = 0

    def next(self, epoch: int) -> BrokerId | None:
        if not self.brokers:
            return None
        if self._epoch != epoch:
            self._epoch = epoch
            self._taken = 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._taken >= len(self.brokers):
            return None
        broker = self.brokers[(self._taken + self._offset) % len(self.brokers)]
        self._taken += 1
        return broker


class StripedReplicaPlacer:
    """Places the partitions of one topic: each partition continues where the last one ended. Those brokers get none all
    of whose data directories are `cordoned`."""

    def __init__(
        self, brokers: Iterable[BrokerImage], randomness: Randomness, cordoned: Container[BrokerId] = ()
    ) -> None:
        by_rack: dict[str, tuple[list[BrokerId], list[BrokerId]]] = {}
        for broker in brokers:
            if broker.node_id in cordoned:
                continue
            # No rack sorts before every named one, as in Kafka.
            unfenced, fenced = by_rack.setdefault(broker.rack or "", ([], []))
            (fenced if broker.fenced else unfenced).append(broker.node_id)
        self._randomness = randomness
        self._broker_count = sum(len(unfenced) + len(fenced) for unfenced, fenced in by_rack.values())
        self._unfenced_count = sum(len(unfenced) for unfenced, _ in by_rack.values())
        self._racks = [
            (_Ring(unfenced, randomness), _Ring(fenced, randomness))
            for _, (unfenced, fenced) in sorted(by_rack.items())
        ]
        self._offset = randomness.randrange(len(self._racks)) if self._racks else 0
        self._epoch = 0

    def place(self, partitions: int, replication_factor: int) -> list[tuple[BrokerId, ...]]:
        """Returns the replicas of each partition, the preferred leader first. Raises InvalidReplicationFactor."""
        if replication_factor <= 0:
            raise InvalidReplicationFactor(
                f"Invalid replication factor {replication_factor}: the replication factor must be positive."
            )
        if self._unfenced_count == 0:
            raise InvalidReplicationFactor(
                "All brokers are currently fenced, or have all their log directories cordoned."
            )
        if replication_factor > self._broker_count:
            raise InvalidReplicationFactor(
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{self._broker_count} broker(s) are registered or some brokers have all their log directories "
                "cordoned."
            )
        if self._broker_count == 1:  # a shortcut for one broker, which may have 10,000 partitions
            only = (self._racks[0][0].brokers[0],)
            return [only] * partitions
        return [self._place_one(replication_factor) for _ in range(partitions)]

    def _place_one(self, replication_factor: int) -> tuple[BrokerId, ...]:
        # After as many partitions as there are brokers the order would repeat: shuffle, so that it does not.
        if self._epoch and self._epoch % self._unfenced_count == 0:
            self._shuffle()
        if self._offset == len(self._racks):
            self._offset = 0
        leader, leader_rack = self._leader()
        chosen = [leader]
        rack = self._offset
        while len(chosen) < replication_factor:
            # The leader's rack has had its turn in the first round.
            if rack == leader_rack:
                leader_rack = -1
            else:
                broker = self._next_of(rack)
                if broker is not None:
                    chosen.append(broker)
            rack = (rack + 1) % len(self._racks)
        self._epoch += 1
        self._offset += 1
        return tuple(chosen)

    def _leader(self) -> tuple[BrokerId, int]:
        rack = self._offset
        while True:
            broker = self._racks[rack][0].next(self._epoch)
            if broker is not None:
                return broker, rack
            rack = (rack + 1) % len(self._racks)

    def _next_of(self, rack: int) -> BrokerId | None:
        unfenced, fenced = self._racks[rack]
        broker = unfenced.next(self._epoch)
        return broker if broker is not None else fenced.next(self._epoch)

    def _shuffle(self) -> None:
        self._randomness.shuffle(self._racks)
        for unfenced, fenced in self._racks:
            self._randomness.shuffle(unfenced.brokers)
            self._randomness.shuffle(fenced.brokers)


def validate_manual_assignment(
    replicas: Sequence[int],
    known: Iterable[int],
    replication_factor: int | None,
    cordoned: Container[int] = (),
    present: Container[int] = (),
) -> None:
    """Raises InvalidReplicaAssignment for an invalid list of replicas of a client. Of the `cordoned` brokers only those
    may be in it that are `present` already: Kafka refuses these, too, so nothing else of their partition can be moved.
    """
    start = "The manual partition assignment includes"
    if not replicas:
        raise InvalidReplicaAssignment(f"{start} an empty replica list.")
    previous = None
    brokers = frozenset(known)
    for node_id in sorted(replicas):
        if node_id not in brokers:
            raise InvalidReplicaAssignment(f"{start} broker {node_id}, but no such broker is registered.")
        if node_id in cordoned and node_id not in present:
            raise InvalidReplicaAssignment(f"{start} broker {node_id}, but all its log directories are cordoned.")
        if node_id == previous:
            raise InvalidReplicaAssignment(f"{start} the broker {node_id} more than once.")
        previous = node_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise InvalidReplicaAssignment(
            f"{start} a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s)."
        )
