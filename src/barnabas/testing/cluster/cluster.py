"""Several brokers that are one cluster: `with Cluster() as cluster: ...`, with verbs for all that goes wrong in one."""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.client.admin.topics import NewTopic
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.errors import (
    EligibleLeadersNotAvailable,
    NotController,
    NotCoordinator,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
    UsageError,
)
from barnabas.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from barnabas.metadata.partitioning import partition_for
from barnabas.testing.broker import Broker, BrokerDied
from barnabas.testing.checks import (
    new_topics,
    refuse_settings,
    require_count,
    require_number,
    require_partition,
    require_patience,
)
from barnabas.testing.clock import SkewedClock
from barnabas.testing.cluster.broker_process import BrokerProcess, Launcher
from barnabas.testing.cluster.links import Links
from barnabas.testing.cluster.logs import LoggedBatch, read_replica
from barnabas.testing.contents import TopicRecord
from barnabas.testing.disk import FaultyDisk
from barnabas.testing.exits import at_exit
from barnabas.testing.groups import AwaitedGroup, GroupState
from barnabas.testing.ports import ReservedPort
from barnabas.testing.waiting import Wait, wait_for_condition
from barnabas.types import BrokerId

if TYPE_CHECKING:
    from barnabas.client.admin.front import Admin

__all__ = ["Cluster"]

T = TypeVar("T")

_POLL_S: Final = 0.002
_LISTENER: Final = "BROKERS"
"""The name of the listener for other brokers."""

CLUSTER_SETTINGS: Mapping[str, object] = {
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 3000,
    "replica.lag.time.max.ms": 3000,
    "transaction.state.log.num.partitions": 5,
}
"""The settings that differ from those of `barnabas serve`, beside those of every test's broker: a broker that is silent
is noticed in three seconds."""

_OWN_SETTINGS: Mapping[str, str] = {
    **dict.fromkeys(("node.id", "broker.id"), "the brokers have the ids 1, 2 and so on"),
    **dict.fromkeys(
        (
            "listeners",
            "advertised.listeners",
            "inter.broker.listener.name",
            "security.inter.broker.protocol",
            "listener.security.protocol.map",
        ),
        "the cluster takes free ports, and puts links that can be cut between the brokers",
    ),
    **dict.fromkeys(("log.dir", "log.dirs"), "log_dirs=2 gives each broker two directories"),
    "registry.file": "it is in the directory of the cluster; zookeeper.connect names a ZooKeeper instead",
}
"""The settings that the cluster chooses itself, with the reasons."""


class Cluster:
    """A cluster for tests: `with Cluster() as cluster: client(cluster.bootstrap_servers)`.

    Its brokers have the ids 1, 2 and so on; each is a `barnabas.testing.Broker` in a thread of its own, or with
    `processes` in a process of its own. Their data are in a temporary directory, which is removed at the end. `racks`:
    the rack of each broker. `settings`: the settings of all brokers under Kafka's names. Topics get three replicas and
    min.insync.replicas=2 unless they say otherwise. `log_dirs`: the number of log directories of each broker, between
    which replicas can move. `several_machines`: each broker seems to run on a machine of its own, so that the others
    know of its death only what they see over the network; that needs a `zookeeper.connect` among the settings.
    `patience`: the seconds that a method waits before it raises TimeoutError. All methods may be called from any
    thread, also from one with a running event loop.
    """

    def __init__(
        self,
        brokers: int = 3,
        racks: Sequence[str] | None = None,
        *,
        processes: bool = False,
        log_dirs: int = 1,
        several_machines: bool = False,
        settings: Mapping[str, object] | None = None,
        patience: float = 30.0,
    ) -> None:
        require_count(brokers, 100, "a cluster has 1 to 100 brokers")
        require_count(log_dirs, 100, "a broker has 1 to 100 log directories")
        refuse_settings(settings or {}, _OWN_SETTINGS)
        require_patience(patience)
        if racks is not None and (isinstance(racks, str) or not isinstance(racks, Sequence)):
            raise UsageError(f"racks is a list with the rack of each broker, as in ['a', 'b', 'b'], not {racks!r}")
        if racks is not None and len(racks) != brokers:
            raise UsageError(f"racks names {len(racks)} racks; give one for each of the {brokers} brokers")
        if several_machines and "zookeeper.connect" not in (settings or {}):
            raise UsageError("brokers on several machines cannot share a file: set zookeeper.connect")
        self.patience = patience
        self._several_machines = several_machines
        self.node_ids = tuple(range(1, brokers + 1))
        self._racks = racks
        self._processes = processes
        self._log_dirs = log_dirs
        self._launcher: Launcher | None = None
        self._settings = {**CLUSTER_SETTINGS, **_replication_settings(brokers), **(settings or {})}
        self._brokers: dict[int, Broker] = {}
        self._ports: list[ReservedPort] = []
        self._links: Links | None = None
        self._data_dir: Path | None = None
        self._keep_open: Callable[[], None] | None = None
        """While the cluster runs: takes back that it is closed at the end of the process."""

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self, node_id: int | None = None, *, lost_dirs: str | Path | Iterable[str | Path] = ()) -> "Cluster":
        """Starts all brokers, or the one with this node id that was killed or stopped, on its port and data.

        They know each other and can lead when this returns. A broker with a link that is cut is not waited for.
        `lost_dirs`: log directories of the broker that the test has removed, if nobody else has their replicas.
        """
        if node_id is not None:
            self._start_broker(node_id, lost_dirs)
            return self
        if lost_dirs:
            raise UsageError("lost_dirs: name the broker as well, start(i, lost_dirs=...)")
        if self.is_running:
            raise UsageError("the cluster runs already; start(i) starts a broker of it")
        try:
            self._data_dir = Path(tempfile.mkdtemp(prefix="barnabas-"))
            self._keep_open = at_exit(self.close)
            client_ports, peer_ports = ({node_id: self._reserved() for node_id in self.node_ids} for _ in range(2))
            self._links = Links(peer_ports)
            self._launcher = Launcher(self._data_dir) if self._processes else None
            for node_id in self.node_ids:
                self._brokers[node_id] = self._new_broker(node_id, client_ports[node_id], peer_ports[node_id])
            with ThreadPoolExecutor(len(self._brokers) if self._processes else 1) as threads:
                list(threads.map(lambda broker: broker.start(), self._brokers.values()))
            self._wait_until_settled()
        except BaseException:
            self.close()
            raise
        return self

    def _reserved(self) -> int:
        port = ReservedPort()
        self._ports.append(port)
        return port.number

    def _new_broker(self, node_id: int, port: int, peer_port: int) -> Broker:
        assert self._links is not None
        clients = f"PLAINTEXT://127.0.0.1:{port}"
        settings = {
            **self._settings,
            "node.id": node_id,
            **({} if "zookeeper.connect" in self._settings else {"registry.file": str(self.data_dir / "registry.db")}),
            "listeners": f"{clients},{_LISTENER}://127.0.0.1:{peer_port}",
            "advertised.listeners": f"{clients},{_LISTENER}://127.0.0.1:{self._links.ports[node_id]}",
            "inter.broker.listener.name": _LISTENER,
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{_LISTENER}:SASL_PLAINTEXT",
        }
        if self._racks is not None:
            settings["broker.rack"] = self._racks[node_id - 1]
        make = Broker if self._launcher is None else partial(BrokerProcess, self._launcher)
        broker = make(
            data_dir=self.data_dir / f"broker-{node_id}",
            log_dirs=self._log_dirs,
            settings=settings,
            patience=self.patience,
            machine=f"machine-{node_id}" if self._several_machines else None,
        )
        broker.number = node_id
        return broker

    def close(self) -> None:
        """Ends all brokers at once, and removes their data. All steps run, even if one before them fails."""
        with contextlib.ExitStack() as steps:  # the last callback runs first
            if self._keep_open is not None:
                self._keep_open()
                self._keep_open = None
            if self._data_dir is not None:
                steps.callback(shutil.rmtree, self._data_dir, ignore_errors=True)
            for port in self._ports:
                steps.callback(port.release)
            self._ports.clear()
            if self._links is not None:
                steps.callback(self._links.close)
                self._links = None
            if self._launcher is not None:
                steps.callback(self._launcher.close)
                self._launcher = None
            running = [broker for broker in self._brokers.values() if broker.is_running]
            self._brokers.clear()
            for broker in running:
                steps.callback(broker.kill)
            for broker in running:
                steps.callback(broker.pause)  # nobody has to notice how the others end
            admin = self.__dict__.pop("admin", None)
            if admin is not None:
                steps.callback(admin.close)

    def __enter__(self) -> "Cluster":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_running(self) -> bool:
        """Whether the cluster is started; single brokers of it may have ended."""
        return bool(self._brokers)

    @property
    def data_dir(self) -> Path:
        """The directory with those of the brokers. Raises UsageError before the first start."""
        if self._data_dir is None:
            raise UsageError("the cluster has no data before its first start: use `with Cluster() as cluster`")
        return self._data_dir

    def broker(self, node_id: int) -> Broker:
        """Returns a broker by its node id, from 1 on. Raises UsageError if there is no such broker."""
        self._require_start()
        if node_id not in self.node_ids:
            raise UsageError(f"there is no broker {node_id!r}: there are 1 to {len(self._brokers)}")
        return self._brokers[node_id]

    def _require_start(self) -> None:
        if not self._brokers:
            raise UsageError("the cluster does not run: use `with Cluster() as cluster`, or start()")

    # --- brokers that come and go -----------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """Ends a broker as SIGKILL does."""
        self.broker(node_id).kill()

    def stop(self, node_id: int) -> None:
        """Shuts a broker down in order: others lead its partitions before it ends."""
        self.broker(node_id).stop()

    def _start_broker(self, node_id: int, lost_dirs: str | Path | Iterable[str | Path]) -> None:
        broker = self.broker(node_id)
        if broker.is_running:
            first = "resume" if broker.is_paused else "stop"
            raise UsageError(f"broker {node_id} runs already: call {first}({node_id})")
        broker.start(lost_dirs=lost_dirs)
        if self._links is not None and self._links.is_whole(node_id):
            self._wait_for(
                lambda: self._newest_image().is_active(BrokerId(node_id)),
                self.patience,
                lambda _: f"broker {node_id} was not taken in by the controller",
            )

    def pause(self, node_id: int) -> None:
        """Holds a broker still, as SIGSTOP does. Others lead its partitions after broker.session.timeout.ms, unless it
        is the controller: then nobody elects leaders, and `acks=all` waits wherever it is in sync, until it goes on or
        ends."""
        self.broker(node_id).pause()

    def resume(self, node_id: int) -> None:
        """Lets a broker that is paused go on."""
        self.broker(node_id).resume()

    # --- the network between brokers --------------------------------------------------------------------------------

    def partition(self, *groups: Collection[int]) -> None:
        """Cuts all links between brokers of different groups: `partition({1}, {2, 3})`. Clients reach all brokers, and
        brokers the registry. Links that were cut before stay cut."""
        rule = "partition takes groups of node ids, as in partition({1}, {2, 3})"
        if len(groups) < 2:
            raise UsageError(f"{rule}; with {len(groups)} of them there is no link to cut")
        for group in groups:
            if not isinstance(group, Collection) or isinstance(group, str) or not group:
                raise UsageError(f"{rule}, not {group!r}")
            for node_id in group:
                self.broker(node_id)
                if sum(node_id in other for other in groups) > 1:
                    raise UsageError(f"broker {node_id} is in two groups")
        self._network().cut(
            (sender, receiver)
            for group in groups
            for other in groups
            if other is not group
            for sender in group
            for receiver in other
        )

    def cut(self, sender: int, receiver: int, *, one_way: bool = False) -> None:
        """Cuts the link between two brokers, as if a cable was pulled: nothing arrives, and no connection ends. With
        `one_way` the bytes from `receiver` to `sender` still arrive."""
        self._network().cut(self._between(sender, receiver, one_way))

    def slow(self, sender: int, receiver: int, ms: float, *, one_way: bool = False) -> None:
        """Delays all bytes between two brokers by so many milliseconds, in each direction, or `one_way` only; 0 ends
        that. Bytes that were held back for longer wait so long as well."""
        require_number(ms, 0, 3_600_000, "a link is slower by 0 to 3600000 ms")
        self._network().slow(self._between(sender, receiver, one_way), ms / 1000)

    def heal(self) -> None:
        """Makes all links whole and fast again. What was held back, also by a slow link, arrives now."""
        self._network().heal()

    def _between(self, sender: int, receiver: int, one_way: bool) -> list[tuple[int, int]]:
        for node_id in (sender, receiver):
            self.broker(node_id)
        if sender == receiver:
            raise UsageError(f"broker {sender} has no link to itself")
        return [(sender, receiver)] if one_way else [(sender, receiver), (receiver, sender)]

    def _network(self) -> Links:
        self._require_start()
        assert self._links is not None
        return self._links

    def disk(self, node_id: int) -> FaultyDisk:
        """Returns the disk of a broker, which can be full, slow or broken."""
        return self.broker(node_id).disk

    def clock(self, node_id: int) -> SkewedClock:
        """Returns the clock of a broker, which can be wrong."""
        return self.broker(node_id).clock

    # --- what tests want --------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers for any client on this machine, also of those that do not run. Raises UsageError
        while the cluster is not started: each start has other ports."""
        self._require_start()
        return ",".join(broker.bootstrap_servers for broker in self._brokers.values())

    @cached_property
    def admin(self) -> "Admin":
        """An administrator of this cluster, which is closed with it: all that `barnabas.Admin` can do."""
        from barnabas.client.admin.front import Admin  # only tests that use it pay for its import

        return Admin(bootstrap_servers=self.bootstrap_servers)

    @property
    def controller(self) -> int:
        """The node id of the controller. Waits for the next one if that broker has ended."""
        return self._wait_for(self._running_controller, self.patience, lambda _: "no broker has become the controller")

    def _running_controller(self) -> int:
        """Returns the node id of the controller, 0 while none runs."""
        node_id = int(self._newest_image().controller_id)
        return node_id if node_id in self._brokers and self._brokers[node_id].is_running else 0

    def leader(self, topic: str, partition: int = 0) -> int:
        """Returns the node id of a partition's leader. Waits for the next one if that broker has ended. Raises
        UnknownTopicOrPartition."""

        def running_leader() -> int:
            leader = int(self._partition(topic, partition).leader)
            return leader if leader != NO_LEADER and self._brokers[leader].is_running else 0

        return self._wait_for(
            running_leader,
            self.patience,
            lambda _: f"{topic}-{partition} has no leader that runs: {_roles(self._partition(topic, partition))}",
        )

    def in_sync_replicas(self, topic: str, partition: int = 0) -> set[int]:
        """Returns the node ids of the replicas that are in sync. Raises UnknownTopicOrPartition."""
        return {int(node_id) for node_id in self._partition(topic, partition).isr}

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        replication_factor: int = -1,
        assignments: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """Creates a topic; all brokers that run know it when this returns, those aside that are paused or have a link
        that is cut. `assignments`: the brokers with replicas of each partition, the preferred leader first, instead of
        the other numbers. Raises TopicAlreadyExists, InvalidTopic, InvalidConfig, InvalidPartitions,
        InvalidReplicationFactor."""
        [topic] = new_topics(NewTopic(name, partitions, replication_factor, configs or {}, assignments or {}))
        if topic.assignments:
            factors = {len(node_ids) for node_ids in topic.assignments.values()}
            if partitions not in (1, len(topic.assignments)) or replication_factor not in (-1, *factors):
                raise UsageError(
                    f"partitions={partitions} and replication_factor={replication_factor} do not match assignments="
                    f"{assignments!r}: leave the numbers out"
                )
            topic = topic._replace(partitions=-1, replication_factor=-1)
        self._on_controller(lambda broker: broker.create_topics(topic))
        version = self._newest_image().version
        self._wait_for(  # the controller waits for a broker that is slow to answer for a second only
            lambda: all(image.version >= version for image in self._images(whole=True)),
            self.patience,
            lambda _: f"not all brokers know {name} within {self.patience:g} s: {self._images(whole=True)}",
        )

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Has another in-sync replica lead a partition, or `to`, which may lead already; returns its node id. Waits for
        an election that is under way, and for a replica that can come in sync. Raises UnknownTopicOrPartition,
        EligibleLeadersNotAvailable if no replica can lead, and UsageError for a broker that does not exist."""
        if to is not None:
            self.broker(to)

        def moved() -> int:
            found = self._partition(topic, partition)
            leader = int(found.leader)
            runs = leader != NO_LEADER and self._brokers[leader].is_running
            if runs and leader == to:
                return leader
            followers = self._possible_leaders(f"{topic}-{partition}", found, to)
            for follower in followers if runs else ():
                if follower in found.isr:
                    with contextlib.suppress(EligibleLeadersNotAvailable):  # the controller knows of a later change
                        self._on_controller(partial(_move_leader, topic, partition, follower))
                        return follower
            return 0

        def in_vain(_: int) -> str:
            what = f"{topic}-{partition} has no in-sync follower" if to is None else f"broker {to} is not in sync"
            return f"{what} within {self.patience:g} s: {_roles(self._partition(topic, partition))}"

        return self._wait_for(moved, self.patience, in_vain)

    def _possible_leaders(self, name: str, found: PartitionImage, to: int | None) -> list[int]:
        """Returns the replicas that can lead a partition instead of its leader, now or once they are in sync; `to`
        alone if it is given. Raises EligibleLeadersNotAvailable, with the reasons, if there are none."""
        replicas = [int(node_id) for node_id in found.replicas]
        if to is not None and to not in replicas:
            raise EligibleLeadersNotAvailable(f"broker {to} has no replica of {name}: {_roles(found)}")
        reasons: dict[int, str] = {}
        for node_id in replicas if to is None else [to]:
            if node_id != found.leader or node_id == to:
                needed = () if node_id in found.isr else (int(found.leader), self.controller)
                reasons[node_id] = self._unfitness(node_id, needed)
        if all(reasons.values()):
            what = f"{name} has no in-sync follower" if to is None else f"broker {to} cannot lead {name}"
            raise EligibleLeadersNotAvailable("; ".join((f"{what}: {_roles(found)}", *reasons.values())))
        return [node_id for node_id, reason in reasons.items() if not reason]

    def logs(self, topic: str, partition: int = 0) -> dict[int, list[LoggedBatch]]:
        """Returns the batches of each replica of a partition by node id, as they are on its disk: also beyond the high
        watermark, and of brokers that do not run. Raises UnknownTopicOrPartition."""
        self._require_start()
        logs = {
            node_id: log
            for node_id, broker in self._brokers.items()
            if (log := read_replica(broker.log_dirs, f"{topic}-{partition}")) is not None
        }
        if self._images():
            replicas = [int(node_id) for node_id in self._partition(topic, partition).replicas]
        else:  # the disks alone tell
            replicas = list(logs)
            if not replicas:
                raise UnknownTopicOrPartition(f"no broker runs, and none has a log of {topic}-{partition}")
        return {node_id: logs.get(node_id, []) for node_id in replicas}

    def records(self, topic: str, partition: int | None = None) -> list[TopicRecord]:
        """Returns the records of the topic below the high watermark, as the leaders have them: those of one partition,
        or those of each partition after the other. Raises UnknownTopicOrPartition."""
        if partition is None:
            self._partition(topic, 0)
            numbers = list(range(len(self._newest_image().topics[topic].partitions)))
        else:
            numbers = [partition]
        return [record for number in numbers for record in self._records(topic, number)]

    def _records(self, topic: str, partition: int) -> list[TopicRecord]:
        return self._retried(
            lambda: self._brokers[self.leader(topic, partition)].records(topic, partition),
            NotLeaderOrFollower,
            BrokerDied,
        )

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        """Returns the group's committed offsets by (topic, partition), as its coordinator has them; nothing for a group
        that does not exist. Waits for the next coordinator if that broker has ended."""
        if OFFSETS_TOPIC not in self._newest_image().topics:
            return {}  # created when the first group asks for its coordinator

        def coordinator() -> int:
            return self._coordinator(group_id)

        def ask() -> dict[tuple[str, int], int]:
            node_id = self._wait_for(coordinator, self.patience, lambda _: f"group {group_id} has no coordinator")
            return self._brokers[node_id].committed(group_id)

        return self._retried(ask, NotCoordinator, BrokerDied)

    def lag(self, group_id: str) -> dict[tuple[str, int], int]:
        """Returns the number of records between the committed offset and the end, as the leaders have it, for each
        partition that has a committed offset."""

        def end_offset(topic: str, partition: int) -> int:
            return self._brokers[self.leader(topic, partition)].end_offsets(topic, partition)[0]

        lags: dict[tuple[str, int], int] = {}
        for (topic, partition), offset in self.committed(group_id).items():
            with contextlib.suppress(UnknownTopicOrPartition):
                end = self._retried(partial(end_offset, topic, partition), NotLeaderOrFollower, BrokerDied)
                lags[topic, partition] = end - offset
        return lags

    def _coordinator(self, group_id: str) -> int:
        """Returns the node id of the group's coordinator, 0 while none runs."""
        image = self._newest_image()
        topic = image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return 0
        leader = int(topic.partitions[partition_for(group_id, len(topic.partitions))].leader)
        return leader if leader != NO_LEADER and self._brokers[leader].is_running else 0

    def reset(self) -> None:
        """Ends all faults, starts what does not run, and deletes all topics and groups. Clients may stay connected."""
        self.heal()
        for broker in self._brokers.values():
            broker.heal()
        for broker in self._brokers.values():
            if not broker.is_running:
                broker.start(lost_dirs=broker.log_dirs)  # what was in those that are missing is deleted next
        self._on_controller(lambda broker: broker.reset())
        self._wait_until_settled()

    # --- waiting ----------------------------------------------------------------------------------------------------

    def wait_in_sync(self, timeout: float = 30.0) -> None:
        """Waits until all replicas of all partitions are in sync. Those that cannot stay in sync do not count as such,
        although the controller has not noticed yet: their broker does not run, is paused, or is cut off from the leader
        or the controller. Raises TimeoutError, which names the replicas and the brokers."""
        self._sync_wait(timeout).in_thread("wait_in_sync")

    async def async_wait_in_sync(self, timeout: float = 30.0) -> None:
        """Waits as `wait_in_sync` does, on the caller's event loop."""
        await self._sync_wait(timeout).on_loop()

    def _sync_wait(self, timeout: float) -> Wait[bool]:
        def lagging() -> list[str]:
            image = self._newest_image()
            found: list[str] = []
            for name, topic in image.topics.items():
                for number, partition in enumerate(topic.partitions):
                    needed = (int(partition.leader), int(image.controller_id))
                    unfit = {int(each): self._unfitness(int(each), needed) for each in partition.replicas}
                    in_sync = {int(each) for each in partition.isr if not unfit[int(each)]}
                    if in_sync != set(unfit):
                        of = f"{name}-{number} has {_numbers(in_sync)} of {_numbers(unfit)}"
                        found.append("; ".join((of, *filter(None, unfit.values()))))
            return found

        return Wait(lambda: not lagging(), timeout, lambda _: f"not in sync within {timeout:g} s: {lagging()}")

    def _unfitness(self, node_id: int, needed: Iterable[int]) -> str:
        """Returns why a broker cannot stay in sync with partitions for which it needs these others; empty if it can."""
        broker = self._brokers[node_id]
        if not broker.is_running:
            return f"broker {node_id} does not run"
        if broker.is_paused:
            return f"broker {node_id} is paused"
        cut = [other for other in needed if self._network().is_cut_between(node_id, other)]
        return f"broker {node_id} is cut off from broker {cut[0]}" if cut else ""

    def wait_for_group(self, group_id: str, members: int = 1, timeout: float = 30.0) -> None:
        """Waits until the group is stable with that many members, wherever its coordinator is. Raises TimeoutError,
        which says what the group was like at the end."""
        self._group_wait(group_id, members, timeout).in_thread("wait_for_group")

    async def async_wait_for_group(self, group_id: str, members: int = 1, timeout: float = 30.0) -> None:
        """Waits as `wait_for_group` does, on the caller's event loop."""
        await self._group_wait(group_id, members, timeout).on_loop()

    def _group_wait(self, group_id: str, members: int, timeout: float) -> Wait[bool]:
        def look(group_id: str) -> GroupState | None:
            node_id = self._coordinator(group_id)
            with contextlib.suppress(NotCoordinator, BrokerDied):  # the role has just moved, or the broker ended
                return self._brokers[node_id].group_state(group_id) if node_id else None
            return None

        awaited = AwaitedGroup(group_id, members, timeout, look)
        return Wait(awaited.is_stable, timeout, awaited.message)

    def wait_for(
        self, condition: Callable[[], Any], timeout: float = 30.0, what: str | Callable[[], str] = "the condition"
    ) -> None:
        """Waits until the condition returns something true. Raises TimeoutError, which names `what`."""
        wait_for_condition(condition, timeout, what).in_thread("wait_for")

    async def async_wait_for(
        self, condition: Callable[[], Any], timeout: float = 30.0, what: str | Callable[[], str] = "the condition"
    ) -> None:
        """Waits as `wait_for` does, on the caller's event loop, which calls the condition."""
        await wait_for_condition(condition, timeout, what).on_loop()

    def _wait_for(self, condition: Callable[[], T], timeout: float, message: Callable[[T], str]) -> T:
        return Wait(condition, timeout, message).in_thread()

    def _wait_until_settled(self) -> None:
        """Waits until all brokers can lead, and have the same metadata."""

        def is_settled() -> bool:
            images = [broker.image for broker in self._brokers.values()]
            return len({image.version for image in images}) == 1 and all(
                images[0].is_active(BrokerId(node_id)) for node_id in self._brokers
            )

        self._wait_for(is_settled, self.patience, lambda _: f"not ready within {self.patience:g} s: {self._state()}")

    def _state(self) -> str:
        return "; ".join(
            f"broker {node_id}: {broker.image!r}, fenced: "
            + _numbers(each.node_id for each in broker.image.brokers.values() if each.fenced)
            if broker.is_running
            else f"broker {node_id} does not run"
            for node_id, broker in self._brokers.items()
        )

    # --- metadata ---------------------------------------------------------------------------------------------------

    def _images(self, *, whole: bool = False) -> list[MetadataImage]:
        """Returns the metadata of the brokers that run; with `whole` of those without a link that is cut."""
        images: list[MetadataImage] = []
        for node_id, broker in self._brokers.items():
            if not broker.is_paused and not (whole and not self._network().is_whole(node_id)):
                try:
                    images.append(broker.image)
                except UsageError:  # it does not run
                    pass
                except BrokerDied:
                    if broker.is_running:
                        raise
        return images

    def _newest_image(self) -> MetadataImage:
        """Returns the newest metadata that a broker has. Raises UsageError if none runs."""
        self._require_start()
        images = self._images()
        if not images:
            paused = [node_id for node_id, broker in self._brokers.items() if broker.is_running and broker.is_paused]
            if paused:
                raise UsageError(f"all brokers that run are paused, {_numbers(paused)}: call resume({paused[0]})")
            raise UsageError("no broker of the cluster runs: start(1) starts one")
        return max(images, key=lambda image: image.version)

    def _partition(self, topic: str, partition: int) -> PartitionImage:
        require_partition(partition)
        image = self._newest_image()
        found = image.partition(topic, partition)
        if found is None:
            raise UnknownTopicOrPartition(f"there is no {topic}-{partition}; there are {', '.join(image.topics)}")
        return found

    def _on_controller(self, action: Callable[[Broker], T]) -> T:
        """Has the controller's broker do something, once more if the role has moved."""

        def act() -> T:
            node_id = self.controller
            if self._brokers[node_id].is_paused:
                raise UsageError(f"broker {node_id} is the controller, and paused: call resume({node_id})")
            return action(self._brokers[node_id])

        return self._retried(act, NotController)

    def _retried(self, action: Callable[[], T], *moved: type[Exception]) -> T:
        """Does what one broker has to do, once more after these errors: another one has the role, or will have it."""
        deadline = time.monotonic() + self.patience
        while True:
            try:
                return action()
            except moved:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)


def _replication_settings(brokers: int) -> dict[str, object]:
    """Returns the settings of `barnabas serve --brokers N`."""
    factor, in_sync = min(3, brokers), 2 if brokers >= 3 else 1
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync,
    }


def _move_leader(topic: str, partition: int, leader: int, controller: Broker) -> None:
    controller.move_leader(topic, partition, leader)


def _roles(partition: PartitionImage) -> str:
    """Returns who leads a partition, who is in sync, and who has replicas."""
    leader = "none" if partition.leader == NO_LEADER else f"broker {partition.leader}"
    return f"its leader is {leader}, in sync are {_numbers(partition.isr)} of {_numbers(partition.replicas)}"


def _numbers(node_ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(node_ids))) or "none"
