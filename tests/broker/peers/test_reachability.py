"""Peers that a broker cannot reach, found by a request to each."""

from pathlib import Path

from barnabas.broker.peers.reachability import unreached_peers
from barnabas.metadata.image import BrokerImage, MetadataImage
from barnabas.metadata.unreached_peer import UnreachedPeer
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.types import BrokerId
from broker.cluster.clusters import SOON_S, Cluster
from broker.peers.conftest import peer_of, run_on
from broker.wire import Wire

SHORT_S = 0.2


def unreached(cluster: Cluster, wait_s: float, *others: BrokerImage) -> list[UnreachedPeer]:
    """Returns the peers that broker 1 does not reach, of those that are registered and `others`."""
    server, member = cluster.server(1), cluster.member(1)

    async def ask() -> list[UnreachedPeer]:
        brokers = {**server.image.brokers, **{other.node_id: other for other in others}}
        return await unreached_peers(server.node_id, MetadataImage(brokers=brokers), member.peers, wait_s)

    return run_on(cluster.brokers[1], ask())


def test_peers_that_answer_hang_are_fenced_or_gone(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        assert unreached(cluster, SOON_S) == []
        with Wire(cluster.brokers[1]) as wire:
            asked = wire.ask(DescribeClusterRequest(unreached_peers_wait_ms=60_000), 2)
            assert (asked.unreached_peers, asked.refused_brokers, asked.leader_changes) == ("[]", b"[]", None)
        fenced, gone = BrokerImage(BrokerId(8), 1, (), fenced=True), BrokerImage(BrokerId(9), 1, ())
        (found,) = unreached(cluster, SOON_S, fenced, gone)
        assert (found.broker, found.listener, found.address) == (9, "", "")
        assert "is not registered with an address" in found.error
        endpoint = peer_of(cluster.brokers[2]).endpoint
        with cluster.stopped(2):
            assert unreached(cluster, SHORT_S) == [
                UnreachedPeer(2, endpoint.name, endpoint.local_address, "", "no answer within 0.2 s")
            ]
    finally:
        cluster.close()
