"""Brokers that replicate over TCP. The test decides what the metadata says: each broker has a registry of its own."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from barnabas.broker import server
from barnabas.broker.cluster.replica_fetcher_manager import ReplicaFetcherManager
from barnabas.broker.peers.identity import PeerIdentity
from barnabas.broker.peers.inter_broker_listener import InterBrokerListener
from barnabas.broker.peers.peer_connections import PeerAddress, PeerConnections
from barnabas.config.broker import BrokerConfig
from barnabas.connection.broker.cluster_connections import ConnectionSettings
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.replication.partition import Partition
from barnabas.replication.replica import IsrChange
from barnabas.testing import Broker
from barnabas.types import BrokerId, LeaderEpoch
from barnabas.version import __version__
from broker.peers.conftest import run_on
from broker.wire import on_controller, on_loop, server_of
from replication.rig import validated_batch

__all__ = ["ReplicatedBrokers"]

T = TypeVar("T")
SECRET = b"secret of the test"
QUICK = ConnectionSettings(backoff_s=0.001, backoff_max_s=0.01)


class Services:
    """The parts of a broker that its fetchers use, with connections of the test."""

    def __init__(self, server: server.Broker, addresses: Mapping[int, PeerAddress]) -> None:
        self._server = server
        self.loop = server.loop
        self.node_id = server.node_id
        self.failures = server.failures
        self.time_slicer = server.time_slicer
        self.replica_manager = server.replica_manager
        self.listener = InterBrokerListener(
            server,
            SECRET,
            self.identity,
            log=server.log,
            on_peer_lost=lambda _: None,
            in_thread=partial(server.loop.run_in_executor, None),
        )
        self.peers = PeerConnections(addresses.get, self.identity, SECRET, server.failures, QUICK)

    def identity(self) -> PeerIdentity:
        return PeerIdentity("cluster", self.node_id, self.image.brokers[self.node_id].epoch, __version__)

    @property
    def config(self) -> BrokerConfig:
        return self._server.config

    @property
    def image(self) -> MetadataImage:
        return self._server.image

    def close(self) -> None:
        self.peers.close()
        self.listener.close()


class ReplicatedBrokers:
    """`change` changes the metadata, `publish` gives it to the brokers."""

    def __init__(self, directory: Path, node_ids: Sequence[int] = (1, 2), **settings: object) -> None:
        self.brokers: dict[int, Broker] = {}
        self.services: dict[int, Services] = {}
        self.managers: dict[int, ReplicaFetcherManager] = {}
        self.addresses: dict[int, PeerAddress] = {}
        self.topics: dict[str, TopicImage] = {}
        self.isr_changes: list[IsrChange] = []
        self.fenced: set[int] = set()
        """The brokers that the metadata calls fenced."""
        self._version = 1000
        self._starts = 0
        options = {name.replace("_", "."): value for name, value in settings.items()}
        for node_id in node_ids:
            self.brokers[node_id] = Broker(data_dir=directory / str(node_id), settings={**options, "node.id": node_id})
            self.start(node_id)

    def start(self, node_id: int) -> None:
        """Starts a broker, which registers in the next epoch. The others know when the metadata is published."""
        broker = self.brokers[node_id].start()
        self.services[node_id] = run_on(broker, self._connect(server_of(broker)))
        self._starts += 1
        self.addresses[node_id] = PeerAddress(self.services[node_id].listener.endpoint, self._starts)

    async def _connect(self, broker: server.Broker) -> Services:
        setattr(broker, "submit_isr_change", self.isr_changes.append)  # noqa: B010
        return Services(broker, self.addresses)

    def stop(self, node_id: int) -> None:
        """Stops a broker as if its process ended."""
        manager = self.managers.pop(node_id, None)
        if manager is not None:
            self.on(node_id, manager.shutdown)
        self.on(node_id, self.services[node_id].close)
        self.brokers[node_id].stop()

    def close(self) -> None:
        for node_id, broker in self.brokers.items():
            if broker.is_running:
                self.stop(node_id)
            broker.close()

    def on(self, node_id: int, function: Callable[[], T]) -> T:
        """Runs a function on a broker's loop."""
        result: T = on_loop(self.brokers[node_id], function)
        return result

    # --- metadata ---------------------------------------------------------------------------------------------------

    def create(self, name: str, *partitions: Sequence[int], to: Sequence[int] = ()) -> None:
        """Creates a topic by the replicas of each partition. The first one leads, all are in sync.

        The registry knows it as a topic of the first broker, so that this one may restart.
        """
        first = next(iter(self.brokers.values()))
        first.create_topic(name, len(partitions))
        image = on_controller(first, lambda controller: controller.image)
        self.topics[name] = TopicImage(
            name,
            image.topics[name].topic_id,
            tuple(
                PartitionImage(BrokerId(replicas[0]), LeaderEpoch(0), _ids(replicas), _ids(replicas), 10)
                for replicas in partitions
            ),
        )
        self.publish(name, to=to)

    def change(self, name: str, number: int = 0, **changes: Any) -> None:
        """Changes a partition and its partition epoch, without telling the brokers."""
        topic = self.topics[name]
        partition = topic.partitions[number]
        if "leader" in changes:
            changes["leader_epoch"] = partition.leader_epoch + 1
        changed = partition._replace(partition_epoch=partition.partition_epoch + 1, **changes)
        partitions = (*topic.partitions[:number], changed, *topic.partitions[number + 1 :])
        self.topics[name] = topic._replace(partitions=partitions)

    def _next_image(self) -> MetadataImage:
        self._version += 1
        return MetadataImage(
            "cluster",
            version=self._version,
            brokers={
                BrokerId(node_id): BrokerImage(
                    BrokerId(node_id),
                    address.broker_epoch,
                    (),
                    fenced=node_id in self.fenced,
                    peer_endpoint=address.endpoint,
                )
                for node_id, address in self.addresses.items()
            },
            topics=dict(self.topics),
        )

    def publish(self, *names: str, to: Sequence[int] = ()) -> None:
        """Gives the metadata to brokers, or to those of `to`."""
        image = self._next_image()
        for node_id in to or self.brokers:
            if self.brokers[node_id].is_running:
                self.on(node_id, partial(self._take, node_id, image, names))

    def _take(self, node_id: int, image: MetadataImage, names: Sequence[str]) -> None:
        server: Any = server_of(self.brokers[node_id])
        server._image = image
        server.replica_manager.apply(image)
        if node_id not in self.managers:
            self.managers[node_id] = ReplicaFetcherManager(self.services[node_id])
        else:
            self.managers[node_id].image_changed(image, names or None)

    # --- records ----------------------------------------------------------------------------------------------------

    def partition(self, node_id: int, topic: str, number: int = 0) -> Partition:
        partition = server_of(self.brokers[node_id]).replica_manager.get(topic, number)
        assert partition is not None
        return partition

    def append(self, node_id: int, topic: str, *values: bytes, number: int = 0) -> None:
        partition = self.partition(node_id, topic, number)
        self.on(node_id, lambda: [partition.append_as_leader(validated_batch(value), 1) for value in values])

    def end_offset(self, node_id: int, topic: str, number: int = 0) -> int:
        return self.partition(node_id, topic, number).log.log_end_offset

    def bytes_of(self, node_id: int, topic: str, number: int = 0) -> bytes:
        def read() -> bytes:
            segments = self.partition(node_id, topic, number).log.segments
            return b"".join(segment.read(0, segment.size) for segment in segments)

        return self.on(node_id, read)

    def wait_for(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        next(iter(self.brokers.values())).wait_for(condition, what=what)

    def wait_for_end(self, node_id: int, topic: str, offset: int, number: int = 0) -> None:
        self.wait_for(lambda: self.end_offset(node_id, topic, number) == offset, f"broker {node_id} at {offset}")


def _ids(node_ids: Sequence[int]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(node_id) for node_id in node_ids)
