"""`barnabas groups describe` shows the replicas of what the coordinator keeps."""

import json

from barnabas.testing import Cluster
from cli.cluster.three_brokers import bootstrap as bootstrap
from cli.cluster.three_brokers import kafka as kafka
from cli.cluster.three_brokers import shared_cluster as shared_cluster
from cli.conftest import Run

TOPIC = "__consumer_offsets"


def test_the_replicas_of_a_group(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t")
    assert kafka.admin.group_coordinators("g") == {}, "there has been no group"
    in_process("produce", "t", input="a\n")
    in_process("consume", "t", "-g", "g", "-e")
    whole = json.loads(in_process("groups", "describe", "g", "--json").stdout)
    kept = whole["coordinator_partition"]
    assert (kept["topic"], kept["leader"]) == (TOPIC, whole["coordinator"])
    assert sorted(kept["replicas"]) == sorted(kept["isr"]) == [1, 2, 3]
    assert kept["elr"] == kept["offline_replicas"] == []
    (found,) = kafka.admin.group_coordinators(["g"]).values()
    assert found.partition == (TOPIC, kept["partition"])
    assert found.view.leader == whole["coordinator"]

    dead = next(node_id for node_id in kept["replicas"] if node_id not in (kept["leader"], kafka.controller))
    kafka.kill(dead)
    kafka.wait_for(lambda: dead not in kafka.in_sync_replicas(TOPIC, kept["partition"]), what="the ISR without it")
    left = json.loads(in_process("groups", "describe", "g", "--json").stdout)["coordinator_partition"]
    assert (sorted(left["isr"]), left["offline_replicas"]) == (sorted({1, 2, 3} - {dead}), [dead])
    text = in_process("groups", "describe", "g").stdout.splitlines()[1]
    isr = ",".join(map(str, left["isr"]))
    replicas = ",".join(map(str, kept["replicas"]))
    start = f"kept in {TOPIC}-{kept['partition']}: leader {kept['leader']}, replicas {replicas}, isr {isr}"
    assert text == f"{start}, offline {dead}"
