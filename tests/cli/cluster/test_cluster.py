"""`barnabas cluster` and `barnabas brokers`."""

import json

from cli.conftest import Run


def test_the_cluster_and_its_brokers(in_process: Run, bootstrap: str, topic: str) -> None:
    cluster = json.loads(in_process("cluster", "--json").stdout)
    assert cluster["cluster_id"]
    (broker,) = cluster["brokers"]
    assert (cluster["controller"], f"{broker['host']}:{broker['port']}") == (broker["node_id"], bootstrap)
    levels = {feature["feature"]: feature["finalized"] for feature in cluster["features"]}
    assert levels["transaction.version"]["max_level"] >= 2
    text = in_process("clusters", "describe").stdout
    assert f"cluster {cluster['cluster_id']}, controller {broker['node_id']}, 1 broker\n" in text
    (row,) = json.loads(in_process("brokers", "--json").stdout)
    assert (row["node_id"], row["controller"]) == (broker["node_id"], True)
    assert row["leaders"] == row["replicas"] >= 2
    assert row["size_bytes"] > 0
    assert bootstrap in in_process("broker", "list").stdout
