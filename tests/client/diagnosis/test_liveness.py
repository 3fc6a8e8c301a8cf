import pytest

from barnabas.client.diagnosis.liveness import find_live_broker
from barnabas.errors import ClientError
from barnabas.testing import Broker, Cluster


def asked(address: str, timeout_s: float = 5.0) -> int | None:
    host, _, port = address.rpartition(":")
    return find_live_broker(host, int(port), {}, timeout_s)


def test_one_broker_alone_is_live_until_it_is_stopped() -> None:
    with Broker(settings={"node.id": 7}) as broker:
        address = broker.bootstrap_servers
        assert asked(address) == 7
    with pytest.raises(ClientError):
        asked(address)


def test_each_broker_of_a_cluster_speaks_for_itself_and_a_fenced_one_says_so() -> None:
    with Cluster() as cluster:
        addresses = dict(zip(cluster.node_ids, cluster.bootstrap_servers.split(",")))
        assert {node_id: asked(address) for node_id, address in addresses.items()} == {1: 1, 2: 2, 3: 3}
        controller = cluster.controller
        silent = next(node_id for node_id in cluster.node_ids if node_id != controller)
        # its heartbeats are lost, and what the controller tells it arrives
        cluster.cut(silent, controller, one_way=True)
        cluster.wait_for(lambda: asked(addresses[silent]) is None, what="a fenced broker")
        cluster.heal()
        cluster.wait_for(lambda: asked(addresses[silent]) == silent, what="a broker that is live again")
        cluster.kill(controller)
        others = [node_id for node_id in cluster.node_ids if node_id != controller]
        assert [asked(addresses[node_id]) for node_id in others] == others


def test_a_broker_that_stands_still_gives_no_answer() -> None:
    with Cluster(2, processes=True) as cluster:
        address = cluster.bootstrap_servers.split(",")[1]
        cluster.pause(2)
        with pytest.raises(ClientError):
            asked(address, 0.5)
        cluster.resume(2)
        assert asked(address) == 2
