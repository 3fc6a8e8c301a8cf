"""`barnabas cluster doctor` while the brokers' ZooKeeper is away."""

import json
from pathlib import Path

import pytest

from barnabas.testing import Cluster
from cli.conftest import run_barnabas
from zookeeper_server import running_server

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")


def test_each_broker_that_does_not_reach_zookeeper_is_named(tmp_path: Path) -> None:
    for server in running_server(tmp_path):
        address = server.new_path()
        with Cluster(2, processes=True, settings={"zookeeper.connect": address}) as kafka:
            options = ("cluster", "doctor", "--bootstrap", kafka.bootstrap_servers, "--json")
            well = json.loads(run_barnabas(*options).stdout)
            registry = [check for check in well["checks"] if check["name"] == "registry"]
            assert registry
            for check in registry:  # a warning if it is slow
                assert check["status"] != "failed"
                assert f"ZooKeeper at {address}" in check["target"] + check["detail"]
            server.kill()
            done = run_barnabas(*options, "--timeout", "10")
            assert done.returncode == 1, done.stdout
            lost = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "registry"]
            assert [(check["target"], check["status"]) for check in lost] == [
                ("broker 1", "failed"),
                ("broker 2", "failed"),
            ]
            assert all(f"there is no connection to ZooKeeper at {address}" in check["detail"] for check in lost)
            server.start()
