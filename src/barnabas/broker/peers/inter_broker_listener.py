"""The listener for the other brokers of the cluster, with connections and limits of its own.

Clients cannot take the room of brokers: the listener has its own acceptor. A connection that has not authenticated
may send small frames only, and is closed after a while, or when too many others have come since. One that has is
closed when its broker has made too many since. So nobody else, and no number of brokers, keeps a broker out.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from barnabas.broker.connections.advertised_addresses import with_host_name
from barnabas.broker.peers.identity import PeerIdentity
from barnabas.broker.peers.inter_broker_dispatcher import InterBrokerDispatcher, session_of
from barnabas.broker.peers.peer_connections import Role
from barnabas.broker.peers.refusals import Refusals
from barnabas.broker.peers.session import USERNAME
from barnabas.broker.services import BrokerServices
from barnabas.config.endpoints import Endpoint
from barnabas.network.acceptor import SHUTDOWN, Acceptor, ConnectionLimits, open_listener
from barnabas.network.connection import CLIENT_CLOSED, Connection, InThread
from barnabas.network.sasl.scram import make_verifier

__all__ = ["InterBrokerListener"]

UNREADY_MAX: Final = 32
"""The most connections that are not ready. The oldest ones are closed for others."""
READY_MAX: Final = 2 * len(Role)
"""The most connections of one broker that are ready: one for each role, and those of before a power failure, of whose
end nobody told."""
SETUP_S: Final = 5.0
"""A connection that is not ready after one to two times this is closed."""
SETUP_FRAME_BYTES_MAX: Final = 4096
"""The bound on a frame before the connection is ready."""


class InterBrokerListener:
    """Listens for other brokers. Used on the event loop's thread."""

    def __init__(
        self,
        broker: BrokerServices,
        secret: bytes,
        identity: Callable[[], PeerIdentity],
        *,
        log: logging.Logger,
        on_peer_lost: Callable[[int], None],
        in_thread: InThread | None = None,
    ) -> None:
        """Opens the listener, for brokers that know the secret. `on_peer_lost` is called with the node id of a broker
        when a connection of it that was ready has ended. Raises UsageError if the address is not free."""
        config = broker.config
        self._broker = broker
        self._on_peer_lost = on_peer_lost
        verifier = make_verifier(USERNAME, secret.hex())
        dispatcher = InterBrokerDispatcher(broker, verifier, identity, self._on_ready)
        limits = ConnectionLimits(
            socket_request_max_bytes=SETUP_FRAME_BYTES_MAX,
            connections_max_idle_ms=config.connections_max_idle_ms,
            socket_send_buffer_bytes=config.socket_send_buffer_bytes,
            socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
            queued_max_response_bytes=config.queued_max_response_bytes,
        )
        endpoint = config.inter_broker_endpoint
        sock = open_listener(endpoint.host, endpoint.port, config.socket_listen_backlog_size)
        endpoint = endpoint._replace(port=sock.getsockname()[1])
        self.endpoint: Endpoint = config.advertised_inter_broker_endpoint or with_host_name(endpoint)
        """The address to which other brokers connect."""
        self._acceptor = Acceptor(
            broker.loop,
            dispatcher,
            limits,
            log,
            in_thread=in_thread,
            time_slicer=broker.time_slicer,
            on_accepted=self._on_accepted,
            on_closed=self._on_closed,
        )
        self._acceptor.listen(sock, endpoint.name)
        self.refusals = Refusals(broker.failures, broker.clock)
        self._in_setup: set[Connection] = set()
        """The connections that were not ready at the last check."""
        self._check: asyncio.TimerHandle = broker.loop.call_later(SETUP_S, self._close_unready)

    def _close_unready(self) -> None:
        """Closes connections that were not ready at the last check, and are not now."""
        unready = self._unready()
        overdue = self._in_setup
        self._in_setup = {connection for connection in unready if connection not in overdue}
        for connection in unready:
            if connection in overdue:
                connection.close("it has not authenticated in time")
        self._check = self._broker.loop.call_later(SETUP_S, self._close_unready)

    def _unready(self) -> list[Connection]:
        return [connection for connection in self._acceptor.connections if not _is_ready(connection)]

    def _on_accepted(self) -> None:
        for connection in self._unready()[:-UNREADY_MAX]:
            connection.close(f"{UNREADY_MAX} others have come before it has authenticated")

    def _on_ready(self, identity: PeerIdentity) -> None:
        of_broker = [
            connection
            for connection in self._acceptor.connections
            if (session := session_of(connection)) is not None
            and session.is_ready
            and session.identity is not None
            and session.identity.node_id == identity.node_id
        ]
        for connection in of_broker[:-READY_MAX]:
            connection.close(f"broker {identity.node_id} has made {READY_MAX} others since")

    def _on_closed(self, connection: Connection, reason: str) -> None:
        session = session_of(connection)
        identity = None if session is None else session.identity
        if _is_ready(connection):
            if identity is not None and reason != SHUTDOWN:
                self._on_peer_lost(identity.node_id)
            return
        if session is not None and identity is not None and session.foreign:
            self.refusals.note(identity, connection.peer_host, session.foreign)
            return
        if reason in (CLIENT_CLOSED, SHUTDOWN):
            return
        self._broker.failures.warn(
            "connections to the listener for brokers" if identity is None else f"connections of broker {identity[1]}",
            f"the listener for brokers closes the connection from {connection.peer_host}:{connection.peer_port}: "
            f"{reason}",
        )

    def close(self) -> None:
        """Closes the listener and its connections."""
        self._check.cancel()
        self._acceptor.close()


def _is_ready(connection: Connection) -> bool:
    session = session_of(connection)
    return session is not None and session.is_ready
