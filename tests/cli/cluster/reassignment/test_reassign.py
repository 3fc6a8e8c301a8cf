"""`barnabas cluster reassign`, `drain` and `elect` against three brokers."""

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from barnabas import Admin
from barnabas.cli.cluster.reassignment import moves
from barnabas.cli.cluster.reassignment.progress import seconds_text, wait_until_done
from barnabas.cli.framework.resources import chosen_partitions
from barnabas.errors import ItemsFailed, NoReassignmentInProgress
from barnabas.testing import Cluster
from barnabas.types import TopicPartition
from cli.cluster.three_brokers import bootstrap as bootstrap
from cli.cluster.three_brokers import kafka as kafka
from cli.cluster.three_brokers import shared_cluster as shared_cluster
from cli.conftest import Run, one_line, run_barnabas


def replicas(kafka: Cluster, topic: str) -> list[list[int]]:
    views = {view.name: view for view in kafka.admin.list_topics()}
    return [list(partition.replicas) for partition in views[topic].in_order()]


def test_a_plan_is_made_carried_out_and_taken_back(kafka: Cluster, in_process: Run, tmp_path: Path) -> None:
    kafka.create_topic("t", assignments={0: [1], 1: [1], 2: [1]})
    in_process("produce", "t", input="a\nb\nc\n")
    before = in_process("cluster", "reassign", "plan", "t", "--current").stdout
    assert "0 is below 1" in in_process("cluster", "reassign", "plan", "t", "-r", "0").stderr
    made = in_process("cluster", "reassign", "plan", "t", "-r", "3")
    assert made.stderr == "3 of 3 partitions change, 6 replicas to copy\n"
    plan = tmp_path / "plan.json"
    plan.write_text(made.stdout)
    done = in_process("cluster", "reassign", "execute", str(plan), "--wait")
    assert (done.returncode, done.stdout) == (0, "reassigned 3 partitions\n")
    assert [sorted(each) for each in replicas(kafka, "t")] == [[1, 2, 3]] * 3
    assert sorted(each[0] for each in replicas(kafka, "t")) == [1, 2, 3]
    assert [kafka.in_sync_replicas("t", number) for number in range(3)] == [{1, 2, 3}] * 3
    assert in_process("cluster", "reassign", "status").stdout == "no reassignment is in progress\n"
    again = in_process("cluster", "reassign", "execute", str(plan))
    assert (again.returncode, again.stdout) == (0, "begun no partitions, 3 unchanged\n")
    plan.write_text(before)
    assert in_process("cluster", "reassign", "execute", str(plan), "--wait").returncode == 0
    assert replicas(kafka, "t") == [[1], [1], [1]]
    assert sorted(in_process("consume", "t", "-e").stdout.split()) == ["a", "b", "c"]


def test_a_reassignment_that_cannot_end_is_shown_and_cancelled(kafka: Cluster, in_process: Run, tmp_path: Path) -> None:
    kafka.create_topic("t", assignments={0: [1, 2]})
    kafka.kill(3)
    kafka.wait_for(lambda: kafka.admin.describe_cluster(include_fenced=True).fenced == {3}, what="the fencing")
    plan = tmp_path / "plan.json"
    entry = {"topic": "t", "partition": 0, "replicas": [1, 3]}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    assert in_process("cluster", "reassign", "execute", str(plan)).stdout == "begun 1 partition\n"
    (row,) = json.loads(in_process("cluster", "reassign", "status", "--json").stdout)
    assert (row["topic"], row["adding"], row["removing"], row["in_sync"]) == ("t", [3], [2], [])
    assert in_process("cluster", "reassign", "status").stdout.splitlines()[1].split()[:5] == [
        *("t", "0", "1,3,2", "3", "2"),
    ]
    assert in_process("cluster", "reassign", "cancel", "t").stdout == "cancelled 1 partition\n"
    assert replicas(kafka, "t") == [[1, 2]]
    assert in_process("cluster", "reassign", "cancel", "--all").stdout == "no reassignment is in progress\n"
    with pytest.raises(ItemsFailed) as refused:
        kafka.admin.alter_partition_reassignments({("t", 0): None})
    assert refused.value.only(NoReassignmentInProgress)


def test_a_replica_that_stays_on_a_dead_broker_holds_no_reassignment_up(
    kafka: Cluster, in_process: Run, tmp_path: Path
) -> None:
    kafka.create_topic("t", assignments={0: [1, 2]})
    kafka.kill(2)
    kafka.wait_for(lambda: kafka.in_sync_replicas("t", 0) == {1}, what="the fencing")
    plan = tmp_path / "plan.json"
    entry = {"topic": "t", "partition": 0, "replicas": [2, 3]}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    done = in_process("cluster", "reassign", "execute", str(plan), "--wait", "--timeout", "20")
    assert (done.returncode, done.stdout) == (0, "reassigned 1 partition\n"), done.stderr
    assert replicas(kafka, "t") == [[2, 3]]
    assert kafka.in_sync_replicas("t", 0) == {3}


def test_a_broker_is_drained(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [3, 1], 1: [1, 2], 2: [2, 3]})
    planned = in_process("cluster", "drain", "3")
    assert planned.stdout.startswith("PLAN, nothing is moved yet; with --execute 2 partitions will be:\n")
    assert json.loads(in_process("cluster", "drain", "3", "--json").stdout)["executed"] is False
    assert replicas(kafka, "t")[0] == [3, 1]
    done = in_process("cluster", "drain", "3", "--execute")
    assert (done.returncode, done.stdout) == (0, "moved 2 partitions\n")
    assert [sorted(each) for each in replicas(kafka, "t")] == [[1, 2]] * 3
    assert in_process("cluster", "drain", "3", "--execute").stdout == "broker 3 has no replicas\n"
    kafka.create_topic("u")
    refused = in_process("cluster", "drain", "3")
    assert refused.returncode == 1
    assert "u-0 needs 3 brokers for its replicas, and there are 2 brokers to put them on; add a" in refused.stderr
    assert "`barnabas cluster reassign plan u --replication-factor 2`" in one_line(refused.stderr)


def test_with_fewer_replicas_as_the_refusal_says_a_broker_is_drained(
    kafka: Cluster, in_process: Run, tmp_path: Path
) -> None:
    kafka.create_topic("u")
    refused = in_process("cluster", "drain", "3").stderr
    command = refused[refused.index("`barnabas ") + 1 :].partition("`")[0]
    plan = tmp_path / "plan.json"
    plan.write_text(in_process(*command.split()[1:]).stdout)
    assert in_process("cluster", "reassign", "execute", str(plan), "--wait").returncode == 0
    assert in_process("cluster", "drain", "3", "--execute").returncode == 0
    assert [sorted(each) for each in replicas(kafka, "u")] == [[1, 2]]


def test_a_broker_without_replicas_and_registration_is_not_drained(kafka: Cluster, in_process: Run) -> None:
    for arguments in ((), ("--execute",)):
        refused = in_process("cluster", "drain", "33", *arguments)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "broker 33 is not in the cluster; its brokers are 1, 2, 3" in refused.stderr


def test_a_broker_that_has_stopped_is_drained_as_long_as_it_is_registered_or_has_replicas(
    kafka: Cluster, in_process: Run
) -> None:
    leaver = next(node_id for node_id in kafka.node_ids if node_id != kafka.controller)
    kept, target = sorted({1, 2, 3} - {leaver})
    kafka.stop(leaver)
    stopped = in_process("cluster", "drain", str(leaver))
    assert (stopped.returncode, stopped.stdout) == (0, f"broker {leaver} has no replicas\n")
    kafka.create_topic("t", assignments={0: [kept, leaver]})
    kafka.admin.unregister_broker(leaver)
    assert in_process("cluster", "drain", str(leaver), "--execute").stdout == "moved 1 partition\n"
    assert replicas(kafka, "t") == [[kept, target]]
    assert in_process("cluster", "drain", str(leaver)).returncode == 1
    kafka.start(leaver)


def begin_move_that_waits(kafka: Cluster) -> tuple[int, int, int]:
    """Begins to move t-0 to a broker that does not reach its leader. Returns its leader, that broker, and the broker
    that it leaves."""
    leaving = kafka.controller
    leader, target = sorted({1, 2, 3} - {leaving})
    kafka.create_topic("t", assignments={0: [leader, leaving]})
    kafka.cut(leader, target)
    kafka.admin.alter_partition_reassignments({("t", 0): [leader, target]})
    assert replicas(kafka, "t") == [[leader, target, leaving]]
    return leader, target, leaving


def test_a_drain_that_was_interrupted_goes_on(kafka: Cluster, in_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, target, leaving = begin_move_that_waits(kafka)
    planned = in_process("cluster", "drain", str(leaving), "--json")
    (row,) = json.loads(planned.stdout)["partitions"]
    assert (row["replicas"], row["planned"]) == ([leader, target, leaving], [leader, target])

    def heal_and_wait(admin: Admin, partitions: Collection[TopicPartition]) -> None:
        kafka.heal()
        wait_until_done(admin, partitions)

    monkeypatch.setattr(moves, "wait_until_done", heal_and_wait)
    done = in_process("cluster", "drain", str(leaving), "--execute")
    assert (done.returncode, done.stdout) == (0, "moved 1 partition\n")
    assert replicas(kafka, "t") == [[leader, target]]


def test_a_plan_during_a_reassignment_keeps_the_replication_factor(kafka: Cluster, in_process: Run) -> None:
    leader, target, _ = begin_move_that_waits(kafka)
    for arguments in ((), ("--current",)):
        (entry,) = json.loads(in_process("cluster", "reassign", "plan", "t", *arguments).stdout)["partitions"]
        assert entry["replicas"] == [leader, target]


def throttles(kafka: Cluster) -> dict[tuple[str, str], dict[str, str | None]]:
    """Returns the throttles that are set, by resource."""
    resources = [("topic", view.name) for view in kafka.admin.list_topics()]
    resources += [("broker", str(node_id)) for node_id in kafka.node_ids]
    return {
        tuple(resource): found
        for resource, entries in kafka.admin.describe_configs(resources).items()
        if (
            found := {
                entry.name: entry.value
                for entry in entries.values()
                if ".replication.throttled." in entry.name and entry.source.startswith("DYNAMIC")
            }
        )
    }


def rates(rate: int) -> dict[str, str]:
    return {f"{side}.replication.throttled.rate": str(rate) for side in ("leader", "follower")}


def test_a_throttled_reassignment_shows_its_throttle_and_removes_it(
    kafka: Cluster, in_process: Run, tmp_path: Path
) -> None:
    kafka.create_topic("t", assignments={0: [1], 1: [2]})
    kafka.create_topic("u", assignments={0: [2]})
    in_process("produce", "t", input="".join(f"{i}{'x' * 1000}\n" for i in range(2000)))
    plan = tmp_path / "plan.json"
    entries = [
        {"topic": "t", "partition": 0, "replicas": [3]},
        {"topic": "t", "partition": 1, "replicas": [2]},
        {"topic": "u", "partition": 0, "replicas": [2]},
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": entries}))
    begun = in_process("cluster", "reassign", "execute", str(plan), "--throttle", "1000")
    assert (begun.returncode, begun.stdout) == (0, "begun 1 partition, 2 unchanged\n")
    assert "the throttle stays until" in begun.stderr
    lists = {"leader.replication.throttled.replicas": "0:1", "follower.replication.throttled.replicas": "0:3"}
    assert throttles(kafka) == {("topic", "t"): lists, ("broker", "1"): rates(1000), ("broker", "3"): rates(1000)}
    shown = in_process("cluster", "reassign", "status", "--json")
    (row,) = json.loads(shown.stdout)
    assert (row["throttle"], row["seconds_left"]) == (1000, pytest.approx(row["bytes_left"] / 1000, abs=0.1))
    assert row["bytes_left"] > 0
    assert "1.0 kB/s" in in_process("cluster", "reassign", "status").stdout
    faster = in_process("cluster", "reassign", "execute", str(plan), "--throttle", "100000000", "--wait")
    assert (faster.returncode, faster.stdout) == (0, "reassigned 1 partition, 2 unchanged\n")
    assert faster.stderr.splitlines()[-1] == "removed the throttle from 1 topic and the brokers 1,3"
    assert not throttles(kafka)
    assert replicas(kafka, "t") == [[3], [2]]


def test_the_throttle_is_removed_by_the_status_after_the_end_and_no_sooner(
    kafka: Cluster, in_process: Run, tmp_path: Path
) -> None:
    kafka.create_topic("t", assignments={0: [1]})
    for _ in range(2):  # a replica that has nothing yet gets the first batch at once
        in_process("produce", "t", input="x" * 3000 + "\n")
    plan = tmp_path / "plan.json"
    entry = {"topic": "t", "partition": 0, "replicas": [2]}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    in_process("cluster", "reassign", "execute", str(plan), "--throttle", "1")
    before = throttles(kafka)
    in_process("cluster", "reassign", "status")
    assert throttles(kafka) == before != {}
    in_process("cluster", "reassign", "execute", str(plan), "--throttle", "100000000")
    kafka.wait_for(lambda: replicas(kafka, "t") == [[2]], what="the end of the reassignment")
    ended = in_process("cluster", "reassign", "status", "--json")
    assert (ended.stdout, ended.stderr) == ("[]\n", "removed the throttle from 1 topic and the brokers 1,2\n")
    assert not throttles(kafka)


def test_throttles_that_somebody_has_set_for_all_replicas_stay(kafka: Cluster, in_process: Run, tmp_path: Path) -> None:
    everything = {f"{side}.replication.throttled.replicas": "*" for side in ("leader", "follower")}
    kafka.create_topic("t", assignments={0: [1]}, configs=everything)
    kafka.admin.alter_configs({("broker", "2"): rates(5_000_000)})
    assert in_process("cluster", "reassign", "status").stderr == ""
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2]}]}')
    assert in_process("cluster", "reassign", "execute", str(plan), "--throttle", "100000000", "--wait").returncode == 0
    assert throttles(kafka)["topic", "t"] == everything
    kafka.admin.alter_configs({("broker", node_id): dict.fromkeys(rates(0)) for node_id in ("1", "2")})


def test_a_cancelled_reassignment_loses_its_throttle(kafka: Cluster, in_process: Run, tmp_path: Path) -> None:
    kafka.create_topic("t", assignments={0: [1]})
    for _ in range(2):  # a replica that has nothing yet gets the first batch at once
        in_process("produce", "t", input="x" * 3000 + "\n")
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2]}]}')
    in_process("cluster", "reassign", "execute", str(plan), "--throttle", "1")
    cancelled = in_process("cluster", "reassign", "cancel", "--all")
    assert cancelled.stderr == "removed the throttle from 1 topic and the brokers 1,2\n"
    assert not throttles(kafka)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, None), (0.2, "1 s"), (59.1, "1 min 0 s"), (185, "3 min 5 s"), (7200, "2 h 0 min")],
)
def test_times(seconds: float | None, text: str | None) -> None:
    assert seconds_text(seconds) == text


def test_wrong_words(kafka: Cluster, in_process: Run, tmp_path: Path) -> None:
    alone = in_process("cluster", "reassign")
    assert alone.returncode == 2
    assert "'reassign' is not complete; commands are reassign plan, reassign execute" in alone.stderr
    assert in_process("cluster", "reassign", "cancel").returncode == 2
    assert in_process("cluster", "reassign", "execute", str(tmp_path / "none")).returncode == 1
    unknown = tmp_path / "unknown.json"
    unknown.write_text('{"version": 1, "partitions": [{"topic": "none", "partition": 0, "replicas": [1]}]}')
    refused = in_process("cluster", "reassign", "execute", str(unknown))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "none-0" in refused.stderr


def test_leaders_are_elected(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [1, 2, 3]})
    kafka.move_leader("t", 0, 2)
    assert "elected" in in_process("cluster", "elect", "t").stdout
    assert kafka.leader("t") == 1
    assert chosen_partitions(kafka.admin, ["t"]) == [TopicPartition("t", 0)]


def test_a_plan_on_standard_input_is_called_that() -> None:
    done = run_barnabas("cluster", "reassign", "execute", "-", input="{")
    assert (done.returncode, done.stderr.partition(" JSON")[0]) == (2, "barnabas: standard input is no")
