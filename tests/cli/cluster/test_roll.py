"""`barnabas cluster roll`: the order, the reasons to stop, and clients that notice nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import barnabas
from barnabas.cli.cluster.roll import Roll
from barnabas.cli.framework.output import CommandFailed
from barnabas.connection.cluster import Broker
from barnabas.testing import Cluster
from cli.cluster.three_brokers import bootstrap as bootstrap
from cli.cluster.three_brokers import kafka as kafka
from cli.cluster.three_brokers import shared_cluster as shared_cluster
from cli.conftest import Run, run_barnabas
from cli.serve.processes import Serve, ready_addresses
from cli.serve.processes import serve as serve
from steady_clients import steady_clients


def restarting(kafka: Cluster, order: list[int]) -> Callable[[Broker, float], None]:
    def restart(broker: Broker, _timeout_s: float) -> None:
        order.append(broker.node_id)
        kafka.stop(broker.node_id)
        kafka.start(broker.node_id)

    return restart


def test_the_controller_is_the_last_one(kafka: Cluster) -> None:
    kafka.create_topic("t", assignments={0: [1, 2, 3], 1: [2, 3, 1]})
    order: list[int] = []
    controller = kafka.controller
    taken = Roll(kafka.admin, restarting(kafka, order), 60).run([1, 2, 3])
    others = sorted({1, 2, 3} - {controller})
    assert order == [*others, controller]
    assert list(taken) == order
    assert kafka.in_sync_replicas("t") == {1, 2, 3}


def test_nothing_is_restarted_while_a_replica_is_not_in_sync(kafka: Cluster) -> None:
    kafka.create_topic("t", assignments={0: [1, 2, 3]})
    kafka.kill(3)
    kafka.wait_for(lambda: kafka.in_sync_replicas("t") == {1, 2}, what="the ISR without the dead broker")
    order: list[int] = []
    with pytest.raises(CommandFailed) as stopped:
        Roll(kafka.admin, restarting(kafka, order), 0.5).run([1, 2])
    assert str(stopped.value) == (
        "before the next restart not all replicas of t-0 were in sync for 0.5 s; not restarted: 1,2"
    )
    assert not order


def test_after_a_broker_that_does_not_come_back_the_others_are_left_alone(kafka: Cluster) -> None:
    kafka.create_topic("t", assignments={0: [1, 2, 3]})
    order: list[int] = []

    def stop(broker: Broker, _timeout_s: float) -> None:
        order.append(broker.node_id)
        kafka.stop(broker.node_id)

    first, second = sorted({1, 2, 3} - {kafka.controller})
    with pytest.raises(CommandFailed) as stopped:
        Roll(kafka.admin, stop, 1).run([1, 2, 3])
    assert str(stopped.value).startswith(f"after the restart of broker {first} it was not reachable for 1 s; not")
    assert order == [first]
    assert kafka.in_sync_replicas("t") == {kafka.controller, second}


def test_a_command_that_fails_or_restarts_something_else_is_named(kafka: Cluster, in_process: Run) -> None:
    failed = in_process("cluster", "roll", "--broker", "2", "--restart-command", "echo no {id} {port} >&2; exit 3")
    assert failed.returncode == 1
    assert "the restart command of broker 2 ended with exit code 3: echo no 2 " in failed.stderr
    options = ("--restart-command", "true", "--broker-timeout", "1", "--broker", "1", "--broker", "2")
    other = in_process("cluster", "roll", *options)
    assert other.returncode == 1
    assert " has not ended within 1 s: is it what is restarted?; not restarted: " in other.stderr
    assert in_process("cluster", "roll").returncode == 2
    assert in_process("cluster", "roll", "--broker", "9", "--data-dir", "x").returncode == 1
    nobody = in_process("cluster", "roll", "--broker", "1", "--data-dir", str(kafka.data_dir / "none"))
    assert (nobody.returncode, "no broker 1 runs in a directory of it" in nobody.stderr) == (1, True)


def test_partitions_without_replicas_to_spare_are_counted(kafka: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    kafka.create_topic("one", assignments={0: [1], 1: [2]}, configs={"min.insync.replicas": "1"})
    kafka.create_topic("two", assignments={0: [1, 3]}, configs={"min.insync.replicas": "2"})
    kafka.create_topic("three", assignments={0: [1, 2, 3]}, configs={"min.insync.replicas": "2"})
    Roll(kafka.admin, restarting(kafka, []), 60).run([1])
    assert "2 partitions without replicas to spare" in capsys.readouterr().err


def test_clients_go_on_while_all_brokers_of_a_supervisor_are_restarted(serve: Serve, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    bootstrap = ",".join(ready_addresses(serve("--brokers", "3", "--data-dir", data, "--log-level", "error")))
    with barnabas.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics(barnabas.NewTopic("t", 6))
    with steady_clients(bootstrap, "t"):
        done = run_barnabas("cluster", "roll", "--data-dir", data, "--bootstrap", bootstrap, "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(row["broker"] for row in json.loads(done.stdout)) == [1, 2, 3]
    assert "1 broker to go" in done.stderr
