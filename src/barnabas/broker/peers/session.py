"""One connection from another broker: authentication, introduction, and the requests that may come at each stage."""

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from barnabas.broker.peers.identity import PeerIdentity, mismatch
from barnabas.broker.requests.request_context import RequestContext
from barnabas.errors import BarnabasError, InconsistentClusterId, KafkaError, UnsupportedSaslMechanism
from barnabas.network.sasl.scram import MECHANISM, ScramServer, Verifier
from barnabas.protocol.apis import ApiKey

__all__ = ["BROKER_PRINCIPAL", "STATE_KEY", "USERNAME", "PeerContext", "PeerSession", "RequestOutOfOrder", "Stage"]

USERNAME: Final = "broker"
"""All brokers of a cluster share one secret, so they have one name."""
BROKER_PRINCIPAL: Final = "User:broker"
STATE_KEY: Final = "peer"


class RequestOutOfOrder(BarnabasError):
    """The request is not one that may come at this stage of the connection, which is closed."""


class Stage(IntEnum):
    """The stages of a connection, in their order."""

    CONNECTED = 0
    MECHANISM_CHOSEN = 1
    CHALLENGED = 2
    AUTHENTICATED = 3
    READY = 4


_ADMITTED: Final = {
    Stage.CONNECTED: (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE),
    Stage.MECHANISM_CHOSEN: (ApiKey.SASL_AUTHENTICATE,),
    Stage.CHALLENGED: (ApiKey.SASL_AUTHENTICATE,),
    Stage.AUTHENTICATED: (ApiKey.PEER_HELLO,),
}
_LAST: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.PEER_HELLO)
"""The requests that do not come on a connection that is ready."""


class PeerSession:
    """The state of one connection. Each method is called for one request, and leads to the next stage."""

    __slots__ = ("_scram", "_verifier", "foreign", "identity", "ours", "stage")

    def __init__(self, verifier: Verifier, ours: Callable[[], PeerIdentity]) -> None:
        """`ours` returns the identity of this broker, whose epoch may change."""
        self._verifier = verifier
        self.ours = ours
        self._scram: ScramServer | None = None
        self.stage = Stage.CONNECTED
        self.identity: PeerIdentity | None = None
        """The introduction of the broker at the other end, also of one that does not fit."""
        self.foreign = ""
        """The reason why that broker does not belong here, as the copy of one does not; '' if it does."""

    @property
    def is_ready(self) -> bool:
        return self.stage is Stage.READY

    def check(self, api_key: int) -> None:
        """Raises RequestOutOfOrder if the request may not come now."""
        stage = self.stage
        if api_key in _LAST if stage is Stage.READY else api_key not in _ADMITTED[stage]:
            done = "" if stage is Stage.CONNECTED else f" at stage {stage.name}"
            before = "the authentication" if stage < Stage.AUTHENTICATED else "the introduction"
            when = "comes again" if stage is Stage.READY else f"comes before {before}{done}"
            raise RequestOutOfOrder(f"{ApiKey(api_key).name} {when}")

    def choose(self, mechanism: str) -> None:
        """Takes the mechanism that the peer wants to use. Raises UnsupportedSaslMechanism."""
        if mechanism != MECHANISM:
            raise UnsupportedSaslMechanism(f"brokers authenticate with {MECHANISM} only")
        self._scram = ScramServer(self._verifier)
        self.stage = Stage.MECHANISM_CHOSEN

    def authenticate(self, message: bytes) -> bytes:
        """Returns the answer to a message of the mechanism. Raises SaslAuthenticationFailed."""
        assert self._scram is not None
        if self.stage is Stage.MECHANISM_CHOSEN:
            answer = self._scram.server_first(message)
            self.stage = Stage.CHALLENGED
        else:
            answer = self._scram.server_final(message)
            self.stage = Stage.AUTHENTICATED
            self._scram = None
        return answer

    def introduce(self, identity: PeerIdentity) -> KafkaError | None:
        """Takes the introduction of the peer. Returns why it does not fit; otherwise the connection is ready."""
        self.identity = identity
        error = mismatch(self.ours(), identity)
        if error is None:
            self.stage = Stage.READY
        elif isinstance(error, InconsistentClusterId):
            self.foreign = error.message
        return error


class PeerContext(RequestContext):
    """The context of a request from another broker."""

    __slots__ = ()

    is_broker = True

    @property
    def peer(self) -> PeerSession:
        state = self.connection.state
        assert state is not None
        session: PeerSession = state[STATE_KEY]
        return session

    def close_soon(self, loop: asyncio.AbstractEventLoop, reason: str) -> None:
        """Closes the connection after the response."""
        loop.call_soon(self.connection.close, reason)
