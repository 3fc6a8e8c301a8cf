"""The cluster as one immutable value: brokers, topics, partitions, configs.

Handlers read an image and never see it change; a new one takes its place between two requests. Making one from another
costs one copy of each dictionary that differs (`delta`), not of everything.
"""

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.config.endpoints import Endpoint
from barnabas.types import BrokerId, LeaderEpoch

__all__ = [
    "CONSUMER_OFFSETS",
    "EMPTY_IMAGE",
    "INTERNAL_TOPICS",
    "NO_CONTROLLER",
    "NO_LEADER",
    "TRANSACTION_STATE",
    "BrokerImage",
    "MetadataImage",
    "PartitionImage",
    "TopicImage",
]

NO_LEADER: Final = BrokerId(-1)
NO_CONTROLLER: Final = BrokerId(-1)
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state"))

_NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})


class PartitionImage(NamedTuple):
    """The replicas, leader and ISR of a partition. `partition_epoch` counts all changes, `leader_epoch` new leaders.

    During a reassignment `replicas` are those of its target, followed by `removing_replicas`; `adding_replicas` are the
    ones that were not there before (KIP-455).
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    partition_epoch: int = 0
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    elr: tuple[BrokerId, ...] = ()
    """The eligible leader replicas: outside of the ISR, but with all committed records (KIP-966)."""
    last_known_elr: tuple[BrokerId, ...] = ()
    """The last leader of a partition that has none."""

    @property
    def preferred_leader(self) -> BrokerId:
        """The first replica, which leads if it is in sync."""
        return self.replicas[0]

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)


class TopicImage(NamedTuple):
    """A topic. The index in `partitions` is the partition's number."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        """Returns the number of replicas of the first partition, after a reassignment that is in progress."""
        first = self.partitions[0]
        return len(first.replicas) - len(first.removing_replicas)


class BrokerImage(NamedTuple):
    """A registered broker. `epoch` grows with each registration and tells an earlier one of the same node apart.

    A fenced broker is not live: it has stopped, or the controller has not heard of it.
    """

    node_id: BrokerId
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    fenced: bool = False
    peer_endpoint: Endpoint | None = None
    """The address for other brokers; None for a broker without peers."""
    process: str = ""
    """The process of the broker on this machine (`registry/processes.py`)."""
    returned: str = ""
    """While the broker is fenced after its start: what it may lack, as `Returned` reads it."""


class MetadataImage:
    """The cluster's metadata at one version of the registry. Immutable.

    `topic_configs` and `broker_configs` hold dynamic settings as texts; broker "" stands for all brokers. `version`
    counts the registry's writes: of two images the one with the larger version is newer.
    """

    def __init__(
        self,
        cluster_id: str = "",
        *,
        version: int = 0,
        controller_id: BrokerId = NO_CONTROLLER,
        controller_epoch: int = 0,
        brokers: Mapping[BrokerId, BrokerImage] | None = None,
        topics: Mapping[str, TopicImage] | None = None,
        topic_configs: Mapping[str, Mapping[str, str]] | None = None,
        broker_configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.version = version
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.brokers: Mapping[BrokerId, BrokerImage] = brokers if brokers is not None else {}
        self.topics: Mapping[str, TopicImage] = topics if topics is not None else {}
        self.topic_configs: Mapping[str, Mapping[str, str]] = topic_configs if topic_configs is not None else {}
        self.broker_configs: Mapping[str, Mapping[str, str]] = broker_configs if broker_configs is not None else {}

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        """Returns the topic with this id, or None. The first call on an image costs one pass over all topics."""
        return self._topics_by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """Returns a partition, or None if the topic or the number does not exist."""
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def has_replica(self, node_id: BrokerId, topic: str, index: int, topic_id: UUID | None) -> bool:
        """Returns whether a broker has this replica of the topic with that name, and with that id if it is known."""
        partition = self.partition(topic, index)
        if partition is None or node_id not in partition.replicas:
            return False
        return topic_id is None or topic_id == self.topics[topic].topic_id

    def topic_config(self, topic: str) -> Mapping[str, str]:
        return self.topic_configs.get(topic, _NO_CONFIGS)

    def broker_config(self, name: str) -> Mapping[str, str]:
        """Returns the dynamic settings of a broker by its number as text; "" for those of all brokers."""
        return self.broker_configs.get(name, _NO_CONFIGS)

    def is_active(self, node_id: BrokerId) -> bool:
        """Returns whether a broker can lead: it is registered and not fenced."""
        broker = self.brokers.get(node_id)
        return broker is not None and not broker.fenced

    @cached_property
    def collisions(self) -> Mapping[str, str]:
        """Returns topic names with `.` or `_` by their name with `_` for `.`: two of these would share a metric's
        name."""
        return {name.replace(".", "_"): name for name in self.topics if "." in name or "_" in name}

    @cached_property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    @cached_property
    def _topics_by_id(self) -> dict[UUID, TopicImage]:
        return {topic.topic_id: topic for topic in self.topics.values()}

    def __repr__(self) -> str:
        return (
            f"MetadataImage(version={self.version}, controller={self.controller_id}, brokers={len(self.brokers)}, "
            f"topics={len(self.topics)})"
        )


EMPTY_IMAGE: Final = MetadataImage()
