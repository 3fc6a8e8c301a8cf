"""The brokers of deploy/ as its files start them, each on a machine of its own, and the probes of these files."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import barnabas
from deploy.deployed import compose_containers, pod_spec, pods, read_compose
from deploy.machines import SOON_S, Machine, published, wait_for, wait_until_all_serve
from network_namespaces import Network, on_router
from zookeeper_server import ZooKeeperServer

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

ZOOKEEPER = 9
RECORDS = {f"{number}".encode() for number in range(100)}


def zookeeper_on(network: Network, directory: Path) -> ZooKeeperServer:
    """Starts ZooKeeper at the port that the files name."""
    network.add(ZOOKEEPER)
    (directory / "zookeeper").mkdir()
    server = ZooKeeperServer(
        directory / "zookeeper", host=network.host(ZOOKEEPER), port=2181, command=network.command(ZOOKEEPER)
    )
    server.start()
    return server


def names_of(network: Network, machines: list[Machine]) -> dict[str, str]:
    """Returns the names that the containers know, of each other and of ZooKeeper."""
    found = {host: machine.address for machine in machines for host in machine.container.hosts}
    return found | {"zookeeper": network.host(ZOOKEEPER)}


def introduce(network: Network, machines: list[Machine]) -> None:
    for machine in machines:
        machine.know(names_of(network, machines))


def with_zookeeper(directory: Path, test: Callable[[Network], None]) -> None:
    def run(network: Network) -> None:
        server = zookeeper_on(network, directory)
        try:
            test(network)
        finally:
            server.kill()

    on_router(run)


def test_the_brokers_of_the_compose_file_serve_each_other_and_clients_on_the_host(tmp_path: Path) -> None:
    def test(network: Network) -> None:
        machines = [
            Machine(network, number, container, tmp_path)
            for number, container in enumerate(compose_containers(), start=1)
        ]
        try:
            introduce(network, machines)
            for machine in machines:
                machine.start()
            wait_until_all_serve(machines)
            ports = {
                outside: (machine.address, inside)
                for machine in machines
                for outside, inside in machine.container.published.items()
            }
            with published(ports):
                exchange_records(",".join(f"localhost:{port}" for port in ports))
            inside = machines[0].run("barnabas", "consume", "orders", "--exit", "--format", "%s\n")
            assert {line.encode() for line in inside.stdout.splitlines()} == RECORDS, inside.stderr
            assert [machine.stop() for machine in machines] == [0, 0, 0]
        finally:
            for machine in machines:
                machine.kill()

    with_zookeeper(tmp_path, test)


def exchange_records(bootstrap: str) -> None:
    with barnabas.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics(barnabas.NewTopic("orders", 6))
        (topic,) = admin.list_topics()
        assert {len(partition.replicas) for partition in topic.partitions.values()} == {3}
        assert {partition.leader for partition in topic.partitions.values()} == {1, 2, 3}
    with barnabas.Producer(bootstrap_servers=bootstrap) as producer:
        for record in RECORDS:
            producer.send("orders", record)
    with barnabas.Consumer("orders", bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        read: set[bytes] = set()
        while len(read) < len(RECORDS):
            read |= {record.value for record in consumer.poll(10) if record.value is not None}
    assert read == RECORDS


def test_the_pods_serve_and_are_replaced_one_by_one(tmp_path: Path) -> None:
    (container,) = pod_spec()["containers"]
    port = {each["name"]: each["containerPort"] for each in container["ports"]}[
        container["livenessProbe"]["tcpSocket"]["port"]
    ]

    def test(network: Network) -> None:
        machines = [Machine(network, number, pod, tmp_path) for number, pod in enumerate(pods("shop"), start=1)]
        try:
            introduce(network, machines)
            for machine in machines:
                machine.start()
            wait_until_all_serve(machines)
            assert all(machine.takes_connections(port) for machine in machines)
            done = machines[0].run("barnabas", "topics", "create", "orders", "--partitions", "3")
            assert done.returncode == 0, done.stderr
            # A pod that is deleted comes back with its name and its volume, and another address.
            assert machines[1].stop() == 0
            for machine in (machines[0], machines[2]):
                wait_for(machine.serves, "a pod beside the one that was deleted")
            machines[1] = Machine(network, 5, machines[1].container, tmp_path)
            introduce(network, machines)
            machines[1].start()
            wait_for(machines[1].serves, "the pod that was deleted")
            produced = machines[2].run("sh", "-c", "seq 100 | barnabas produce orders")
            assert produced.returncode == 0, produced.stderr
            wait_for(lambda: "every replica is in sync" in under_replicated(machines[0]), "the replicas of the new pod")
            # One that stands still takes connections for a while, but does not serve.
            machines[2].signal(signal.SIGSTOP)
            assert not machines[2].serves()
            assert machines[2].takes_connections(port)
            wait_for(machines[0].serves, "a pod beside the one that stands still")
            machines[2].signal(signal.SIGCONT)
            wait_for(machines[2].serves, "the pod that stood still")
        finally:
            for machine in machines:
                machine.kill()

    with_zookeeper(tmp_path, test)


def under_replicated(machine: Machine) -> str:
    return machine.run("barnabas", "cluster", "under-replicated", timeout_s=SOON_S).stdout


def test_the_probe_of_zookeeper_finds_out_whether_it_serves(tmp_path: Path) -> None:
    kind, *command = read_compose()["services"]["zookeeper"]["healthcheck"]["test"]
    assert kind == "CMD"

    def test(network: Network) -> None:
        server = zookeeper_on(network, tmp_path)
        own = [word.replace("127.0.0.1", network.host(ZOOKEEPER)) for word in command]

        def probe() -> int:
            return subprocess.run([*network.command(ZOOKEEPER), *own], capture_output=True, timeout=SOON_S).returncode

        try:
            assert probe() == 0
            server.kill()
            assert probe() != 0
        finally:
            server.kill()

    on_router(test)
