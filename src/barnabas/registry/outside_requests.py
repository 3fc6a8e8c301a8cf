"""Requests to the controller that other programs have written into the registry's store, such as Kafka's tools by
`--zookeeper`. Each names the node that holds it, for messages.

The controller carries them out as it does those of clients (`controller/outside_requests.py`), and settles them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

__all__ = [
    "OutsideRequest",
    "RequestedConfig",
    "RequestedDeletion",
    "RequestedElection",
    "RequestedReassignment",
    "RequestedTopic",
    "UnreadableRequest",
]


class RequestedTopic(NamedTuple):
    """Asks for a topic with these partitions, or, where there is the topic, for those that it does not have."""

    node: str
    name: str
    assignments: Mapping[int, Sequence[int]]
    """The replicas of each partition."""
    config: Mapping[str, str]
    """The settings of a new topic."""


class RequestedDeletion(NamedTuple):
    """Asks to delete a topic."""

    node: str
    name: str


class RequestedConfig(NamedTuple):
    """Asks to replace all settings of a topic or broker."""

    node: str
    resource_type: int
    """The protocol's number."""
    name: str
    """The name of a topic, the number of a broker, or "" for all brokers."""
    config: Mapping[str, str]
    notifications: tuple[str, ...]
    """The nodes that tell of the change."""


class RequestedReassignment(NamedTuple):
    """Asks for other replicas of one partition. The request stays until they are in sync."""

    node: str
    topic: str
    partition: int
    replicas: tuple[int, ...]


class RequestedElection(NamedTuple):
    """Asks that the preferred leader of one partition lead."""

    node: str
    topic: str
    partition: int


class UnreadableRequest(NamedTuple):
    """Asks for nothing that can be understood."""

    node: str
    reason: str
    notifications: tuple[str, ...] = ()
    """The nodes that tell of it."""
    comes_back: bool = False
    """Whether the node is of something that is there, and gets back what it had."""


OutsideRequest: TypeAlias = (
    RequestedTopic | RequestedDeletion | RequestedConfig | RequestedReassignment | RequestedElection | UnreadableRequest
)
