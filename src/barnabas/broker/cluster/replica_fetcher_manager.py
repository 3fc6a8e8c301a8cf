"""Gives each partition that this broker follows to the fetcher of its leader, as the metadata says."""

import asyncio
from collections.abc import Collection
from typing import Final, Protocol

from barnabas.broker.cluster.replica_fetcher import FetcherServices, ReplicaFetcher
from barnabas.config.endpoints import Endpoint
from barnabas.metadata.image import MetadataImage
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.types import BrokerId

__all__ = ["ReplicaFetcherManager"]

_MISSING_INTERVAL_S: Final = 10.0
"""The interval at which partitions are looked for whose logs the disk has refused. Those are tried as often."""


class ManagerServices(FetcherServices, Protocol):
    """The parts of a broker that the manager uses."""

    @property
    def replica_manager(self) -> ReplicaManager: ...


class ReplicaFetcherManager:
    """Owns the fetchers: one for each broker that leads a partition of which this broker has a replica."""

    def __init__(self, broker: ManagerServices) -> None:
        self._broker = broker
        self._fetchers: dict[BrokerId, ReplicaFetcher] = {}
        self._followed: dict[str, dict[int, tuple[Partition, ReplicaFetcher]]] = {}
        """The partitions with their fetchers, by topic and number."""
        self._registrations: dict[BrokerId, tuple[int, bool, Endpoint | None]] = {}
        """The epoch, the fence and the address of each leader, when its fetcher was last told."""
        self._missing: set[str] = set()
        """The topics with a replica here that has no log, as the disk has refused it."""
        self._timer: asyncio.TimerHandle | None = None
        broker.replica_manager.on_opened.append(self._opened)
        self.image_changed(broker.image, None)

    def image_changed(self, image: MetadataImage, changed_topics: Collection[str] | None) -> None:
        """Follows new metadata, once the replica manager has applied it. `changed_topics` are the topics that differ;
        None means all."""
        names = changed_topics if changed_topics is not None else image.topics.keys() | self._followed.keys()
        for name in sorted(self._missing.union(names)):
            self._follow_topic(image, name)
        self._update_registrations(image)
        if self._missing and self._timer is None:
            self._timer = self._broker.loop.call_later(_MISSING_INTERVAL_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self.image_changed(self._broker.image, ())

    def _follow_topic(self, image: MetadataImage, name: str) -> None:
        node_id, replica_manager = self._broker.node_id, self._broker.replica_manager
        before = self._followed.pop(name, {})
        now: dict[int, tuple[Partition, ReplicaFetcher]] = {}
        topic = image.topics.get(name)
        self._missing.discard(name)
        for number, assigned in enumerate(topic.partitions if topic is not None else ()):
            if node_id not in assigned.replicas:
                continue
            partition = replica_manager.get(name, number)
            if partition is None:
                self._missing.add(name)
            elif not partition.is_leader and partition.leader_id >= 0:
                now[number] = partition, self._fetcher(partition.leader_id)
        for number, (partition, fetcher) in before.items():
            if now.get(number) != (partition, fetcher):
                fetcher.remove(partition)
        for number, (partition, fetcher) in now.items():
            if before.get(number) != (partition, fetcher):
                fetcher.add(partition)
        if now:
            self._followed[name] = now

    def _opened(self, partition: Partition) -> None:
        """Follows with a replica whose log was made later than the image said."""
        if not partition.is_leader and partition.leader_id >= 0:
            name, number = partition.topic_partition
            fetcher = self._fetcher(partition.leader_id)
            self._followed.setdefault(name, {})[number] = partition, fetcher
            fetcher.add(partition)
            self._update_registrations(self._broker.image)

    def _fetcher(self, leader_id: BrokerId) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = ReplicaFetcher(self._broker, leader_id)
        return fetcher

    def _update_registrations(self, image: MetadataImage) -> None:
        for leader_id, fetcher in self._fetchers.items():
            broker = image.brokers.get(leader_id)
            if broker is None:
                continue
            registration = broker.epoch, broker.fenced, broker.peer_endpoint
            if self._registrations.get(leader_id) != registration:
                self._registrations[leader_id] = registration
                fetcher.leader_registered()

    def shutdown(self) -> None:
        """Stops all fetchers."""
        if self._timer is not None:
            self._timer.cancel()
        for fetcher in self._fetchers.values():
            fetcher.shutdown()
