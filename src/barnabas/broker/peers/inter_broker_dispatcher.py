"""Passes the requests of other brokers to their handlers, once these brokers have authenticated."""

from collections.abc import Callable
from typing import Final

from barnabas.broker.handlers import HANDLER_MODULES
from barnabas.broker.peers.identity import PeerIdentity
from barnabas.broker.peers.session import BROKER_PRINCIPAL, STATE_KEY, PeerContext, PeerSession
from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.network.connection import Connection, Parts, PendingReply
from barnabas.network.sasl.scram import Verifier
from barnabas.protocol.apis import SERVED_TO_BROKERS

__all__ = ["InterBrokerDispatcher", "session_of"]

_MODULES: Final = HANDLER_MODULES | {
    name: f"barnabas.broker.handlers.peers.{name}" for name in ("api_versions", "fetch")
}


class InterBrokerDispatcher(Dispatcher):
    """The request handler of the listener for brokers. Frames may be large only on a connection that is ready."""

    context_class = PeerContext

    def __init__(
        self,
        broker: BrokerServices,
        verifier: Verifier,
        identity: Callable[[], PeerIdentity],
        on_ready: Callable[[PeerIdentity], None],
    ) -> None:
        """`on_ready` is called with the introduction of a broker when a connection of it has become ready."""
        super().__init__(broker, SERVED_TO_BROKERS, _MODULES)
        self._verifier = verifier
        self._identity = identity
        self._on_ready = on_ready

    def __call__(self, connection: Connection, frame: memoryview) -> Parts | PendingReply:
        session = session_of(connection)
        if session is None:
            session = PeerSession(self._verifier, self._identity)
            connection.state = {STATE_KEY: session}
        if session.is_ready:
            return super().__call__(connection, frame)
        reply = super().__call__(connection, frame)
        if session.is_ready:
            connection.set_request_size_max(self._broker.config.socket_request_max_bytes)
            if session.identity is not None:
                self._on_ready(session.identity)
        return reply

    def handle(self, context: RequestContext, frame: memoryview, position: int) -> Parts | PendingReply:
        assert isinstance(context, PeerContext)
        context.peer.check(context.api_key)
        context.principal = BROKER_PRINCIPAL
        return super().handle(context, frame, position)


def session_of(connection: Connection) -> PeerSession | None:
    """Returns the session of a connection; None before its first request."""
    return None if connection.state is None else connection.state[STATE_KEY]
