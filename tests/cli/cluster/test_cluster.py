"""`barnabas cluster` and `barnabas brokers`."""

import json

import pytest

from barnabas.client.diagnosis import liveness
from barnabas.version import __version__
from cli.conftest import Run


def test_the_cluster_and_its_brokers(in_process: Run, bootstrap: str, topic: str) -> None:
    cluster = json.loads(in_process("cluster", "--json").stdout)
    assert cluster["cluster_id"]
    (broker,) = cluster["brokers"]
    assert (cluster["controller"], f"{broker['host']}:{broker['port']}") == (broker["node_id"], bootstrap)
    assert broker["release"] == __version__
    levels = {feature["feature"]: feature["finalized"] for feature in cluster["features"]}
    assert levels["transaction.version"]["max_level"] >= 2
    text = in_process("clusters", "describe").stdout
    assert f"cluster {cluster['cluster_id']}, controller {broker['node_id']}, 1 broker\n" in text
    assert __version__ in text
    (row,) = json.loads(in_process("brokers", "--json").stdout)
    assert (row["node_id"], row["controller"]) == (broker["node_id"], True)
    assert row["leaders"] == row["replicas"] >= 2
    assert row["size_bytes"] > 0
    assert row["release"] == __version__
    text = in_process("broker", "list").stdout
    assert (bootstrap in text, __version__ in text) == (True, True), text


def test_one_broker_is_asked_whether_it_serves(
    in_process: Run, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_id = json.loads(in_process("cluster", "--json").stdout)["controller"]
    done = in_process("brokers", "check")
    assert (done.returncode, done.stdout) == (0, f"broker {node_id} at {bootstrap} is live\n")
    assert json.loads(in_process("brokers", "check", "--json").stdout) == {"node_id": node_id, "address": bootstrap}
    done = in_process("brokers", "check", "--bootstrap", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "127.0.0.1:1: tcp: connection refused" in done.stderr
    done = in_process("brokers", "check", "--bootstrap", f"{bootstrap},127.0.0.1:1")
    assert done.returncode == 2
    assert "one broker is asked, so give one" in done.stderr
    monkeypatch.setattr(liveness, "find_live_broker", lambda *arguments: None)
    done = in_process("brokers", "check")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"the broker at {bootstrap} answers, but is fenced" in done.stderr
