"""SaslHandshake v1. A broker chooses SCRAM-SHA-256; there is no other mechanism between brokers.

Version 0, which Kafka knows as well, is not served: after it a client sends the messages of the mechanism without
headers, and no broker of ours does that.
"""

from barnabas.broker.peers.session import PeerContext
from barnabas.broker.services import BrokerServices
from barnabas.errors import UnsupportedSaslMechanism
from barnabas.network.sasl.scram import MECHANISM
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(broker: BrokerServices, request: SaslHandshakeRequest, context: PeerContext) -> SaslHandshakeResponse:
    try:
        context.peer.choose(request.mechanism)
    except UnsupportedSaslMechanism as error:
        context.close_soon(broker.loop, error.message)
        return SaslHandshakeResponse(error_code=error.code, mechanisms=[MECHANISM])
    return SaslHandshakeResponse(mechanisms=[MECHANISM])
