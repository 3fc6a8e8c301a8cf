"""`barnabas cluster balance` against three brokers."""

import json
from concurrent.futures import ThreadPoolExecutor

import barnabas
from barnabas.testing import Cluster
from cli.cluster.reassignment.test_reassign import replicas, throttles
from cli.cluster.three_brokers import bootstrap as bootstrap
from cli.cluster.three_brokers import kafka as kafka
from cli.cluster.three_brokers import shared_cluster as shared_cluster
from cli.conftest import Run


def test_a_broker_without_replicas_gets_its_share_of_bytes_and_leaders(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={number: [1, 2] for number in range(6)})
    for number in range(6):
        in_process("produce", "t", "--partition", str(number), input=f"{'x' * 1000}\n" * 100)
    shown = in_process("cluster", "balance")
    assert shown.stdout.startswith("PLAN, nothing is moved yet; with --execute ")
    assert "0 B -> " in shown.stdout
    planned = json.loads(in_process("cluster", "balance", "--json").stdout)
    assert planned["executed"] is False
    assert planned["bytes_to_copy"] > 100_000
    third = next(broker for broker in planned["brokers"] if broker["node_id"] == 3)
    assert (third["replicas"], third["leaders"], third["bytes"]) == (0, 0, 0)
    assert (third["planned_replicas"], third["planned_leaders"]) == (4, 2)
    assert third["planned_bytes"] == planned["bytes_to_copy"]
    assert replicas(kafka, "t") == [[1, 2]] * 6
    done = in_process("cluster", "balance", "--execute", "--throttle", "100000000")
    assert done.returncode == 0
    assert done.stdout.startswith("moved ")
    assert sum(3 in each for each in replicas(kafka, "t")) == 4
    (view,) = kafka.admin.list_topics()
    assert sorted(partition.leader for partition in view.in_order()) == [1, 1, 2, 2, 3, 3]
    assert not throttles(kafka)
    assert in_process("cluster", "balance").stdout.startswith("balanced: nothing to move\n")
    assert in_process("cluster", "balance", "--execute").stdout == "moved no partitions, elected no preferred leaders\n"
    assert len(in_process("consume", "t", "-e").stdout.split()) == 600


def test_only_the_named_topics_move_and_the_others_count(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("heavy", assignments={number: [1] for number in range(4)})
    kafka.create_topic("light", assignments={number: [1] for number in range(4)})
    report = json.loads(in_process("cluster", "balance", "--topic", "^lig", "--execute", "--json").stdout)
    assert {row["topic"] for row in report["partitions"]} == {"light"}
    assert all((row["result"], row["error"]) == ("moved", None) for row in report["partitions"])
    assert replicas(kafka, "heavy") == [[1]] * 4
    assert sorted(each[0] for each in replicas(kafka, "light")) == [2, 2, 3, 3]


def test_a_move_that_somebody_cancels_has_failed(kafka: Cluster, in_process: Run) -> None:
    source, target = sorted({1, 2, 3} - {kafka.controller})
    kafka.create_topic("t", assignments={number: [source] for number in range(3)})
    kafka.cut(source, target)

    def cancel() -> None:
        with barnabas.Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:

            def only_one_goes_on() -> bool:
                found = admin.list_partition_reassignments()
                return len(found) == 1 and all(target in each.adding_replicas for each in found.values())

            kafka.wait_for(only_one_goes_on, what="the move that cannot end")
            admin.alter_partition_reassignments(dict.fromkeys(admin.list_partition_reassignments()))

    with ThreadPoolExecutor(1) as threads:
        cancelled = threads.submit(cancel)
        done = in_process("cluster", "balance", "--execute", "--json")
        cancelled.result()
    assert done.returncode == 1
    results = {row["planned"][0]: row["result"] for row in json.loads(done.stdout)["partitions"]}
    assert results == {kafka.controller: "moved", target: "failed"}
    assert json.loads(done.stderr)["message"].endswith(f" was not moved to {target}: its replicas are {source}")


def test_preferred_leaders_are_elected_where_nothing_moves(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [1, 2], 1: [2, 3], 2: [3, 1]})
    kafka.move_leader("t", 0, 2)
    assert in_process("cluster", "balance", "--execute").stdout == "moved no partitions, elected 1 preferred leader\n"
    assert kafka.leader("t") == 1


def test_what_a_dead_broker_has_stays(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [1, 3], 1: [1, 3]})
    kafka.create_topic("u", assignments={0: [1], 1: [1], 2: [1]})
    kafka.kill(3)
    kafka.wait_for(lambda: kafka.admin.describe_cluster(include_fenced=True).fenced == {3}, what="the fencing")
    planned = in_process("cluster", "balance", "--json")
    assert planned.stderr == "2 partitions with a replica on a broker that is not live: not moved\n"
    report = json.loads(planned.stdout)
    assert {row["topic"] for row in report["partitions"]} == {"u"}
    assert [row["planned_replicas"] for row in report["brokers"]] in ([3, 2], [2, 3])
    kafka.start(3)


def test_it_waits_for_the_end_of_other_moves(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [1, 2]})
    kafka.kill(3)
    kafka.wait_for(lambda: kafka.admin.describe_cluster(include_fenced=True).fenced == {3}, what="the fencing")
    kafka.admin.alter_partition_reassignments({("t", 0): [1, 3]})
    refused = in_process("cluster", "balance")
    assert refused.returncode == 1
    assert "1 reassignment in progress; `barnabas cluster reassign status` shows how far" in refused.stderr
    kafka.admin.alter_partition_reassignments({("t", 0): None})
