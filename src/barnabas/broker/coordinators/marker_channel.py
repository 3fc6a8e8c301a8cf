"""Sends end markers to the leaders of their partitions, on this broker and on others.

A deleted partition needs no marker. Only the image of this broker tells that a partition is deleted: it is, if the
image does not have it. The proof: a coordinator adds a partition to a transaction only if its own image has the
partition. Earlier coordinators of the transactional id had older images than the one in which this broker was elected,
because the image that shows its successor makes a coordinator resign, and its later records never reach the successor's
log. So this broker's image is newer than the creation of the partition.

UNKNOWN_TOPIC_OR_PARTITION from another broker proves nothing: that broker may not know of the partition yet. A
transaction that was completed without the marker would hold up the partition's readers for ever. So the marker is sent
again until it is committed, or until the partition is gone from the image.

Where we differ from Kafka: a partition that another broker does not know, or whose leader's broker is not known, still
gets its end marker.
"""

from __future__ import annotations  # the type of a module that a broker alone must not import

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.transaction_markers import Outcomes, write_markers
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import EventLoopScheduler
from barnabas.coordinator.transaction.transaction_marker_channel_manager import EndMarkers
from barnabas.errors import BrokerNotAvailable, NotLeaderOrFollower, UnknownTopicOrPartition
from barnabas.late_imports import import_late
from barnabas.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.cluster.remote_markers import RemoteMarkers

__all__ = ["BrokerMarkerChannel"]


class BrokerMarkerChannel:
    """Implements `transaction_marker_channel_manager.MarkerChannel` with the metadata image."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker
        self._remote: RemoteMarkers | None = None

    def __call__(self, markers: EndMarkers, reply: Callable[[Outcomes], None]) -> None:
        broker = self._broker
        image = broker.image
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        unsent: Outcomes = {}
        for topic_partition in markers.partitions:
            found = image.partition(*topic_partition)
            if found is None:
                unsent[topic_partition] = UnknownTopicOrPartition(f"{topic_partition} is deleted")
            elif found.leader == broker.node_id or (broker.peers is not None and image.is_active(found.leader)):
                by_leader.setdefault(found.leader, []).append(topic_partition)
            else:
                unsent[topic_partition] = NotLeaderOrFollower(f"{topic_partition} has no live leader")
        if unsent:
            reply(unsent)
        for leader, partitions in by_leader.items():
            part = markers._replace(partitions=partitions)
            if leader == broker.node_id:
                write_markers(broker, part, lambda outcomes: reply(_retried(outcomes)))
            else:
                self._write_remotely(leader, part, reply)

    def _write_remotely(self, leader: BrokerId, markers: EndMarkers, reply: Callable[[Outcomes], None]) -> None:
        try:
            remote = self._made_remote()
        except OSError as error:  # neither memory nor a descriptor for its code
            reply(dict.fromkeys(markers.partitions, BrokerNotAvailable(f"broker {leader} cannot be asked: {error}")))
        else:
            remote.write(leader, markers, lambda outcomes: reply(_retried(outcomes)))

    def _made_remote(self) -> RemoteMarkers:
        if self._remote is None:
            broker, made = self._broker, import_late("barnabas.broker.cluster.remote_markers").RemoteMarkers
            self._remote = made(lambda: broker.peers, EventLoopScheduler(broker.loop), broker.failures)
        return self._remote

    def brokers_changed(self) -> None:
        """Fails the markers for brokers that are not active any more."""
        if self._remote is not None:
            self._remote.brokers_changed(self._broker.image.is_active)


def _retried(outcomes: Outcomes) -> Outcomes:
    """Returns the outcomes with another error for partitions that a leader does not know: see the rule above."""
    return {
        topic_partition: NotLeaderOrFollower(f"the leader of {topic_partition} does not know it yet: {error.message}")
        if isinstance(error, UnknownTopicOrPartition)
        else error
        for topic_partition, error in outcomes.items()
    }
