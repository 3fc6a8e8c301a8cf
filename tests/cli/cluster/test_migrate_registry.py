"""`barnabas cluster migrate-registry`: a cluster with data and clients moves to ZooKeeper, and back to a file."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Consumer, Producer
from barnabas.registry.content import RegistryContent
from barnabas.registry.embedded_tables import is_founded
from broker.cluster.cluster_processes import QUICK, ClusterProcesses
from cli.conftest import run_barnabas
from registry.stores import FilePlace, ZooKeeperPlace, put, read
from registry.test_migration import CLUSTER, CONTENT
from zookeeper_server import ZooKeeperServer

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    cluster = ClusterProcesses(tmp_path)
    yield cluster
    cluster.stop()


def moved(source: str, target: str) -> dict[str, object]:
    done = run_barnabas("cluster", "migrate-registry", "--from", source, "--to", target, "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    report: dict[str, object] = json.loads(done.stdout)
    return report


class Clients:
    """Clients that stay while the brokers are stopped and started."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        servers = cluster.bootstrap
        self.producer = Producer(bootstrap_servers=servers, transactional_id="mover", **QUICK)
        self.producer.init_transactions()
        self.consumer = Consumer(
            "t",
            bootstrap_servers=servers,
            group_id="readers",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            **QUICK,
        )
        self.count = 0

    def work(self) -> None:
        """Produces in a transaction, and consumes and commits all of it, once."""
        values = [b"%d" % number for number in range(self.count, self.count + 30)]
        with self.producer.transaction():
            for value in values:
                self.producer.send("t", value)
        got: list[bytes] = []
        while len(got) < len(values):
            got += [record.value for record in self.consumer.poll(1.0)]
        assert sorted(got, key=int) == values
        self.consumer.commit()
        self.count += len(values)

    def close(self) -> None:
        self.producer.close()
        self.consumer.close()


def epochs(cluster: ClusterProcesses) -> list[int]:
    return [partition.leader_epoch for partition in cluster.partitions("t")]


def content_of(place: FilePlace | ZooKeeperPlace) -> RegistryContent:
    found = read(place)
    assert found is not None
    return found.content


def test_a_cluster_moves_to_zookeeper_and_back(
    cluster: ClusterProcesses, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    file, path = FilePlace(tmp_path / "registry.db"), ZooKeeperPlace(zookeeper)
    cluster.create("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    clients = Clients(cluster)
    clients.work()
    before = epochs(cluster)
    refused = run_barnabas("cluster", "migrate-registry", "--from", str(file.path), "--to", path.connect)
    assert refused.returncode == 2
    assert "registry.db: brokers use it: 1, 2, 3; stop them" in refused.stderr

    cluster.end()
    first = content_of(file)
    report = moved(str(file.path), path.connect)
    assert report["cluster_id"] == first.image.cluster_id
    assert (report["topics"], report["brokers"], report["differences"]) == (3, 3, [])
    cluster.begin(zookeeper=path.connect)
    clients.work()
    between = epochs(cluster)
    assert all(now > then for now, then in zip(between, before)), "each start elects anew"

    cluster.end()
    second = content_of(path)
    moved(path.connect, str(file.path))
    cluster.begin()
    clients.work()
    assert all(now > then for now, then in zip(epochs(cluster), between))
    clients.close()
    values = cluster.committed("t")
    assert sorted(map(int, values)) == list(range(90)), "nothing is lost or doubled"
    cluster.end()
    third = content_of(file)
    assert first.secret == second.secret == third.secret
    assert first.next_producer_id <= second.next_producer_id <= third.next_producer_id
    for earlier, later in ((first.image, second.image), (second.image, third.image)):
        assert later.version > earlier.version
        assert later.controller_epoch > earlier.controller_epoch
        assert all(later.brokers[node_id].epoch > earlier.brokers[node_id].epoch for node_id in (1, 2, 3))
    assert {*first.leader_changes} <= {*second.leader_changes} <= {*third.leader_changes}


def test_brokers_refuse_the_registry_that_was_left(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    data = tmp_path / "data"
    file, path = FilePlace(data / "registry.db"), ZooKeeperPlace(zookeeper)
    data.mkdir()
    put(file, CONTENT)
    done = run_barnabas("cluster", "migrate-registry", "--from", str(file.path), "--to", path.connect)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        f"moved the registry of cluster {CLUSTER} to {path.connect}: 1 topic, 2 partitions, 4 settings, 2 brokers; "
        f"read back without a difference\nstart the brokers with --zookeeper {path.connect}\n"
    )
    back = f"barnabas cluster migrate-registry --from {path.connect} --to {file.path}"
    for options in (
        ("--data-dir", str(data)),
        ("--data-dir", str(tmp_path / "new"), "--registry", str(file.path), "--node-id", "7"),
        ("--data-dir", str(data), "--brokers", "3", "--listen", "127.0.0.1:0"),
    ):
        serve = run_barnabas("serve", *options)
        assert serve.returncode == 2, serve.stderr
        assert f"it was moved to {path.connect}: start the brokers with that one, or move it back by" in serve.stderr
        assert back in serve.stderr
    moved(path.connect, str(file.path))
    serve = run_barnabas("serve", "--data-dir", str(tmp_path / "new"), "--zookeeper", path.connect)
    assert serve.returncode == 2
    assert f"it was moved to {file.path}: start the brokers with that one" in serve.stderr


def test_a_file_without_a_registry_is_not_made(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    missing = tmp_path / "registry.db"
    done = run_barnabas("cluster", "migrate-registry", "--from", str(missing), "--to", zookeeper.new_path())
    assert (done.returncode, done.stderr.strip().endswith("there is no registry to move")) == (2, True)
    assert not is_founded(missing)
    assert not missing.exists()


def test_what_is_no_place_for_a_registry_is_said(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    file = FilePlace(tmp_path / "registry.db")
    put(file, CONTENT)
    missing, wrong = tmp_path / "no" / "r.db", f"{zookeeper.address}/x/../q"
    for source, target, line in (
        (str(tmp_path), str(missing), f"{tmp_path}: cannot be used as the registry: it is a directory; name the file"),
        (str(file.path), str(tmp_path), f"it is a directory; name the file in it, such as {tmp_path}/registry.db"),
        (
            str(file.path),
            str(missing),
            f"unable to open database file; make {missing.parent}, or choose another with --to",
        ),
        (str(file.path), wrong, f"zookeeper.connect: '{wrong}' is not of the form host:2181,host:2181/path"),
        (wrong, str(missing), f"zookeeper.connect: '{wrong}' is not of the form host:2181,host:2181/path"),
    ):
        done = run_barnabas("cluster", "migrate-registry", "--from", source, "--to", target)
        assert done.returncode == 2, done.stderr
        assert line in done.stderr
        assert "Traceback" not in done.stderr


def test_the_settings_of_zookeeper_are_those_of_brokers(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    file, path = FilePlace(tmp_path / "registry.db"), ZooKeeperPlace(zookeeper)
    put(file, CONTENT)
    command = ("cluster", "migrate-registry", "--from", str(file.path), "--to", path.connect)
    wrong = run_barnabas(*command, "--set", "zookeeper.set.acl=true")
    assert wrong.returncode == 2
    assert "zookeeper.set.acl needs zookeeper.digest" in wrong.stderr
    settings = tmp_path / "server.properties"
    settings.write_text("zookeeper.digest=brokers:secret\nzookeeper.set.acl=true\nlog.dirs=/nowhere\n")
    done = run_barnabas(*command, "--config", str(settings))
    assert done.returncode == 0, done.stderr
    back = ("cluster", "migrate-registry", "--from", path.connect, "--to", str(file.path))
    without = run_barnabas(*back)
    assert without.returncode == 1
    assert "zookeeper.digest must be the one with which the cluster was founded" in without.stderr
    assert run_barnabas(*back, "--set", "zookeeper.digest=brokers:secret").returncode == 0
