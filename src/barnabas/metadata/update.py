"""Differences between metadata images, as the controller pushes them to the other brokers.

An update leads from one version of the image to a newer one, or from nothing to the whole image. A large update comes
in several parts, so that no message holds up a broker's loop; the image changes with the last part.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from barnabas.metadata.delta import MetadataChange, MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE, BrokerImage, MetadataImage, TopicImage
from barnabas.types import BrokerId

__all__ = [
    "BrokerConfigEntry",
    "BrokerEntry",
    "Entry",
    "MetadataUpdate",
    "TopicConfigEntry",
    "TopicEntry",
    "UpdateReceiver",
    "parts_of_update",
]

PART_WEIGHT_MAX: Final = 2000
"""The most partitions and settings in a part, which take a broker a few milliseconds. One topic may have more."""


class BrokerEntry(NamedTuple):
    """The registration of a broker, None if it has ended."""

    node_id: BrokerId
    broker: BrokerImage | None

    def apply(self, delta: MetadataDelta) -> None:
        if self.broker is None:
            delta.remove_broker(self.node_id)
        else:
            delta.put_broker(self.broker)


class TopicEntry(NamedTuple):
    """A topic, None if it was deleted."""

    name: str
    topic: TopicImage | None

    def apply(self, delta: MetadataDelta) -> None:
        if self.topic is None:
            delta.remove_topic(self.name)
        else:
            delta.put_topic(self.topic)


class TopicConfigEntry(NamedTuple):
    """All settings of a topic."""

    name: str
    config: Mapping[str, str]

    def apply(self, delta: MetadataDelta) -> None:
        delta.set_topic_config(self.name, self.config)


class BrokerConfigEntry(NamedTuple):
    """All dynamic settings of a broker by its number as text; "" stands for all brokers."""

    name: str
    config: Mapping[str, str]

    def apply(self, delta: MetadataDelta) -> None:
        delta.set_broker_config(self.name, self.config)


Entry = BrokerEntry | TopicEntry | TopicConfigEntry | BrokerConfigEntry


class MetadataUpdate(NamedTuple):
    """A part of an update."""

    cluster_id: str
    controller_id: BrokerId
    controller_epoch: int
    from_version: int
    """The version of the image that the update changes; 0 if it replaces everything."""
    version: int
    part: int
    is_last: bool
    entries: tuple[Entry, ...]


def parts_of_update(image: MetadataImage, since: MetadataChange | None) -> Iterator[MetadataUpdate]:
    """Yields the parts of the update to `image`. `since` has the image before, and the names of all that has changed
    since then; None stands for a broker that has no image."""
    changed = since or MetadataChange(
        EMPTY_IMAGE,
        frozenset(image.topics),
        frozenset(image.topic_configs),
        frozenset(image.broker_configs),
        frozenset(image.brokers),
    )
    ids = image.cluster_id, image.controller_id, image.controller_epoch, changed.image.version, image.version
    entries: list[Entry] = []
    part = weight = 0
    for entry in _entries(image, changed):
        size = _weight(entry)
        if entries and weight + size > PART_WEIGHT_MAX:
            yield MetadataUpdate(*ids, part, False, tuple(entries))
            entries, part, weight = [], part + 1, 0
        entries.append(entry)
        weight += size
    yield MetadataUpdate(*ids, part, True, tuple(entries))


def _entries(image: MetadataImage, changed: MetadataChange) -> Iterator[Entry]:
    for node_id in sorted(changed.brokers):
        yield BrokerEntry(node_id, image.brokers.get(node_id))
    for name in sorted(changed.brokers_configured):
        yield BrokerConfigEntry(name, image.broker_config(name))
    for name in sorted(changed.topics):
        yield TopicEntry(name, image.topics.get(name))
    for name in sorted(changed.topics_configured):
        yield TopicConfigEntry(name, image.topic_config(name))


def _weight(entry: Entry) -> int:
    match entry:
        case TopicEntry(_, topic):
            return 1 if topic is None else len(topic.partitions)
        case TopicConfigEntry(_, config) | BrokerConfigEntry(_, config):
            return 1 + len(config)
    return 1


class UpdateReceiver:
    """The side of a broker that receives updates: applies them in order, from the newest controller only."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.controller_epoch = image.controller_epoch
        """The newest epoch of a controller that this broker knows."""
        self._received: list[MetadataUpdate] = []
        """The parts of the update under way."""

    def receive(self, update: MetadataUpdate) -> MetadataChange | None:
        """Returns the change of the image by the last part of an update, None if the image stays.

        The sender compares `image.version` with its own afterwards, and sends the whole image if it expected another.
        The caller has refused updates of another cluster and of a controller epoch that is older than this broker
        knows.
        """
        assert update.controller_epoch >= self.controller_epoch, "the update is of a controller that was replaced"
        if update.controller_epoch > self.controller_epoch:
            self.controller_epoch = update.controller_epoch
            self._received.clear()
        if update.part == 0:
            self._received.clear()
        before = self._received[-1] if self._received else None
        if update.part != len(self._received) or (
            before is not None and (before.from_version, before.version) != (update.from_version, update.version)
        ):
            self._received.clear()
            return None
        self._received.append(update)
        if not update.is_last:
            return None
        parts, self._received = self._received, []
        image = self.image
        if update.version <= image.version or update.from_version not in (0, image.version):
            return None
        delta = MetadataDelta(image)
        if update.from_version == 0:
            delta.clear()
        delta.cluster_id = update.cluster_id
        delta.controller_id, delta.controller_epoch = update.controller_id, update.controller_epoch
        for part in parts:
            for entry in part.entries:
                entry.apply(delta)
        change = delta.apply(update.version)
        self.image = change.image
        return change
