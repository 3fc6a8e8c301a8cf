"""Brokers and ZooKeeper on machines of their own, of which some do not reach others."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.errors import BarnabasError
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from bench.attached import attached
from broker.wire import Wire
from network_namespaces import Network, on_router
from zookeeper_server import ZooKeeperServer

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

BROKERS = (1, 2, 3)
ZOOKEEPER = 9
SOON_S = 60.0
SETTINGS = {
    "advertise": "listeners",  # in a container the router would be taken for its gateway
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 3000,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 3000,
    "zookeeper.session.timeout.ms": 3000,
}
QUICK = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 50, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100}


class Machines:
    """Three machines with a broker each, and one with ZooKeeper."""

    def __init__(self, network: Network, root: Path) -> None:
        self.network = network
        for number in (*BROKERS, ZOOKEEPER):
            network.add(number)
            (root / f"{number}").mkdir()
        self._root = root
        self._processes: list[subprocess.Popen[bytes]] = []
        self._zookeeper = ZooKeeperServer(
            root / f"{ZOOKEEPER}", host=network.host(ZOOKEEPER), command=network.command(ZOOKEEPER)
        )
        self._zookeeper.start()
        connect = self._zookeeper.new_path()
        self.tree = KazooClient(connect)
        self.tree.start()
        for number in BROKERS:
            self._start(number, connect)
        self.wait_for(lambda: all((root / f"{number}" / "ready").exists() for number in BROKERS), "the brokers")

    def _start(self, number: int, connect: str) -> None:
        directory = self._root / f"{number}"
        command = [
            *(*self.network.command(number), "unshare", "--pid", "--fork", "--kill-child"),
            *(sys.executable, "-m", "barnabas", "serve", "--node-id", f"{number}", "--zookeeper", connect),
            *("--listen", self.address(number), "--data-dir", str(directory / "data")),
            *("--ready-file", str(directory / "ready")),
            *(f"--set={name}={value}" for name, value in SETTINGS.items()),
        ]
        with (directory / "broker.log").open("ab") as log:
            self._processes.append(subprocess.Popen(attached(command), stdout=log, stderr=log))

    def address(self, *numbers: int) -> str:
        return ",".join(f"{self.network.host(number)}:9092" for number in numbers)

    @property
    def bootstrap(self) -> str:
        return self.address(*BROKERS)

    def close(self) -> None:
        self.tree.stop()
        self.tree.close()
        for process in self._processes:
            process.kill()
            process.wait()
        self._zookeeper.kill()

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + SOON_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}; brokers:\n{self.logs()}"
            time.sleep(0.01)

    def logs(self) -> str:
        return "\n".join(
            f"{number}: {(self._root / f'{number}' / 'broker.log').read_text()[-3000:]}" for number in BROKERS
        )

    # --- what ZooKeeper knows ---------------------------------------------------------------------------------------

    def node(self, path: str) -> Any:
        """Returns the content of a node, None if there is none."""
        try:
            return json.loads(self.tree.get(path)[0])
        except NoNodeError:
            return None

    @property
    def controller(self) -> int:
        """The controller, 0 if there is none."""
        found = self.node("/controller")
        return 0 if found is None else int(found["brokerid"])

    def leader(self, topic: str) -> int:
        return int(self.node(f"/brokers/topics/{topic}/partitions/0/state")["leader"])

    def in_sync(self, topic: str) -> set[int]:
        return set(self.node(f"/brokers/topics/{topic}/partitions/0/state")["isr"])

    def epoch(self, number: int) -> int:
        """Returns the epoch of a broker's registration."""
        return int(self.node(f"/barnabas/brokers/{number}")["epoch"])

    def told(self, number: int, topic: str) -> int:
        """Returns the leader of a topic's partition of which a broker tells clients."""
        with Wire((self.network.host(number), 9092)) as wire:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            return int(wire.ask(request, 12).topics[0].partitions[0].leader_id)

    # --- clients ----------------------------------------------------------------------------------------------------

    def create(self, topic: str, leader: int) -> None:
        replicas = [leader, *(number for number in BROKERS if number != leader)]
        with barnabas.Admin(QUICK, bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics(barnabas.NewTopic(topic, assignments={0: replicas}))
        self.wait_for(lambda: self.in_sync(topic) == set(BROKERS), f"the replicas of {topic}")

    @contextmanager
    def producer(self, *numbers: int) -> Iterator[barnabas.Producer]:
        """A producer that begins with these brokers."""
        with barnabas.Producer(QUICK, bootstrap_servers=self.address(*(numbers or BROKERS))) as producer:
            yield producer

    def records(self, topic: str) -> list[bytes | None]:
        """Returns the records up to the end that a client is told of."""
        partition = barnabas.TopicPartition(topic, 0)
        with barnabas.Consumer(
            QUICK, bootstrap_servers=self.bootstrap, group_id=None, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([partition])
            end = consumer.end_offsets([partition])[partition]
            found: list[bytes | None] = []
            while consumer.position(partition) < end:
                found += [record.value for record in consumer.poll(timeout=1)]
            return found


def on_machines(tmp_path: Path, test: Callable[[Machines], None]) -> None:
    def run(network: Network) -> None:
        machines = Machines(network, tmp_path)
        try:
            test(machines)
        except BarnabasError as error:
            error.add_note(machines.logs())
            raise
        finally:
            machines.close()

    on_router(run)


@pytest.mark.parametrize("whose", ["the controller", "another"])
def test_a_broker_that_does_not_reach_zookeeper(tmp_path: Path, whose: str) -> None:
    def test(machines: Machines) -> None:
        controller = machines.controller
        victim = controller if whose == "the controller" else controller % 3 + 1
        machines.create("t", victim)
        epoch = machines.epoch(victim)
        with machines.producer() as producer:
            producer.send("t", b"before").result(timeout=SOON_S)
            machines.network.cut(victim, ZOOKEEPER)
            sent = [b"before"]
            while machines.leader("t") == victim:
                sent.append(b"%d" % len(sent))
                producer.send("t", sent[-1]).result(timeout=SOON_S)
            machines.wait_for(lambda: machines.controller not in (0, victim) or victim != controller, "a controller")
            producer.send("t", b"meanwhile").result(timeout=SOON_S)
            machines.network.heal()
            machines.wait_for(lambda: machines.in_sync("t") == set(BROKERS), "the replica of the broker")
            producer.send("t", b"after").result(timeout=SOON_S)
        assert machines.node(f"/brokers/ids/{victim}") is not None
        assert machines.epoch(victim) == epoch, "the same registration"
        assert machines.records("t") == [*sent, b"meanwhile", b"after"]

    on_machines(tmp_path, test)


def test_a_controller_that_reaches_zookeeper_but_no_broker(tmp_path: Path) -> None:
    def test(machines: Machines) -> None:
        controller = machines.controller
        others = [number for number in BROKERS if number != controller]
        machines.create("t", others[0])
        machines.create("m", controller)
        with machines.producer(*others) as producer, machines.producer(controller) as alone:
            producer.send("t", b"before").result(timeout=SOON_S)
            alone.send("m", b"before").result(timeout=SOON_S)
            for other in others:
                machines.network.cut(controller, other)
            lonely = alone.send("m", b"lonely")
            machines.wait_for(lambda: machines.controller in others, "a controller that reaches others")
            machines.wait_for(lambda: all(machines.told(n, "m") in others for n in others), "a leader in the majority")
            producer.send("t", b"meanwhile").result(timeout=SOON_S)
            producer.send("m", b"meanwhile").result(timeout=SOON_S)
            machines.network.heal()
            offset = lonely.result(timeout=SOON_S).offset
            machines.wait_for(lambda: machines.in_sync("m") == set(BROKERS), "the replica of the former controller")
        assert machines.records("t") == [b"before", b"meanwhile"]
        # Its producer may have learnt of the new leader before the other one sent; what it was told is kept there.
        kept = machines.records("m")
        assert kept[offset] == b"lonely"
        assert sorted(kept) == [b"before", b"lonely", b"meanwhile"]

    on_machines(tmp_path, test)


def test_a_minority_acknowledges_nothing(tmp_path: Path) -> None:
    def test(machines: Machines) -> None:
        victim = machines.controller
        machines.create("t", victim)
        others = [number for number in BROKERS if number != victim]
        with machines.producer(*others) as producer, machines.producer(victim) as alone:
            alone.send("t", b"before").result(timeout=SOON_S)
            for other in (*others, ZOOKEEPER):
                machines.network.cut(victim, other)
            lonely = alone.send("t", b"lonely")
            # A client that was told of the former leader goes there, waits, and may ask it again.
            machines.wait_for(lambda: all(machines.told(n, "t") in others for n in others), "a leader in the majority")
            producer.send("t", b"meanwhile").result(timeout=SOON_S)
            assert not lonely.done()
            machines.network.heal()
            lonely.result(timeout=SOON_S)
            machines.wait_for(lambda: machines.in_sync("t") == set(BROKERS), "the replica of the minority")
        assert machines.records("t") == [b"before", b"meanwhile", b"lonely"]

    on_machines(tmp_path, test)
