"""Coordinators of groups are looked up once, and again when they have moved."""

from typing import Any

import pytest

from barnabas.connection.network_client import Coordinator
from barnabas.connection.retry import send_with_retries
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from simulation.cluster import SingleClientCluster


def heartbeat(cluster: SingleClientCluster) -> Any:
    return send_with_retries(
        cluster.network_client,
        HeartbeatRequest(group_id="g"),
        Coordinator("g"),
        timeout_s=30,
        check=lambda response: response.error_code,
    )


@pytest.mark.parametrize("newest", [3, 6])
def test_the_coordinator_is_found_once(newest: int) -> None:
    cluster = SingleClientCluster(nodes=2)
    cluster.versions[10] = (0, newest)
    cluster.coordinator = 2
    cluster.handlers[12] = lambda received: HeartbeatResponse()
    first, second = heartbeat(cluster), heartbeat(cluster)
    assert cluster.result(first) == cluster.result(second) == HeartbeatResponse()
    cluster.result(heartbeat(cluster))
    assert cluster.count(10) == 1
    assert {received.node_id for received in cluster.requests if received.api_key == 12} == {2}


def test_a_coordinator_that_moved_is_found_again() -> None:
    cluster = SingleClientCluster(nodes=2)
    cluster.handlers[12] = lambda received: HeartbeatResponse(error_code=0 if received.node_id == 2 else 16)
    promise = heartbeat(cluster)
    cluster.run(seconds=0.5)
    assert not promise.done
    cluster.coordinator = 2
    assert cluster.result(promise).error_code == 0
