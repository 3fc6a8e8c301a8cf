"""`barnabas cluster doctor` against three brokers."""

import json
from typing import Any

import pytest

from barnabas import Admin
from barnabas.cli.cluster.health import findings
from barnabas.testing import Cluster
from cli.cluster.three_brokers import bootstrap as bootstrap
from cli.cluster.three_brokers import kafka as kafka
from cli.cluster.three_brokers import shared_cluster as shared_cluster
from cli.conftest import Run


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the machine of a test is busy is no finding."""
    monkeypatch.setattr(findings, "CONTROLLER_SLOW_MS", 60_000)
    monkeypatch.setattr(findings, "REGISTRY_SLOW_MS", 60_000)


def problems(run: Run, code: int, *options: str) -> dict[str, list[dict[str, Any]]]:
    """Returns what is not ok, by the names of the checks."""
    done = run("cluster", "doctor", "--json", *options)
    assert done.returncode == code, done
    report = json.loads(done.stdout)
    assert report["ok"] is (code == 0)
    found: dict[str, list[dict[str, Any]]] = {}
    for check in report["checks"]:
        if check["status"] != "ok":
            found.setdefault(check["name"], []).append(check)
    return found


def leaderless(kafka: Cluster, topic: str) -> bool:
    return any(p.leader < 0 for view in kafka.admin.list_topics() if view.name == topic for p in view.in_order())


def test_a_whole_cluster(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
    assert problems(in_process, 0, "--write") == {}
    done = in_process("cluster", "doctor", "--write")
    names = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("ok ")]
    assert names == [
        *(
            "advertised",
            "controller",
            "registry",
            "broker",
            "release",
            "peers",
            "directory",
            "disks",
            "replica",
            "leaders",
            "clock",
        ),
    ]
    assert done.stdout.splitlines()[-1] == f"nothing has failed in the cluster at {kafka.bootstrap_servers}"
    assert {view.name for view in kafka.admin.list_topics()} == {"t"}


def test_a_dead_broker(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [1, 2, 3]})
    kafka.create_topic("u", assignments={0: [2, 3]})
    kafka.kill(3)
    kafka.wait_for(lambda: kafka.in_sync_replicas("u") == {2}, what="the ISR without the dead broker")
    found = problems(in_process, 1)
    assert found.keys() - {"advertised"} == {"tcp", "broker", "replica", "min-isr"}
    assert found["broker"][0]["target"] == "broker 3"
    assert found["replica"][0]["detail"] == "t-0, u-0 are not in sync: the broker is not live"
    assert found["min-isr"][0]["detail"] == "u-0 has fewer replicas in sync than min.insync.replicas"
    kafka.kill(2)
    kafka.wait_for(lambda: leaderless(kafka, "u"), what="the loss of the last replica")
    assert problems(in_process, 1)["offline"][0]["target"] == "u-0"


def test_a_throttled_copy(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [1]})
    for _ in range(2):  # a replica that has nothing yet gets the first batch at once
        in_process("produce", "t", input="x" * 3000 + "\n")
    plan = json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]})
    file = kafka.data_dir / "plan.json"
    file.write_text(plan)
    in_process("cluster", "reassign", "execute", str(file), "--throttle", "1")
    (check,) = problems(in_process, 0)["replica"]
    assert (check["status"], check["detail"]) == (
        "warning",
        "t-0 is not in sync: their copies are throttled to 1 B/s",
    )
    in_process("cluster", "reassign", "cancel", "--all")


def test_a_leader_that_moved(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [1, 2, 3]})
    kafka.move_leader("t", 0, 2)
    done = in_process("cluster", "doctor")
    assert done.returncode == 0
    assert "t-0 not led by its preferred leader\n" in done.stdout
    assert done.stdout.endswith("; 1 warning\n")


def test_clocks_that_differ(kafka: Cluster, in_process: Run) -> None:
    kafka.clock(3).skew(60)
    (check,) = problems(in_process, 1, "--write")["clock"]
    assert check["detail"].startswith("the clock of broker 3 is ")
    assert check["detail"].endswith((" ahead of that of broker 1", " ahead of that of broker 2"))


def test_a_cluster_that_nobody_reaches(in_process: Run) -> None:
    done = in_process("cluster", "doctor", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 1
    assert "connection refused" in done.stdout
    assert done.stdout.endswith("1 of 1 checks failed; the cluster at 127.0.0.1:1 needs help\n")


def test_a_controller_that_hangs_hides_nothing_else(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [1, 2, 3]})
    hanging = kafka.controller
    dead = next(node_id for node_id in kafka.node_ids if node_id != hanging)
    kafka.kill(dead)
    kafka.wait_for(lambda: dead not in kafka.in_sync_replicas("t"), what="the ISR without the dead broker")
    kafka.pause(hanging)
    found = problems(in_process, 1, "--timeout", "3")
    kafka.resume(hanging)
    assert [check["target"] for check in found["controller"]] == [f"broker {hanging}"]
    assert [check["target"] for check in found["directory"]] == [f"broker {hanging}"]
    assert [check["target"].split(" at ")[0] for check in found["advertised"]] == [f"broker {hanging}"]
    assert [check["target"] for check in found["broker"]] == [f"broker {dead}"]
    assert found["replica"][0]["target"] == f"broker {dead}"


def test_brokers_that_hang_while_they_are_asked_hide_nothing_that_is_known(
    kafka: Cluster, in_process: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create_topic("t", assignments={0: [1, 2, 3]})
    kafka.kill(3)
    kafka.wait_for(lambda: kafka.in_sync_replicas("t") == {1, 2}, what="the ISR without the dead broker")
    list_partition_reassignments = Admin.list_partition_reassignments

    def hang_after_this(admin: Admin) -> object:
        found = list_partition_reassignments(admin)
        for node_id in (1, 2):  # they go on accepting connections, and answer nothing
            kafka.pause(node_id)
        return found

    monkeypatch.setattr(Admin, "list_partition_reassignments", hang_after_this)
    found = problems(in_process, 1, "--timeout", "3")
    for node_id in (1, 2):
        kafka.resume(node_id)
    known, *untold = found["replica"]
    assert known["detail"] == "t-0 is not in sync: the broker is not live"
    assert [check["target"] for check in untold] == [
        *("eligible leaders", "throttles of brokers", "throttles of topics", "min.insync.replicas")
    ]
    assert {check["target"] for check in found["directory"]} == {"broker 1", "broker 2"}
