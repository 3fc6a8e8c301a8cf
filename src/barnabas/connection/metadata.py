"""The metadata of a cluster that a client has got, and the topics whose metadata is kept fresh.

Any broker answers Metadata requests, so a response may be older than the known metadata: a partition keeps its leader
if the response has a lower leader epoch, unless the topic was deleted and created again (it has another topic id).
"""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from barnabas.connection.cluster import Broker, ClusterView, PartitionView, TopicView, brokers_of, topic_view
from barnabas.errors import KafkaError, LeaderNotAvailable, TopicNotFound, UnknownTopicOrPartition, error_for
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition

__all__ = ["NO_ID_BYTES", "Metadata"]

ZERO_ID: Final = UUID(int=0)
NO_ID_BYTES: Final = bytes(16)
NO_BROKER: Final = BrokerId(-1)


class Metadata:
    """The cluster that the last responses describe. `version` counts the updates."""

    def __init__(self, *, max_age_s: float = 300.0, allow_auto_topic_creation: bool = True) -> None:
        self.cluster = ClusterView(None, BrokerId(-1), {}, {})
        self.version = 0
        self.allow_auto_topic_creation = allow_auto_topic_creation
        self.all_topics = False
        """Whether every topic of the cluster is requested, as a subscription to a pattern needs."""
        self.has_all_topics = False
        """Whether the last response had every topic of the cluster."""
        self.update_requested = True
        """Whether metadata is known to be wrong or missing, so that an update is needed soon."""
        self._max_age_s = max_age_s
        self._updated_at = float("-inf")
        """The time of the last response with all topics whose metadata is kept fresh."""
        self._topics: dict[str, None] = {}
        self._new: set[str] = set()
        """The topics that no request has contained yet."""
        self._names: dict[UUID, str] = {}
        self._id_bytes: dict[str, bytes] = {}

    # --- topics to keep fresh ---------------------------------------------------------------------------------------

    @property
    def topics(self) -> list[str]:
        """The topics whose metadata is kept fresh."""
        return list(self._topics)

    def add_topics(self, topics: Iterable[str]) -> None:
        for name in topics:
            if name not in self._topics:
                self._topics[name] = None
                if name not in self.cluster.topics:
                    self._new.add(name)

    def remove_topics(self, topics: Iterable[str]) -> None:
        for name in topics:
            self._topics.pop(name, None)
            self._new.discard(name)
            self._id_bytes.pop(name, None)
            gone = self.cluster.topics.pop(name, None)
            if gone is not None:
                self._names.pop(gone.topic_id, None)

    def request_update(self) -> None:
        self.update_requested = True

    @property
    def has_new_topics(self) -> bool:
        return bool(self._new)

    def expires_at(self) -> float:
        """Returns when the metadata is so old that an update is due."""
        return self._updated_at + self._max_age_s

    def request(self, now: float) -> tuple[MetadataRequest, frozenset[str] | None]:
        """Returns the next request and its topics (None: all). While the metadata is fresh, the request contains the
        new topics only."""
        asked: frozenset[str] | None
        if self.all_topics:
            asked = None
        elif self._new and not self.update_requested and now < self.expires_at():
            asked = frozenset(self._new)
        else:
            asked = frozenset(self._topics)
        self.update_requested = False
        self._new.clear()
        topics = None if asked is None else [MetadataRequestTopic(name=name) for name in sorted(asked)]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=self.allow_auto_topic_creation), asked

    # --- updates ----------------------------------------------------------------------------------------------------

    def update(self, response: MetadataResponse, asked: frozenset[str] | None, now: float) -> None:
        """Takes over a response. Requested topics that the response lacks do not exist any more."""
        known = {name: topic for name, topic in self.cluster.topics.items() if asked is not None and name not in asked}
        for answer in response.topics:
            if not answer.name:
                continue
            topic = topic_view(answer)
            if topic.name in self._topics and _may_change(topic):
                self.update_requested = True
            known[answer.name] = self._newest(topic)
        self.cluster = ClusterView(
            response.cluster_id, BrokerId(response.controller_id), brokers_of(response.brokers), known
        )
        self._names = {topic.topic_id: name for name, topic in known.items() if topic.topic_id != ZERO_ID}
        self._id_bytes = {name: topic.topic_id.bytes for name, topic in known.items()}
        self.has_all_topics = asked is None
        self.version += 1
        if asked is None or asked >= self._topics.keys() - self._new:
            self._updated_at = now

    def _newest(self, topic: TopicView) -> TopicView:
        before = self.cluster.topics.get(topic.name)
        if before is None or before.topic_id != topic.topic_id:
            return topic
        partitions = {
            index: before.partitions[index]
            if index in before.partitions and 0 <= partition.leader_epoch < before.partitions[index].leader_epoch
            else partition
            for index, partition in topic.partitions.items()
        }
        return topic._replace(partitions=partitions)

    def add_broker(self, broker: Broker) -> None:
        """Adds a broker whose address came in another response than Metadata."""
        known = self.cluster.brokers.get(broker.node_id)
        if known is None or (known.host, known.port) != (broker.host, broker.port):
            self.cluster = self.cluster._replace(brokers=self.cluster.brokers | {broker.node_id: broker})

    def update_leader(
        self, topic_partition: TopicPartition, leader: int, leader_epoch: int, broker: Broker | None = None
    ) -> bool:
        """Takes over the leader that a Produce or Fetch response names (KIP-951). Returns whether the leader is new."""
        if broker is not None:
            self.add_broker(broker)
        known = self.partition(topic_partition)
        if known is None or leader not in self.cluster.brokers or leader_epoch <= known.leader_epoch:
            return False
        topic = self.cluster.topics[topic_partition.topic]
        topic.partitions[topic_partition.partition] = known._replace(
            leader=BrokerId(leader), leader_epoch=LeaderEpoch(leader_epoch)
        )
        return True

    def rebootstrap(self) -> None:
        """Drops the brokers, so that the bootstrap addresses are used again; topics stay until the next response."""
        self.cluster = self.cluster._replace(brokers={})
        self.update_requested = True

    # --- the cluster ------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicView | None:
        """Returns the topic, if the last response had it without an error."""
        topic = self.cluster.topics.get(name)
        return None if topic is None or topic.error_code or not topic.partitions else topic

    def partition(self, topic_partition: TopicPartition) -> PartitionView | None:
        topic = self.cluster.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def leader(self, topic_partition: TopicPartition) -> BrokerId:
        """Returns the leader's node id, -1 if none is known."""
        partition = self.partition(topic_partition)
        return NO_BROKER if partition is None or partition.leader not in self.cluster.brokers else partition.leader

    def topic_id(self, name: str) -> UUID:
        """Returns the topic's id, the zero id if it is unknown."""
        topic = self.cluster.topics.get(name)
        return ZERO_ID if topic is None else topic.topic_id

    def topic_id_bytes(self, name: str) -> bytes:
        return self._id_bytes.get(name, NO_ID_BYTES)

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    def topic_error(self, name: str) -> KafkaError:
        """Returns the reason why a topic cannot be used."""
        topic = self.cluster.topics.get(name)
        if topic is None or topic.error_code == UnknownTopicOrPartition.code:
            return TopicNotFound(f"topic {name!r} does not exist")
        if topic.error_code:
            error = error_for(topic.error_code)
            return error_for(topic.error_code, f"topic {name!r}: {error.kafka_name}")
        return LeaderNotAvailable(f"topic {name!r} has a partition without a leader")

    def partition_error(self, topic_partition: TopicPartition) -> KafkaError:
        """Returns the reason why a partition is unknown."""
        name, number = topic_partition
        topic = self.topic(name)
        if topic is None:
            return self.topic_error(name)
        return TopicNotFound(f"topic {name!r} has partitions 0 to {len(topic.partitions) - 1}, there is no {number}")


def _may_change(topic: TopicView) -> bool:
    """Whether a later response may soon show the topic without its error, or with the leaders that it lacks."""
    if topic.error_code:
        return error_for(topic.error_code).retriable
    return any(partition.leader < 0 for partition in topic.partitions.values())
