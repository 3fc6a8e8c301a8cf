"""A copy of a cluster's data, started beside the cluster on the same machine, to look into a backup."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import barnabas
from barnabas.errors import OperationTimedOut
from barnabas.testing import Cluster
from cli.conftest import run_barnabas
from testing.cluster.served import Served, serve


@contextmanager
def copied(cluster: Cluster, node_id: int, directory: Path) -> Iterator[Served]:
    """Copies everything, and starts one broker of the copy, which ends with the context."""
    copy = directory / "copy"
    shutil.copytree(cluster.data_dir, copy)
    registry = ["--registry", str(copy / "registry.db")]
    with serve(directory / "served", node_id, copy / f"broker-{node_id}", *registry) as served:
        served.address()
        yield served


def test_a_copy_that_is_refused_beside_a_broker_is_named(tmp_path: Path) -> None:
    """Copies of the directories of the controller and of another broker are started with the registry of the cluster,
    that of the controller again and again."""
    with Cluster(processes=True) as cluster:
        controller = cluster.controller
        starts = {controller: 2, controller % 3 + 1: 1}
        for node_id, times in starts.items():
            copy = tmp_path / f"copy-{node_id}"
            shutil.copytree(cluster.data_dir / f"broker-{node_id}", copy)
            for _ in range(times):
                with serve(copy, node_id, copy, "--registry", str(cluster.data_dir / "registry.db")) as served:
                    assert served.process.wait(60) == 2, served.log
                    assert f"node.id {node_id} is in use by another running broker of this cluster" in served.log
        done = run_barnabas("cluster", "doctor", "--json", "-b", cluster.bootstrap_servers)
    assert done.returncode == 0, "nothing has failed"
    found = {check["target"]: check for check in json.loads(done.stdout)["checks"] if check["name"] == "refused"}
    assert found.keys() == {f"broker {node_id}" for node_id in starts}
    for node_id, times in starts.items():
        check = found[f"broker {node_id}"]
        place = f"broker {node_id} from 127.0.0.1 (machine {socket.gethostname()}, data in {tmp_path}/copy-{node_id})"
        assert check["detail"].startswith(f"has refused {place}, {'2 times, ' if times > 1 else ''}last at ")
        assert (check["status"], "stop the copy" in check["hint"]) == ("warning", True)


def consumed(address: str) -> list[int]:
    """Reads all that one broker alone has of a topic with three replicas, whatever the others may have had."""

    def run(*command: str) -> "subprocess.CompletedProcess[bytes]":
        words = [sys.executable, "-m", "barnabas", *command, "-b", address]
        done = subprocess.run(words, capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        return done

    run("elect-leaders", "t", "--unclean")
    run("configs", "set", "topic", "t", "min.insync.replicas=1")
    done = run("consume", "t", "--exit", "--quiet")
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize("role", ["controller", "follower"])
def test_a_copy_that_is_started_beside_a_cluster_leaves_it_alone(role: str, tmp_path: Path) -> None:
    with Cluster(processes=True) as cluster:
        controller, epoch = cluster.controller, cluster.broker(1).image.controller_epoch
        node_id = controller if role == "controller" else controller % 3 + 1
        leader = node_id % 3 + 1
        cluster.create_topic("t", assignments={0: [leader, node_id, leader % 3 + 1]})
        with barnabas.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(500):
                producer.send("t", str(number).encode())
            producer.flush()
            cluster.wait_in_sync()
            with copied(cluster, node_id, tmp_path) as copy:
                for number in range(500, 1000):
                    producer.send("t", str(number).encode())
                producer.flush()
                cluster.create_topic("u")
                cluster.wait_in_sync()
                assert (cluster.controller, cluster.broker(leader).image.controller_epoch) == (controller, epoch)
                assert consumed(copy.address()) == list(range(500))
            cluster.kill(leader)
            cluster.leader("t")
            producer.send("t", b"1000").result(timeout=60)
        assert [record.value for record in cluster.records("t")] == [b"%d" % number for number in range(1001)]


def test_a_copy_is_never_in_sync_in_place_of_the_broker(tmp_path: Path) -> None:
    """The broker stands still, and counts as in sync meanwhile."""
    patient = {"broker.session.timeout.ms": 60_000, "replica.lag.time.max.ms": 60_000}
    with Cluster(processes=True, settings=patient) as cluster:
        node_id = cluster.controller % 3 + 1
        leader = node_id % 3 + 1
        cluster.create_topic("t", assignments={0: [leader, node_id]}, configs={"min.insync.replicas": "1"})
        with barnabas.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", b"0").result(timeout=60)
            cluster.wait_in_sync()
            cluster.pause(node_id)
            with copied(cluster, node_id, tmp_path):
                futures = [producer.send("t", b"%d" % number) for number in range(1, 100)]
                with pytest.raises(OperationTimedOut):
                    futures[0].result(timeout=2)  # a copy that counts acknowledges it in a tenth of that
                acknowledged = [0, *(number for number, each in enumerate(futures, 1) if each.done())]
                cluster.kill(leader)
            cluster.resume(node_id)
            cluster.leader("t")
            written = [int(record.value or b"") for record in cluster.records("t")]
            assert set(acknowledged) <= set(written)
