"""The requests to the controller as values, which handlers make from the requests of the protocol."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas.errors import PolicyViolation

__all__ = [
    "USE_DEFAULT",
    "WISHES_MAX",
    "ConfigOp",
    "ConfigOperation",
    "ConfigResource",
    "ElectionType",
    "PartitionsRequest",
    "ResourceType",
    "TopicRequest",
    "check_count",
]

USE_DEFAULT: Final = -1
WISHES_MAX: Final = 10_000
"""The topics or resources that one request may change. A request is decided and written as a whole, and no other
request is served in between. Kafka's bound on the records of one user's operation."""


def check_count(count: int) -> None:
    """Raises PolicyViolation if one request changes too much."""
    if count > WISHES_MAX:
        raise PolicyViolation(f"{count} topics or resources in one request, {WISHES_MAX} is the most; send several")


class TopicRequest(NamedTuple):
    """A topic to create. -1 means the broker's default. `assignments` are (partition, replicas) of a client that
    chooses the replicas itself; then both numbers must be -1."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = {}


class PartitionsRequest(NamedTuple):
    """Partitions to add to a topic, up to `total`. `assignments` are the replicas of each new one, or None."""

    name: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None


class ResourceType(IntEnum):
    """The type of the resource that settings belong to. The value is the protocol's resource_type."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A resource with settings. The type is a plain number, because a client may send an unknown one."""

    type: int
    name: str


class ConfigOp(IntEnum):
    """The config_operation of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigOperation(NamedTuple):
    """A change of one setting."""

    name: str
    operation: int
    value: str | None = None


class ElectionType(IntEnum):
    """The election_type of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1
