"""What the client believes of the cluster: brokers, topics, leaders with their epochs, and which topics to keep fresh.

An answer may be older than what is known (it comes from any broker): a partition keeps its leader when the answer's
leader epoch is lower, unless the topic was made anew (another topic id).
"""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from barnabas.connection.cluster import Broker, ClusterView, PartitionView, TopicView, brokers_of, topic_view
from barnabas.errors import KafkaError, LeaderNotAvailable, TopicNotFound, UnknownTopicOrPartition, error_for
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.types import TopicPartition

__all__ = ["NO_ID_BYTES", "Metadata"]

ZERO_ID: Final = UUID(int=0)
NO_ID_BYTES: Final = bytes(16)


class Metadata:
    """See the module. `version` counts the answers taken in."""

    def __init__(self, *, max_age_s: float = 300.0, allow_auto_topic_creation: bool = True) -> None:
        self.view = ClusterView(None, -1, {}, {})
        self.version = 0
        self.updated_at = float("-inf")
        self.allow_auto_topic_creation = allow_auto_topic_creation
        self.all_topics = False
        """Ask for every topic there is, as a subscription to a pattern needs."""
        self.has_all_topics = False
        """Whether the last answer was to that question."""
        self._max_age_s = max_age_s
        self._wanted: dict[str, None] = {}
        self._new: set[str] = set()
        """Wanted and not asked for yet."""
        self._names: dict[UUID, str] = {}
        self._ids: dict[str, bytes] = {}
        """As requests have them."""
        self._stale = True

    # --- what is wanted ---------------------------------------------------------------------------------------------

    def want(self, topics: Iterable[str]) -> bool:
        """Keep these topics fresh; whether one is new, so that an answer is needed."""
        added = [name for name in topics if name not in self._wanted]
        for name in added:
            self._wanted[name] = None
            if name not in self.view.topics:
                self._new.add(name)
        return bool(added)

    def unwant(self, topics: Iterable[str]) -> None:
        """No longer of interest."""
        for name in topics:
            self._wanted.pop(name, None)
            self._new.discard(name)
            self._ids.pop(name, None)
            gone = self.view.topics.pop(name, None)
            if gone is not None:
                self._names.pop(gone.topic_id, None)

    @property
    def wanted(self) -> list[str]:
        return list(self._wanted)

    def mark_stale(self) -> None:
        """Something in it was wrong: the next answer is needed soon."""
        self._stale = True

    @property
    def is_stale(self) -> bool:
        """Whether something in it is known to be wrong or missing."""
        return self._stale

    @property
    def has_new(self) -> bool:
        """Whether a topic is wanted that was never asked for."""
        return bool(self._new)

    def due_at(self) -> float:
        """When age alone makes it due."""
        return self.updated_at + self._max_age_s

    def request(self, now: float) -> tuple[MetadataRequest, frozenset[str] | None]:
        """The request to send, and the topics it asks for (None: all). Topics that are merely new are asked for
        alone, as long as the rest is fresh."""
        asked: frozenset[str] | None
        if self.all_topics:
            asked = None
        elif self._new and not self._stale and now < self.due_at():
            asked = frozenset(self._new)
        else:
            asked = frozenset(self._wanted)
        self._stale = False
        self._new.clear()
        topics = None if asked is None else [MetadataRequestTopic(name=name) for name in sorted(asked)]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=self.allow_auto_topic_creation), asked

    # --- what comes in ----------------------------------------------------------------------------------------------

    def take_in(self, response: MetadataResponse, asked: frozenset[str] | None, now: float) -> None:
        """Topics that were asked for and are not in the answer are gone."""
        known = {name: topic for name, topic in self.view.topics.items() if asked is not None and name not in asked}
        for answer in response.topics:
            if not answer.name:
                continue
            topic = topic_view(answer)
            if topic.name in self._wanted and _may_change(topic):
                self._stale = True
            known[answer.name] = self._newest(topic)
        self.view = ClusterView(response.cluster_id, response.controller_id, brokers_of(response), known)
        self._names = {topic.topic_id: name for name, topic in known.items() if topic.topic_id != ZERO_ID}
        self._ids = {name: topic.topic_id.bytes for name, topic in known.items()}
        self.has_all_topics = asked is None
        self.version += 1
        self.updated_at = now

    def _newest(self, topic: TopicView) -> TopicView:
        before = self.view.topics.get(topic.name)
        if before is None or before.topic_id != topic.topic_id:
            return topic
        partitions = {
            index: before.partitions[index]
            if index in before.partitions and 0 <= partition.leader_epoch < before.partitions[index].leader_epoch
            else partition
            for index, partition in topic.partitions.items()
        }
        return topic._replace(partitions=partitions)

    def learn_leader(self, where: TopicPartition, leader: int, leader_epoch: int, broker: Broker | None = None) -> bool:
        """A Produce or Fetch answer says who leads now (KIP-951); whether that was news."""
        if broker is not None and broker.node_id not in self.view.brokers:
            self.view = self.view._replace(brokers=self.view.brokers | {broker.node_id: broker})
        known = self.partition(where)
        if known is None or leader not in self.view.brokers or leader_epoch <= known.leader_epoch:
            return False
        topic = self.view.topics[where.topic]
        topic.partitions[where.partition] = known._replace(leader=leader, leader_epoch=leader_epoch)
        return True

    def forget_cluster(self) -> None:
        """Start from the bootstrap addresses again; topics stay known until the next answer."""
        self.view = self.view._replace(brokers={})
        self._stale = True

    # --- questions --------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicView | None:
        """The topic, if the last answer had it without an error."""
        topic = self.view.topics.get(name)
        return None if topic is None or topic.error_code or not topic.partitions else topic

    def partition(self, where: TopicPartition) -> PartitionView | None:
        topic = self.view.topics.get(where.topic)
        return None if topic is None else topic.partitions.get(where.partition)

    def leader(self, where: TopicPartition) -> int:
        """The leader's node id, -1 if none is known."""
        partition = self.partition(where)
        return -1 if partition is None or partition.leader not in self.view.brokers else partition.leader

    def topic_id(self, name: str) -> UUID:
        """The zero id where the cluster has none."""
        topic = self.view.topics.get(name)
        return ZERO_ID if topic is None else topic.topic_id

    def topic_id_bytes(self, name: str) -> bytes:
        """As `topic_id`."""
        return self._ids.get(name, NO_ID_BYTES)

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    def why_not(self, name: str) -> KafkaError:
        """What keeps a topic from being used."""
        topic = self.view.topics.get(name)
        if topic is None or topic.error_code == UnknownTopicOrPartition.code:
            return TopicNotFound(f"topic {name!r} does not exist")
        if topic.error_code:
            error = error_for(topic.error_code)
            return error_for(topic.error_code, f"topic {name!r}: {error.kafka_name}")
        return LeaderNotAvailable(f"topic {name!r} has a partition without a leader")


def _may_change(topic: TopicView) -> bool:
    """Whether another answer may come soon that is better than this one."""
    if topic.error_code:
        return error_for(topic.error_code).retriable
    return any(partition.leader < 0 for partition in topic.partitions.values())
