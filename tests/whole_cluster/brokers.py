"""The brokers of a simulated cluster: real ones, each on a host of its own, with a data directory and one registry."""

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from barnabas.broker.server import Broker
from barnabas.config.broker import BrokerConfig
from barnabas.errors import KafkaStorageError
from barnabas.log.directories.disk import Disk
from whole_cluster.network import HostLoop, Network
from whole_cluster.world import Host, World, running

__all__ = ["Machine", "UnsyncedDisk"]

FIRST_PORT: Final = 9_000
SETTINGS: Final[Mapping[str, object]] = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 3000,
    "default.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.enable": "false",
    "log.dir.reserve.bytes": 0,
    "log.retention.ms": -1,
    "min.insync.replicas": 2,
    "num.partitions": 2,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "replica.lag.time.max.ms": 3000,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}


class UnsyncedDisk(Disk):
    """A disk whose syncs cost no time."""

    @staticmethod
    def fdatasync(fd: int) -> None: ...


class Machine:
    """One broker with its data, through all its processes."""

    def __init__(self, world: World, network: Network, node_id: int, directory: Path, skew_s: float) -> None:
        self.node_id = node_id
        self.name = f"b{node_id}"
        self.host: Host | None = None
        self.broker: Broker | None = None
        """None while its process is down."""
        self.is_stopping = False
        self.is_wiped = False
        """Whether its data are lost and it has not started since."""
        self._starts_again = False
        self._world = world
        self._network = network
        self._directory = directory / self.name
        self.registry = directory / "registry.db"
        self._skew_s = skew_s

    @property
    def address(self) -> str:
        return f"127.0.0.1:{FIRST_PORT + self.node_id}"

    def start(self) -> None:
        """Starts the broker if it is down, after its stop if it is stopping."""
        if self.broker is not None:
            self._starts_again = self.is_stopping
            return
        settings = {
            **SETTINGS,
            "node.id": self.node_id,
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self._directory),
            "registry.file": str(self.registry),
        }
        self._world.note(f"start {self.name}")
        host = self.host = Host(self._world, self.name, partial(HostLoop, network=self._network), self._skew_s)
        with running(host):
            broker = Broker(BrokerConfig.of(settings), host.loop, clock=host, disk=UnsyncedDisk())
            broker.start()
        self.broker = broker
        self.is_wiped = False

    def kill(self) -> None:
        """Ends the process as SIGKILL does. The page cache stays."""
        broker, host = self.broker, self.host
        if broker is None or host is None:
            return
        self._world.note(f"kill {self.name}")
        self.broker = None
        self.is_stopping = False
        host.die()
        with running(host):
            broker.abandon()
        self._world.kept.append(broker)

    def stop(self) -> None:
        """Begins a controlled shutdown."""
        if self.broker is not None and not self.is_stopping:
            self._world.note(f"stop {self.name}")
            self.is_stopping = True
            assert self.host is not None
            self.host.call(self._begin_stop, self.broker)

    def _begin_stop(self, broker: Broker) -> None:
        broker.loop.create_task(self._stop(broker))

    async def _stop(self, broker: Broker) -> None:
        await broker.leave_cluster()
        try:
            broker.stop()
        except KafkaStorageError as error:
            self._world.note(f"{self.name}: {error}")
        assert self.host is not None
        self.host.die()
        self.broker = None
        self.is_stopping = False
        self._world.note(f"{self.name} has stopped")
        self._world.kept.append(broker)
        if self._starts_again:
            self._starts_again = False
            self._world.after(0, self.start)

    def wipe(self) -> None:
        """Loses the data of a broker that is down."""
        self._world.note(f"wipe {self.name}")
        self.is_wiped = True
        shutil.rmtree(self._directory)
