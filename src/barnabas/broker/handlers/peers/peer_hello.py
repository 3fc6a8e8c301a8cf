"""PeerHello v0, an API of our own. Two brokers compare cluster and release; a mismatch ends the connection."""

from barnabas.broker.peers.identity import PeerIdentity
from barnabas.broker.peers.session import PeerContext
from barnabas.broker.services import BrokerServices
from barnabas.protocol.peer_messages.peer_hello import PeerHelloRequest, PeerHelloResponse


def handle(broker: BrokerServices, request: PeerHelloRequest, context: PeerContext) -> PeerHelloResponse:
    error = context.peer.introduce(PeerIdentity.of(request))
    if error is not None:
        context.close_soon(broker.loop, error.message)
    return PeerHelloResponse(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        **context.peer.ours()._asdict(),
    )
