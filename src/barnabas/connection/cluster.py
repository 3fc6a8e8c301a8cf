"""What Metadata says of a cluster, as values."""

from typing import NamedTuple
from uuid import UUID

from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

__all__ = ["Broker", "ClusterView", "PartitionView", "TopicView", "brokers_of", "topic_view"]


class Broker(NamedTuple):
    """A broker as Metadata advertises it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class PartitionView(NamedTuple):
    """A partition as Metadata shows it; leader -1 means none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error_code: int


class TopicView(NamedTuple):
    """A topic as Metadata shows it."""

    name: str
    topic_id: UUID
    is_internal: bool
    error_code: int
    partitions: dict[int, PartitionView]

    def in_order(self) -> list[PartitionView]:
        """Its partitions, by number."""
        return [self.partitions[index] for index in sorted(self.partitions)]


class ClusterView(NamedTuple):
    """One Metadata answer, with the topics known from earlier ones."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, Broker]
    topics: dict[str, TopicView]


def brokers_of(response: MetadataResponse) -> dict[int, Broker]:
    return {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}


def topic_view(topic: MetadataResponseTopic) -> TopicView:
    partitions = {
        p.partition_index: PartitionView(
            p.partition_index,
            p.leader_id,
            p.leader_epoch,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            tuple(p.offline_replicas),
            p.error_code,
        )
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
    }
    return TopicView(topic.name or "", topic.topic_id, topic.is_internal, topic.error_code, partitions)
