"""The types that the whole package shares. This module imports no other one of the package.

`Offset`, `LeaderEpoch`, `BrokerId` and `ProducerId` are integers at run time. For the type checker each is a type of
its own, so that one cannot be passed in place of another.
"""

from typing import NamedTuple, NewType

__all__ = [
    "FIRST_OFFSET",
    "NO_LEADER_EPOCH",
    "NO_OFFSET",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BrokerId",
    "LeaderEpoch",
    "Offset",
    "ProducerId",
    "TopicPartition",
]

Offset = NewType("Offset", int)
"""The position of a record in its partition; the first one is 0."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders of a partition: each election raises it."""
BrokerId = NewType("BrokerId", int)
"""`node.id` of a broker."""
ProducerId = NewType("ProducerId", int)
"""The id that a coordinator gives an idempotent producer (KIP-98)."""

FIRST_OFFSET = Offset(0)
NO_OFFSET = Offset(-1)
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1


class TopicPartition(NamedTuple):
    """A partition of a topic, Kafka's unit of order, replication and load."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
