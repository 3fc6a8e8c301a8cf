"""The registry's interface: what brokers and the controller need of a store that they all trust.

It speaks of brokers, the controller, topics, partitions and settings, not of rows or znodes. Every write answers one of
three things: True, it is written; False, somebody else was faster or the writer is no longer the controller, and
nothing is written; RegistryUnavailable, nobody knows.

Methods are plain functions. The embedded store answers in microseconds to a few milliseconds and is called on the event
loop; a store behind a network is called from a thread (docs/decisions/0002-registry-interface.md). Calls on one object
must not overlap.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from barnabas.config.endpoints import Endpoint
from barnabas.errors import BarnabasError
from barnabas.metadata.delta import MetadataChange
from barnabas.metadata.image import MetadataImage, PartitionImage

__all__ = [
    "AddPartitions",
    "BrokerRegistration",
    "Change",
    "CreateTopic",
    "DeleteTopic",
    "Founding",
    "ProducerIdBlock",
    "Registry",
    "RegistryUnavailable",
    "SetBrokerConfig",
    "SetPartition",
    "SetTopicConfig",
]


class RegistryUnavailable(BarnabasError):
    """The registry did not answer, so nobody knows whether the write happened. Never to be read as "no"."""


class BrokerRegistration(NamedTuple):
    """A broker's registration.

    A broker is known by its node id together with the ids of its data directories (`directory.id` in Kafka's
    meta.properties), wherever these are mounted. It holds the lock of each of them, so it may take over the
    registration of its former life at once: nobody else can have the same directories and be alive.
    """

    node_id: int
    directories: Mapping[UUID, str]
    """The path of each data directory by its id. The path is only what messages call it."""
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None


class CreateTopic(NamedTuple):
    """A new topic with all its partitions and settings. Refused where the name is taken."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    config: Mapping[str, str]


class DeleteTopic(NamedTuple):
    """A topic goes with its partitions and settings. Refused where the topic of that name has another id."""

    name: str
    topic_id: UUID


class AddPartitions(NamedTuple):
    """More partitions, numbered from `first`. Refused where the topic does not have exactly `first` partitions."""

    name: str
    topic_id: UUID
    first: int
    partitions: tuple[PartitionImage, ...]


class SetPartition(NamedTuple):
    """A partition's new leader and ISR. Refused where its partition epoch is not the expected one (0 included)."""

    name: str
    topic_id: UUID
    partition_index: int
    partition: PartitionImage
    expected_partition_epoch: int


class SetTopicConfig(NamedTuple):
    """All settings of a topic. Refused where there is no such topic."""

    name: str
    config: Mapping[str, str]


class SetBrokerConfig(NamedTuple):
    """All dynamic settings of a broker by its number as text; "" for those of all brokers."""

    name: str
    config: Mapping[str, str]


Change: TypeAlias = CreateTopic | DeleteTopic | AddPartitions | SetPartition | SetTopicConfig | SetBrokerConfig


class Founding(NamedTuple):
    """The initial content of a registry that is made from existing logs (`broker/startup/adoption.py`)."""

    cluster_id: str
    changes: Sequence[Change] = ()
    next_producer_id: int = 0


class ProducerIdBlock(NamedTuple):
    """Producer ids from `first` on that no other broker will ever hand out."""

    first: int
    size: int


class Registry(ABC):
    """One broker's session with the registry. Every method may raise RegistryUnavailable."""

    max_changes_per_write: int
    """Largest batch for `write`; a bigger one is for the caller to split where the parts may stand alone."""

    # -- what is there ----------------------------------------------------------------------------------------------

    @abstractmethod
    def load(self, previous: MetadataImage | None = None) -> MetadataChange:
        """The present state. With the previous image only what changed since is read, and the change names it; the very
        same image comes back where nothing did. Without, or where too much happened since, everything counts as
        changed."""

    @abstractmethod
    def watch(self, callback: Callable[[], None]) -> None:
        """Call back, from any thread, when the state may have changed: a hint without content, after which `load`
        says what is different. Hints may come in bunches or without cause, but none is ever left out."""

    # -- sessions ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def directories(self, node_id: int) -> Mapping[UUID, str]:
        """The data directories that the broker registered last, by id, with the paths that they had then. They are
        remembered when its session has ended; empty where it never registered."""

    @abstractmethod
    def register_broker(self, registration: BrokerRegistration, session_timeout_ms: int) -> int | None:
        """Begin a session: the broker's epoch, larger than that of every earlier registration. None where a session
        holds the same number whose broker has none of these directories."""

    @abstractmethod
    def heartbeat(self) -> bool:
        """Renew the session, end those that ran out. False: ours ran out too, and the broker must register anew."""

    @abstractmethod
    def unregister_broker(self) -> None:
        """End our session, so that the others need not wait until it runs out. Without a session: nothing."""

    # -- controller -------------------------------------------------------------------------------------------------

    @abstractmethod
    def elect_controller(self) -> int | None:
        """Become the controller where there is none alive: the controller epoch, larger than every earlier one, or the
        present one where we are the controller already. None: another broker is, or we have no session."""

    @abstractmethod
    def write(self, changes: Sequence[Change], *, controller_epoch: int) -> bool:
        """All of these changes or none. False where the epoch is not the present controller's or a change is refused
        by the condition in its description; what the winner wrote is seen by `load`."""

    # -- producer ids -----------------------------------------------------------------------------------------------

    @abstractmethod
    def allocate_producer_ids(self, size: int = 1000) -> ProducerIdBlock:
        """The next block of producer ids."""

    @abstractmethod
    def close(self) -> None:
        """End the session, if any, and let go of the store. Further calls are mistakes."""
