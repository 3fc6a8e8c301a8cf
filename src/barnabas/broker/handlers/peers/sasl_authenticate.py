"""SaslAuthenticate v0-v2. A broker proves that it knows the secret of the cluster, and gets the same proof.

A session has no end: the secret does not expire.
"""

from barnabas.broker.peers.session import PeerContext
from barnabas.broker.services import BrokerServices
from barnabas.errors import SaslAuthenticationFailed
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(broker: BrokerServices, request: SaslAuthenticateRequest, context: PeerContext) -> SaslAuthenticateResponse:
    try:
        answer = context.peer.authenticate(request.auth_bytes)
    except SaslAuthenticationFailed as error:
        context.close_soon(broker.loop, f"{error.message}; brokers of this cluster know the secret in its registry")
        return SaslAuthenticateResponse(error_code=error.code, error_message=error.message)
    return SaslAuthenticateResponse(error_message=None, auth_bytes=answer)
