"""Makes the next metadata image from the one before and a set of changes.

A delta gathers the changes of one batch and copies a dictionary the first time the batch touches it. So creating 100
topics among 1,000 copies 1,000 references once (about 10 µs), not a hundred times; among 100,000 topics that copy is
about 1 ms. A changed partition copies the tuple of its own topic.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.types import BrokerId

__all__ = ["MetadataChange", "MetadataDelta", "change_between"]

K = TypeVar("K")
V = TypeVar("V")


class MetadataChange(NamedTuple):
    """An image with its differences to the one before: the names of topics that were created, deleted or got other
    partitions or settings, and the ids of brokers that came, left, registered again or got other settings."""

    image: MetadataImage
    topics: frozenset[str] = frozenset()
    topics_configured: frozenset[str] = frozenset()
    brokers_configured: frozenset[str] = frozenset()
    brokers: frozenset[BrokerId] = frozenset()
    since: int = 0
    """The version of the image before."""


def change_between(before: MetadataImage, after: MetadataImage) -> MetadataChange:
    """Compares two images."""
    return MetadataChange(
        after,
        _differing(before.topics, after.topics),
        _differing(before.topic_configs, after.topic_configs),
        _differing(before.broker_configs, after.broker_configs),
        _differing(before.brokers, after.brokers),
        before.version,
    )


def _differing(before: Mapping[K, V], after: Mapping[K, V]) -> frozenset[K]:
    return frozenset(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


class MetadataDelta:
    """The changes of one batch to an image. `apply` ends it."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._topics: dict[str, TopicImage] | None = None
        self._topic_configs: dict[str, Mapping[str, str]] | None = None
        self._broker_configs: dict[str, Mapping[str, str]] | None = None
        self._brokers: dict[BrokerId, BrokerImage] | None = None
        self.cluster_id = image.cluster_id
        self.controller_id = image.controller_id
        self.controller_epoch = image.controller_epoch
        self.changed_topics: set[str] = set()
        self.changed_topic_configs: set[str] = set()
        self.changed_broker_configs: set[str] = set()
        self.changed_brokers: set[BrokerId] = set()

    def clear(self) -> None:
        """Removes everything. The image then consists of what is put afterwards."""
        image = self._image
        self.changed_topics.update(image.topics)
        self.changed_topic_configs.update(image.topic_configs)
        self.changed_broker_configs.update(image.broker_configs)
        self.changed_brokers.update(image.brokers)
        self._topics, self._topic_configs, self._broker_configs, self._brokers = {}, {}, {}, {}

    def topic(self, name: str) -> TopicImage | None:
        """Returns the topic as it is with the changes up to now."""
        return (self._topics if self._topics is not None else self._image.topics).get(name)

    def broker(self, node_id: BrokerId) -> BrokerImage | None:
        """Returns the broker as it is with the changes up to now."""
        return (self._brokers if self._brokers is not None else self._image.brokers).get(node_id)

    def put_topic(self, topic: TopicImage) -> None:
        self._writable_topics()[topic.name] = topic
        self.changed_topics.add(topic.name)

    def remove_topic(self, name: str) -> None:
        if self._writable_topics().pop(name, None) is not None:
            self.changed_topics.add(name)
        if name in (self._topic_configs if self._topic_configs is not None else self._image.topic_configs):
            self.set_topic_config(name, {})

    def put_partitions(self, name: str, changed: Iterable[tuple[int, PartitionImage]]) -> None:
        """Puts new states of existing partitions, or partitions that follow the last one."""
        topics = self._writable_topics()
        topic = topics[name]
        partitions = list(topic.partitions)
        for index, partition in sorted(changed):
            if index == len(partitions):
                partitions.append(partition)
            else:
                partitions[index] = partition
        topics[name] = topic._replace(partitions=tuple(partitions))
        self.changed_topics.add(name)

    def set_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        """Puts all settings of a topic; an empty mapping removes them."""
        if self._topic_configs is None:
            self._topic_configs = dict(self._image.topic_configs)
        _put_or_drop(self._topic_configs, name, config)
        self.changed_topic_configs.add(name)

    def set_broker_config(self, name: str, config: Mapping[str, str]) -> None:
        """Puts all dynamic settings of a broker ("" for all brokers); an empty mapping removes them."""
        if self._broker_configs is None:
            self._broker_configs = dict(self._image.broker_configs)
        _put_or_drop(self._broker_configs, name, config)
        self.changed_broker_configs.add(name)

    def put_broker(self, broker: BrokerImage) -> None:
        self._writable_brokers()[broker.node_id] = broker
        self.changed_brokers.add(broker.node_id)

    def remove_broker(self, node_id: BrokerId) -> None:
        if self._writable_brokers().pop(node_id, None) is not None:
            self.changed_brokers.add(node_id)

    def apply(self, version: int) -> MetadataChange:
        """Returns the next image with its differences. The delta must not be used afterwards."""
        return MetadataChange(
            self._next(version),
            frozenset(self.changed_topics),
            frozenset(self.changed_topic_configs),
            frozenset(self.changed_broker_configs),
            frozenset(self.changed_brokers),
            self._image.version,
        )

    def _next(self, version: int) -> MetadataImage:
        image = self._image
        return MetadataImage(
            self.cluster_id,
            version=version,
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            brokers=self._brokers if self._brokers is not None else image.brokers,
            topics=self._topics if self._topics is not None else image.topics,
            topic_configs=self._topic_configs if self._topic_configs is not None else image.topic_configs,
            broker_configs=self._broker_configs if self._broker_configs is not None else image.broker_configs,
        )

    def _writable_topics(self) -> dict[str, TopicImage]:
        if self._topics is None:
            self._topics = dict(self._image.topics)
        return self._topics

    def _writable_brokers(self) -> dict[BrokerId, BrokerImage]:
        if self._brokers is None:
            self._brokers = dict(self._image.brokers)
        return self._brokers


def _put_or_drop(configs: dict[str, Mapping[str, str]], name: str, config: Mapping[str, str]) -> None:
    if config:
        configs[name] = config
    else:
        configs.pop(name, None)
