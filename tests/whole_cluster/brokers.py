"""The brokers of a simulated cluster: real ones, each on a host of its own, with a data directory and one registry."""

import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from barnabas.broker.server import Broker
from barnabas.config.broker import BrokerConfig
from barnabas.errors import KafkaStorageError, UsageError
from barnabas.registry.registry import RegistryUnreachable
from whole_cluster.disk import SimulatedDisk
from whole_cluster.network import HostLoop, Network
from whole_cluster.world import Host, World, running

__all__ = ["Machine", "RegistryFile", "SharedRegistry"]

AGAIN_S: Final = 1.0
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
    "num.recovery.threads.per.data.dir": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "replica.lag.time.max.ms": 3000,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}


class SharedRegistry(Protocol):
    """What the brokers of a simulation share."""

    on_several_machines: bool
    """Whether brokers see nothing of each other's processes."""

    @property
    def settings(self) -> Mapping[str, object]:
        """Those of a broker that uses it."""

    def in_use(self) -> AbstractContextManager[None]:
        """The context in which brokers find it."""

    def in_sync_replicas(self) -> list[set[str]]:
        """Returns the node ids of the in-sync replicas of each partition."""


class RegistryFile:
    """The file that brokers of one machine share."""

    on_several_machines = False

    def __init__(self, directory: Path) -> None:
        self._path = directory / "registry.db"

    @property
    def settings(self) -> Mapping[str, object]:
        return {"registry.file": str(self._path)}

    def in_use(self) -> AbstractContextManager[None]:
        return nullcontext()

    def in_sync_replicas(self) -> list[set[str]]:
        with sqlite3.connect(f"file:{self._path}?mode=ro", uri=True) as db:
            rows = db.execute("SELECT isr FROM partitions").fetchall()
        db.close()
        return [set(row[0].split(",")) for row in rows]


class Machine:
    """One broker with its data, through all its processes."""

    def __init__(
        self,
        world: World,
        network: Network,
        node_id: int,
        directory: Path,
        registry: SharedRegistry,
        skew_s: float,
        settings: Mapping[str, object],
    ) -> None:
        self._settings = settings
        self.node_id = node_id
        self.name = f"b{node_id}"
        self.host: Host | None = None
        self.broker: Broker | None = None
        """None while its process is down."""
        self.is_stopping = False
        self.has_lost_records = False
        """Whether it has lost data, records that may have been committed among them, and has not started since."""
        self.on_loss: Callable[[int], None] = lambda node_id: None
        self._starts_again = False
        self._disk = SimulatedDisk()
        self._boots = 1
        self._world = world
        self._network = network
        self._directory = directory / self.name
        self._away = directory / f"{self.name}.away"
        self._copy = directory / f"{self.name}.copy"
        self._registry = registry
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
            **self._settings,
            "node.id": self.node_id,
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self._directory),
            **self._registry.settings,
        }
        self._world.note(f"start {self.name}")
        host = self.host = Host(self._world, self.name, partial(HostLoop, network=self._network), self._skew_s)
        host.boot = f"boot {self._boots}"
        boot = f"{host.boot} of {self.name}" if self._registry.on_several_machines else None
        with running(host):
            broker = Broker(BrokerConfig.of(settings), host.loop, clock=host, disk=self._disk, boot=boot)
            try:
                broker.start()
            except (UsageError, RegistryUnreachable) as error:  # no other one that runs has what is lost here, perhaps
                reason = str(error).replace(str(self._directory), "its directory")
                self._world.note(f"{self.name} cannot start: {reason}")
                host.die()
                self._world.after(AGAIN_S, self.start)
                return
        self.broker = broker
        self.has_lost_records = False

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
        shutil.rmtree(self._directory)
        self._lose_records()

    def copy(self) -> None:
        """Copies the data of a broker that is down, in the place of an earlier copy."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._directory, self._copy)

    @property
    def has_copy(self) -> bool:
        return self._copy.exists()

    def put_copy_back(self) -> None:
        """Gives a broker that is down its data of before."""
        self._world.note(f"put an old copy of {self.name} back")
        shutil.rmtree(self._directory)
        self._copy.rename(self._directory)
        self._lose_records()

    @property
    def is_away(self) -> bool:
        return self._away.exists()

    def unmount(self) -> None:
        """Takes the data of a broker that is down away."""
        self._world.note(f"unmount {self.name}")
        self._directory.rename(self._away)
        self._lose_records()

    @property
    def has_begun_anew(self) -> bool:
        """Whether the broker has run without the data that are away."""
        return self._directory.exists()

    def leave_away(self) -> None:
        """Leaves the data that are away for good."""
        shutil.rmtree(self._away)

    def mount(self) -> None:
        """Brings the data of a broker that is down back, in the place of what it has begun without them."""
        self._world.note(f"mount {self.name}")
        shutil.rmtree(self._directory, ignore_errors=True)
        self._away.rename(self._directory)
        self._lose_records()

    def lose_power(self) -> None:
        """Loses what a broker that is down has not synced."""
        self._boots += 1
        lost = self._disk.lose_power(self._directory, self._world.random)
        self._world.note(f"{self.name} loses {lost} bytes with its power")
        if self._settings.get("durability") != "fsync" and lost > 0:
            self._lose_records()

    def _lose_records(self) -> None:
        self.has_lost_records = True
        self.on_loss(self.node_id)
