"""A cluster as Metadata responses describe it."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

from barnabas.protocol.messages.metadata import MetadataResponseTopic
from barnabas.types import BrokerId, LeaderEpoch

__all__ = ["Broker", "ClusterView", "PartitionView", "TopicView", "brokers_of", "topic_view"]


class Broker(NamedTuple):
    """A broker in a Metadata response."""

    node_id: BrokerId
    host: str
    port: int
    rack: str | None


class Endpoint(Protocol):
    """A broker in a Metadata, Produce or Fetch response."""

    node_id: int
    host: str
    port: int
    rack: str | None


class PartitionView(NamedTuple):
    """A partition in a Metadata response; the leader is -1 if there is none."""

    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error_code: int


class TopicView(NamedTuple):
    """A topic in a Metadata response."""

    name: str
    topic_id: UUID
    is_internal: bool
    error_code: int
    partitions: dict[int, PartitionView]

    def in_order(self) -> list[PartitionView]:
        """Returns the partitions in the order of their numbers."""
        return [self.partitions[index] for index in sorted(self.partitions)]


class ClusterView(NamedTuple):
    """The cluster by the last Metadata response, with the topics that are known from earlier responses."""

    cluster_id: str | None
    controller_id: BrokerId
    brokers: dict[int, Broker]
    topics: dict[str, TopicView]


def brokers_of(endpoints: Iterable[Endpoint]) -> dict[int, Broker]:
    """Returns the brokers that a response lists, by their ids."""
    return {b.node_id: Broker(BrokerId(b.node_id), b.host, b.port, b.rack) for b in endpoints}


def topic_view(topic: MetadataResponseTopic) -> TopicView:
    partitions = {
        p.partition_index: PartitionView(
            p.partition_index,
            BrokerId(p.leader_id),
            LeaderEpoch(p.leader_epoch),
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            tuple(p.offline_replicas),
            p.error_code,
        )
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
    }
    return TopicView(topic.name or "", topic.topic_id, topic.is_internal, topic.error_code, partitions)
