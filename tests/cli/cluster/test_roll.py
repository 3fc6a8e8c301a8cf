"""`barnabas cluster roll`: the order, the reasons to stop, and clients that notice nothing."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import barnabas
from barnabas.cli.cluster.roll import WAY_OUT, Roll, by_command
from barnabas.cli.framework.output import CommandFailed
from barnabas.client.admin.cluster import ClusterDescription
from barnabas.connection.cluster import Broker
from barnabas.errors import RequestTimedOut
from barnabas.testing import Cluster
from barnabas.version import __version__
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


def test_an_upgrade_that_changes_nothing_is_seen(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As when a link to the new release was made inside of the directory of the old one."""
    first, second = sorted({1, 2, 3} - {kafka.controller})

    def restart(broker: Broker, _timeout_s: float) -> None:
        kafka.stop(broker.node_id)
        if broker.node_id == second:
            monkeypatch.setattr("barnabas.broker.handlers.cluster.describe_cluster.__version__", "0.2.0")
        kafka.start(broker.node_id)

    done = Roll(kafka.admin, restart, 60).run([first, second])
    assert (done[first].release_before, done[first].release) == (__version__, __version__)
    assert (done[second].release_before, done[second].release) == (__version__, "0.2.0")
    told = capsys.readouterr().err
    assert f"; release {__version__} as before; 1 broker to go" in told
    assert f"; release 0.2.0, {__version__} before; no brokers to go" in told


def test_nothing_is_restarted_while_a_replica_is_not_in_sync(kafka: Cluster) -> None:
    leader, follower = sorted({1, 2, 3} - {kafka.controller})
    kafka.create_topic("t", assignments={0: [leader, follower]})
    kafka.cut(leader, follower)
    kafka.wait_for(lambda: kafka.in_sync_replicas("t") == {leader}, what="the ISR without the follower")
    order: list[int] = []
    with pytest.raises(CommandFailed) as stopped:
        Roll(kafka.admin, restarting(kafka, order), 0.5).run([1, 2])
    assert str(stopped.value) == (
        f"before the next restart not all replicas of t-0 were in sync for 0.5 s ({WAY_OUT}); not restarted: 1,2"
    )
    assert not order


def test_nothing_is_restarted_while_a_broker_without_replicas_is_down(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [1, 2]})
    kafka.kill(3)
    kafka.wait_for(lambda: kafka.admin.describe_cluster(include_fenced=True).fenced == {3}, what="the fencing")
    refused = in_process("cluster", "roll", "--restart-command", "exit 1", "--broker-timeout", "1")
    assert refused.returncode == 1
    assert f"before the next restart broker 3 was not live for 1 s ({WAY_OUT}); not restarted: 1,2" in refused.stderr


def test_a_long_wait_says_what_for_and_at_its_end_the_way_out(
    kafka: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka.create_topic("t", assignments={0: [1, 2, 3]})
    kafka.kill(3)
    kafka.wait_for(lambda: kafka.admin.describe_cluster(include_fenced=True).fenced == {3}, what="the fencing")
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    with pytest.raises(CommandFailed, match=r"`barnabas cluster doctor` says .* `barnabas cluster unregister` "):
        Roll(kafka.admin, restarting(kafka, []), 20, clock=lambda: now, sleep=sleep).run([1, 2])
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("waiting "))
    assert line == "waiting for up to 15 s: before the next restart broker 3 was not live"


def test_a_broker_that_goes_between_two_answers_is_named(kafka: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = min({1, 2, 3} - {kafka.controller})

    def describe(*, include_fenced: bool = False) -> ClusterDescription:
        found = kafka.admin.describe_cluster()
        live = {node_id: broker for node_id, broker in found.brokers.items() if include_fenced or node_id != gone}
        return found._replace(brokers=live)

    with barnabas.Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        monkeypatch.setattr(admin, "describe_cluster", describe)
        with pytest.raises(CommandFailed, match=rf"^broker {gone} was not live; not restarted: "):
            Roll(admin, restarting(kafka, []), 5).run([1, 2, 3])


def test_the_brokers_that_are_left_are_named_after_an_error_of_the_cluster(kafka: Cluster) -> None:
    def refuse(_broker: Broker, _timeout_s: float) -> None:
        raise RequestTimedOut("no answer")

    with pytest.raises(CommandFailed, match="no answer; not restarted: "):
        Roll(kafka.admin, refuse, 5).run([1, 2])


def test_after_a_broker_that_does_not_come_back_the_others_are_left_alone(kafka: Cluster) -> None:
    kafka.create_topic("t", assignments={0: [1, 2, 3]})
    order: list[int] = []

    def stop(broker: Broker, _timeout_s: float) -> None:
        order.append(broker.node_id)
        kafka.stop(broker.node_id)

    first, second = sorted({1, 2, 3} - {kafka.controller})
    with pytest.raises(CommandFailed) as stopped:
        Roll(kafka.admin, stop, 1).run([1, 2, 3])
    assert str(stopped.value).startswith(f"after the restart of broker {first} it was not reachable for 1 s (")
    assert order == [first]
    assert kafka.in_sync_replicas("t") == {kafka.controller, second}


def test_a_command_that_fails_or_restarts_something_else_is_named(kafka: Cluster, in_process: Run) -> None:
    failed = in_process("cluster", "roll", "--broker", "2", "--restart-command", "echo no {id} {port} >&2; exit 3")
    assert failed.returncode == 1
    assert "the restart command of broker 2 ended with exit code 3: echo no 2 " in failed.stderr
    options = ("--restart-command", "true", "--broker-timeout", "1", "--broker", "1", "--broker", "2")
    other = in_process("cluster", "roll", *options)
    assert other.returncode == 1
    assert " it was the process of before (is it what is restarted?) for 1 s (" in other.stderr
    assert in_process("cluster", "roll").returncode == 2
    assert in_process("cluster", "roll", "--broker", "9", "--data-dir", "x").returncode == 1
    nobody = in_process("cluster", "roll", "--broker", "1", "--data-dir", str(kafka.data_dir / "none"))
    assert (nobody.returncode, "no broker 1 runs in a directory of it" in nobody.stderr) == (1, True)


def test_the_end_of_a_connection_is_not_taken_for_that_of_the_process() -> None:
    with (
        Cluster(1, settings={"connections.max.idle.ms": "50"}) as kafka,
        pytest.raises(CommandFailed, match=r"^after the restart of broker 1 it was the process of before"),
    ):
        Roll(kafka.admin, lambda *_: None, 1).run([1])


def test_where_brokers_tell_no_epochs_the_end_of_a_connection_shows_that_of_the_process(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers of Kafka, and of the release before."""
    with barnabas.Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        describe = admin.describe_cluster
        monkeypatch.setattr(admin, "describe_cluster", lambda **options: describe(**options)._replace(epochs={}))
        order: list[int] = []
        assert Roll(admin, restarting(kafka, order), 60).run([1]).keys() == {1}
        with pytest.raises(CommandFailed, match="it was the process of before"):
            Roll(admin, lambda *_: None, 1).run([2])


def test_what_a_command_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    left = tmp_path / "left"
    os.mkfifo(left)
    restart = by_command(f"cat {left} & echo done")
    restart(Broker(1, "localhost", 9092, None), 60)
    with open(left, "w"):
        pass  # which opens, and ends, what was left running


def test_all_processes_of_a_command_that_does_not_end_are_killed(tmp_path: Path) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    reader = os.open(told, os.O_RDONLY | os.O_NONBLOCK)
    restart = by_command(f"exec 3> {told}; echo begun >&3; sleep 600 & wait")
    with pytest.raises(CommandFailed, match=r"^the restart command of broker 1 has not ended within 3 s: exec 3"):
        restart(Broker(1, "localhost", 9092, None), 3)
    os.set_blocking(reader, True)
    with open(reader) as lines:
        assert lines.read() == "begun\n"  # to its end, as no process has it open


def test_of_the_output_of_a_command_that_fails_the_end_is_told() -> None:
    restart = by_command("seq 1000; echo no >&2; exit 4")
    with pytest.raises(CommandFailed, match="exit code 4") as failed:
        restart(Broker(1, "localhost", 9092, None), 60)
    assert str(failed.value).endswith("\n999\n1000\nno")
    assert len(str(failed.value)) < 700


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
