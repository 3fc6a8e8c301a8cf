"""`barnabas cluster unregister`."""

import json

import pytest

from barnabas.errors import BrokerIdNotRegistered, InvalidRequest
from barnabas.testing import Cluster
from cli.conftest import Run, one_line


def test_a_broker_that_has_stopped_is_unregistered(in_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster() as kafka:
        monkeypatch.setenv("BARNABAS_BOOTSTRAP", kafka.bootstrap_servers)
        leaver = next(node_id for node_id in kafka.node_ids if node_id != kafka.controller)
        refused = in_process("cluster", "unregister", str(leaver))
        assert refused.returncode == 1
        assert f"broker {leaver} is live" in one_line(refused.stderr)
        with pytest.raises(InvalidRequest):
            kafka.admin.unregister_broker(leaver)
        kafka.stop(leaver)
        assert in_process("cluster", "unregister", str(leaver)).stdout == f"unregistered broker {leaver}\n"
        assert leaver not in kafka.admin.describe_cluster(include_fenced=True).brokers
        assert leaver not in [b["node_id"] for b in json.loads(in_process("cluster", "--json").stdout)["brokers"]]
        with pytest.raises(BrokerIdNotRegistered):
            kafka.admin.unregister_broker(leaver)
        unknown = in_process("cluster", "unregister", str(leaver))
        known = ", ".join(str(node_id) for node_id in kafka.node_ids if node_id != leaver)
        assert unknown.returncode == 1
        assert one_line(unknown.stderr).endswith(f"broker {leaver} is not in the cluster; its brokers are {known}")
