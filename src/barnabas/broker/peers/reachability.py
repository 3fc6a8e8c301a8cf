"""Finds the other brokers of the cluster that this one cannot reach, by a request to each."""

import asyncio

from barnabas.broker.peers.peer_connections import PeerConnections, Role
from barnabas.metadata.image import BrokerImage, MetadataImage
from barnabas.metadata.unreached_peer import UnreachedPeer
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.types import BrokerId
from barnabas.version import __version__

__all__ = ["unreached_peers"]


async def unreached_peers(
    node_id: BrokerId, image: MetadataImage, peers: PeerConnections, wait_s: float
) -> list[UnreachedPeer]:
    """Asks each live broker for its versions, and returns those that have not answered within `wait_s`. The requests go
    where those of clients do: who asks often holds up no heartbeat."""
    request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
    asked = {
        peers.send(other.node_id, request, role=Role.FORWARD): other
        for other in image.brokers.values()
        if other.node_id != node_id and not other.fenced
    }
    if asked:
        await asyncio.wait(asked, timeout=wait_s)
    return [
        _unreached(other, answer.exception() if answer.done() else None, wait_s)
        for answer, other in asked.items()
        if not answer.done() or answer.exception() is not None
    ]


def _unreached(other: BrokerImage, error: BaseException | None, wait_s: float) -> UnreachedPeer:
    endpoint = other.peer_endpoint
    listener, address = ("", "") if endpoint is None else (endpoint.name, endpoint.local_address)
    attempts = getattr(error, "attempts", ())
    if attempts:
        return UnreachedPeer(other.node_id, listener, address, attempts[-1].stage, attempts[-1].error)
    return UnreachedPeer(other.node_id, listener, address, "", str(error or f"no answer within {wait_s:g} s"))
