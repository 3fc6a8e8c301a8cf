"""A simulated cluster of three brokers."""

import contextlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from barnabas.broker.server import Broker
from whole_cluster.ambient import surroundings
from whole_cluster.brokers import Machine, RegistryFile, SharedRegistry
from whole_cluster.network import HostLoop, Network
from whole_cluster.world import Host, SimulationError, World, running
from whole_cluster.zookeeper import Ensemble

__all__ = ["NODE_IDS", "Cluster", "simulated_cluster"]

NODE_IDS: Final = (1, 2, 3)
SKEW_S: Final = 30.0
NO_SETTINGS: Final[Mapping[str, object]] = {}
_MEMORY: Final = "/dev/shm"


class Cluster:
    def __init__(
        self, world: World, network: Network, directory: Path, settings: Mapping[str, object], registry: SharedRegistry
    ) -> None:
        self.world = world
        self.network = network
        self.registry = registry
        self.zookeeper = registry if isinstance(registry, Ensemble) else None
        self.keeps_synced_records = settings.get("durability") == "fsync"
        """Whether records are committed only when they are on the disks."""
        self.machines = {
            node_id: Machine(
                world, network, node_id, directory, registry, world.random.uniform(-SKEW_S, SKEW_S), settings
            )
            for node_id in NODE_IDS
        }

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(machine.address for machine in self.machines.values())

    @property
    def brokers(self) -> dict[int, Broker]:
        """The brokers that run."""
        return {node_id: each.broker for node_id, each in self.machines.items() if each.broker is not None}

    def client_host(self, name: str) -> Host:
        """Returns the host of a new client."""
        skew_s = self.world.random.uniform(-SKEW_S, SKEW_S)
        return Host(self.world, name, partial(HostLoop, network=self.network), skew_s)

    def spawn(self, host: Host, work: Coroutine[Any, Any, Any]) -> None:
        with running(host):
            host.loop.create_task(self._guarded(host, work))

    async def _guarded(self, host: Host, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except Exception as error:
            self.world.errors.append(f"{host.name}: {error!r}")

    def start(self) -> None:
        for machine in self.machines.values():
            machine.start()
        self.wait("the brokers are live", self.are_live)

    def are_live(self) -> bool:
        brokers = self.brokers
        return len(brokers) == len(NODE_IDS) and all(
            len(broker.image.brokers) == len(NODE_IDS)
            and not any(each.fenced for each in broker.image.brokers.values())
            and broker.image.controller_id in brokers
            for broker in brokers.values()
        )

    def wait(self, what: str, until: Callable[[], bool], limit_s: float = 60.0) -> None:
        if not self.world.run(until, limit_s):
            raise SimulationError(f"it is not so within {limit_s:g} s: {what}")


@contextlib.contextmanager
def simulated_cluster(
    seed: int,
    settings: Mapping[str, object] = NO_SETTINGS,
    tell: Callable[[str], object] | None = None,
    *,
    zookeeper: bool = False,
) -> Iterator[Cluster]:
    """The context of a cluster that is ready to start, with its registry in ZooKeeper or in a file. An error tells the
    seed and the last events. `tell` is called with each line of the trace."""
    world = World(seed, tell)
    network = Network(world)
    directory = Path(tempfile.mkdtemp(prefix="barnabas-simulation-", dir=_MEMORY if Path(_MEMORY).is_dir() else None))
    registry: SharedRegistry = Ensemble(world) if zookeeper else RegistryFile(directory)
    with surroundings(world, network, directory, logging.WARNING), registry.in_use():
        cluster = Cluster(world, network, directory, settings, registry)
        try:
            yield cluster
        except Exception as error:
            error.add_note(f"seed {seed}; the last events:\n" + "\n".join(world.lines))
            raise
        finally:
            for machine in cluster.machines.values():
                machine.kill()
            world.end()
            shutil.rmtree(directory, ignore_errors=True)
