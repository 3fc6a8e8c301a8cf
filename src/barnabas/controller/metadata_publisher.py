"""Decides which metadata update each broker gets next. The active controller keeps one publisher for its epoch.

A broker has one part of an update in flight at a time. While it is slow, changes are gathered by name, and the next
update has the newest state of each: a broker that was stopped for an hour gets one update, not ten thousand.
"""

from collections.abc import Iterator

from barnabas.metadata.delta import MetadataChange
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.update import MetadataUpdate, parts_of_update
from barnabas.types import BrokerId

__all__ = ["MetadataPublisher"]


class _Subscription:
    """The updates of one broker."""

    def __init__(self) -> None:
        self.since: MetadataChange | None = None
        """The image that the broker has, with the names that have changed since. None if the image is not known."""
        self.parts: Iterator[MetadataUpdate] = iter(())
        """The parts of the update under way that were not sent yet."""
        self.in_flight: MetadataUpdate | None = None
        self.target: MetadataImage | None = None
        """The image to which the update under way leads; None without one."""


class MetadataPublisher:
    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._brokers: dict[BrokerId, _Subscription] = {}

    def image_changed(self, change: MetadataChange) -> None:
        """Notes the next image. A broker that has registered again is a new process, which has no image."""
        before, self._image = self._image, change.image
        for node_id in change.brokers:
            if _epoch_of(before, node_id) != _epoch_of(change.image, node_id):
                self._brokers.pop(node_id, None)
        for subscription in self._brokers.values():
            if subscription.since is not None:
                subscription.since = _union(subscription.since, change)

    def next_update(self, node_id: BrokerId) -> MetadataUpdate | None:
        """Returns the part that the broker gets now, which then is in flight; None if one is in flight already, or the
        broker has the newest image or is not registered."""
        if node_id not in self._image.brokers:
            return None
        subscription = self._brokers.setdefault(node_id, _Subscription())
        if subscription.in_flight is not None:
            return None
        if subscription.target is None:
            since, image = subscription.since, self._image
            if since is not None and since.image.version == image.version:
                return None
            subscription.target = image
            subscription.since = MetadataChange(image)
            subscription.parts = parts_of_update(image, since)
        subscription.in_flight = next(subscription.parts)
        return subscription.in_flight

    def acknowledged(self, node_id: BrokerId, sent: MetadataUpdate, version: int) -> None:
        """Notes that the broker has answered the part `sent` with the version of its image."""
        subscription = self._brokers.get(node_id)
        if subscription is None or subscription.in_flight is not sent:
            return  # the broker has registered again since
        subscription.in_flight = None
        if version >= sent.version:
            subscription.target = None  # done; or the broker had this image before the first part
        elif sent.is_last:
            self.failed(node_id, sent)

    def failed(self, node_id: BrokerId, sent: MetadataUpdate) -> None:
        """Notes that the part `sent` got no answer, or did not fit: the broker gets the whole image."""
        subscription = self._brokers.get(node_id)
        if subscription is not None and subscription.in_flight in (sent, None):
            self._brokers[node_id] = _Subscription()


def _epoch_of(image: MetadataImage, node_id: BrokerId) -> int | None:
    broker = image.brokers.get(node_id)
    return None if broker is None else broker.epoch


def _union(since: MetadataChange, change: MetadataChange) -> MetadataChange:
    return MetadataChange(
        since.image,
        since.topics | change.topics,
        since.topics_configured | change.topics_configured,
        since.brokers_configured | change.brokers_configured,
        since.brokers | change.brokers,
    )
