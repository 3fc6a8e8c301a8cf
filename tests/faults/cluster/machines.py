"""Machines, each with a broker and a member of ZooKeeper's ensemble, with a network between them that fails.

A machine is a namespace of networks. Its broker sees no process of other machines either: whether one of their brokers
has died, only the network can tell it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from barnabas.types import TopicPartition
from cluster.brokers import ClusterProcesses
from cluster.clients import Client
from cluster.history import History
from cluster.plan import Deed, Fault
from cluster.witness import Witness
from network_namespaces import Network
from zookeeper_server import ZooKeeperEnsemble

__all__ = ["ClusterMachines", "ZooKeepers"]

FIRST_PORT = 9092
SERVICE_MANAGER = """
trap 'exit 0' TERM
while :; do
    "$@"
    code=$?
    case $code in 1 | 75) sleep 1 ;; *) exit $code ;; esac
done
"""
"""Starts a broker anew that could not start, because ZooKeeper has lost its quorum meanwhile, or others that have
all records are not there, as the service of `deploy` does. A traceback, or a death by a signal, is a failure."""
DELAYS_S = ((0.0, 0.02), (0.02, 0.2), (0.1, 1.0))
LOSSES = (0.0, 0.05, 0.3)
LARGEST_BYTES = (300, 576, 1400)
"""The packets that pass where the rest is swallowed without a word: TCP connects, heartbeats pass, batches do not."""


class ZooKeepers:
    """The members of the ensemble, as the faults hit them."""

    def __init__(self, ensemble: ZooKeeperEnsemble) -> None:
        self._servers = ensemble.servers
        self.ids = list(self._servers)
        self._frozen: set[int] = set()

    def running(self, number: int) -> bool:
        return self._servers[number].is_running

    def start(self, number: int) -> None:
        self._servers[number].launch()

    def kill(self, number: int) -> None:
        self._servers[number].kill()
        self._frozen.discard(number)

    def freeze(self, number: int) -> None:
        self._servers[number].pause()
        self._frozen.add(number)

    def thaw(self, number: int) -> None:
        if number in self._frozen:
            self._frozen.discard(number)
            self._servers[number].resume()

    @property
    def reachable(self) -> list[int]:
        """Those that run and are not stopped, the leader first if there is one."""
        found = [number for number in self._servers if self.running(number) and number not in self._frozen]
        return sorted(found, key=lambda number: self._servers[number].mode() != "leader")


class ClusterMachines(ClusterProcesses):
    """Machines 1 to N with broker and ZooKeeper; `ClusterProcesses` on a `Network`, on whose router all clients are."""

    def __init__(self, root: Path, brokers: int, settings: Mapping[str, str], network: Network, **options: Any) -> None:
        """The ``options`` are those of `ClusterProcesses`."""
        own = {
            "advertise": "listeners",  # in a container the router would be taken for its gateway
            "zookeeper.connection.timeout.ms": "600000",  # a broker that starts waits until ZooKeeper has a quorum
        }
        super().__init__(root, brokers, {**settings, **own}, first_port=FIRST_PORT, **options)
        self._network = network
        for number in self.ids:
            network.add(number)
        root.mkdir(parents=True)
        self._ensemble = ZooKeeperEnsemble(
            root, {number: (network.host(number), network.command(number)) for number in self.ids}
        )
        self._zookeepers = ZooKeepers(self._ensemble)

    def witnesses(self, partitions: list[TopicPartition], history: History) -> list[Client]:
        """Makes a witness for each broker."""
        return [Witness(broker, (self.host(broker), self.port(broker)), partitions, history) for broker in self.ids]

    @property
    def zookeepers(self) -> ZooKeepers:
        return self._zookeepers

    def start_all(self) -> None:
        self._ensemble.start()
        super().start_all()

    def host(self, broker: int) -> str:
        return self._network.host(broker)

    def _prefix(self, broker: int) -> list[str]:
        own_processes = ["unshare", "--pid", "--fork", "--kill-child"]
        return [*self._network.command(broker), *own_processes, "sh", "-c", SERVICE_MANAGER, "sh"]

    def _registry(self, file: Path) -> list[str]:
        return ["--zookeeper", f"{self._ensemble.address}/faults"]

    def _send(self, pid: int, number: int) -> None:
        """A broker that is killed ends before `unshare`, its parent: whoever waits for that may start it again."""
        if number == signal.SIGKILL:
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), number)
                return
        super()._send(pid, number)

    def cut(self, broker: int, other: int, *, both_ways: bool) -> Callable[[], None]:
        return self._network.cut(broker, other, one_way=not both_ways)

    def worsen(self, broker: int, other: int, fault: Fault) -> Callable[[], None]:
        """Delays and loses packets between two machines, or the large ones. Returns what ends it."""
        if fault.deed is Deed.SWALLOW:
            size = LARGEST_BYTES[fault.partition % len(LARGEST_BYTES)]
            none = (0.0, 0.0)
            return self._network.worsen(
                broker, other, delay_s=none, loss=0.0, seed="", one_way=not fault.both_ways, largest_bytes=size
            )
        return self._network.worsen(
            broker,
            other,
            delay_s=DELAYS_S[fault.partition % len(DELAYS_S)],
            loss=LOSSES[fault.partition // 2 % len(LOSSES)],
            seed=f"{fault.at_s}",
            one_way=not fault.both_ways,
        )

    def stop_all(self) -> None:
        super().stop_all()
        self._ensemble.kill()
        self._network.heal()
