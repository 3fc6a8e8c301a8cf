"""Sends requests to the other brokers of the cluster, by the connections of clients (`connection/`) on the event loop.

A peer has one connection for each role, so that a request never waits behind one that the peer holds. A connection is
opened by its first request: versions, SCRAM with the secret of the cluster, introduction. A lost connection fails its
requests, and the next request opens another after the backoff.
"""

import asyncio
import errno
import random
import time
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple

from barnabas.broker.peers.identity import PeerIdentity, mismatch
from barnabas.broker.peers.session import USERNAME
from barnabas.broker.process.failure_log import FailureLog
from barnabas.config.endpoints import Endpoint
from barnabas.connection.broker.client_request import ClientRequest, Error, connection_lost
from barnabas.connection.broker.cluster_connections import ClusterConnections, ConnectionSettings, NodeConnection
from barnabas.connection.broker.sasl import ScramSha256
from barnabas.connection.drivers.aio import AioDriver
from barnabas.errors import BrokerNotAvailable, ClientClosed, ConnectionLost, RequestTimedOut
from barnabas.protocol.peer_messages.peer_hello import PeerHelloRequest, PeerHelloResponse
from barnabas.protocol.schema import Request

__all__ = ["IN_FLIGHT_MAX", "PeerAddress", "PeerConnections", "Role"]

IN_FLIGHT_MAX: Final = 1000
"""The requests of one connection without a response. A peer takes no more either."""


class Role(IntEnum):
    """The purposes for which a peer has connections of their own."""

    CONTROL = 0
    """Short requests to and from the controller, among them heartbeats."""
    FETCH = 1
    """Fetches of a follower, which the leader holds."""
    FORWARD = 2
    """Requests of clients, which may take long."""
    TRANSACTION = 3
    """Requests to the coordinators of transactions, and end markers."""


class PeerAddress(NamedTuple):
    """The endpoint of a peer, and its epoch: a peer that has registered again gets new connections."""

    endpoint: Endpoint
    broker_epoch: int


class _Introduction:
    """The introduction to one peer."""

    def __init__(self, ours: PeerIdentity, node_id: int, misfits: dict[int, str]) -> None:
        """`misfits` gets the reason why the peer does not fit, by its node id."""
        self._ours = ours
        self._node_id = node_id
        self._misfits = misfits

    def request(self) -> Request:
        return PeerHelloRequest(**self._ours._asdict())

    def check(self, response: PeerHelloResponse) -> str:
        problem = self._problem(response)
        if problem:
            self._misfits[self._node_id] = problem
        return problem

    def _problem(self, response: PeerHelloResponse) -> str:
        theirs = PeerIdentity.of(response)
        error = mismatch(self._ours, theirs)
        if error is not None:
            return error.message
        if response.error_code:
            return response.error_message or f"error {response.error_code}"
        if theirs.node_id != self._node_id:
            return f"{theirs} listens where broker {self._node_id} did; its new address is not known yet"
        return ""


class _PeerClient:
    """The state machine that the driver turns."""

    def __init__(self, connections: ClusterConnections) -> None:
        self.now = 0.0
        self.connections = connections
        self.completions: deque[Callable[[], None]] = deque()
        self.closed = False

    def advance(self, now: float) -> None:
        self.now = max(now, self.now)
        self.connections.advance(self.now)

    def next_deadline(self) -> float:
        return self.connections.next_deadline()

    def close(self) -> None:
        self.closed = True
        self.connections.drop_all(ClientClosed("the broker shuts down"))


class PeerConnections:
    """Requests to other brokers. Made and used on the event loop's thread."""

    def __init__(
        self,
        address_of: Callable[[int], PeerAddress | None],
        identity: Callable[[], PeerIdentity],
        secret: bytes,
        failures: FailureLog,
        settings: ConnectionSettings | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`address_of` returns the address of a node id, None for a broker that is not registered. `identity` returns
        this broker's own. Both are asked again after `addresses_changed`, and while a connection is not ready. Client
        id, authentication and introduction of `settings` are set here."""
        self._address_of = address_of
        self._identity = identity
        self._failures = failures
        password = secret.hex()
        self._misfits: dict[int, str] = {}
        """The reasons why peers did not fit, by node id."""
        settings = (settings or ConnectionSettings())._replace(
            client_id=f"broker-{identity().node_id}",
            mechanism=lambda: ScramSha256(USERNAME, password),
            introduction=lambda node_id: _Introduction(identity(), node_id, self._misfits),
        )
        self._connections = ClusterConnections(
            settings, on_ready=lambda node: None, on_lost=self._on_lost, rng=rng or random.Random()
        )
        self._client = _PeerClient(self._connections)
        self._driver = AioDriver(self._client, name="connections to other brokers")
        self.on_peer_lost: Callable[[int], None] | None = None
        """Called with the node id of a peer when a connection that was in use has ended."""
        self.on_peer_unreached: Callable[[int, bool], None] | None = None
        """Called with the node id of a peer when a connection could not be made, and whether the peer's host refuses
        it because nobody listens there."""
        self._nodes: dict[tuple[int, int], NodeConnection] = {}
        """The connections to peers as they are registered now, by node id and role."""
        self._epochs: dict[tuple[int, int], tuple[int, int]] = {}
        """The epochs of the peer and of this broker for which a connection was made, by node id and role."""

    # --- requests ---------------------------------------------------------------------------------------------------

    def send(
        self, node_id: int, request: Request, *, role: Role = Role.CONTROL, timeout_s: float | None = None
    ) -> "asyncio.Future[Any]":
        """Sends a request. Returns a future of the response, which fails with KafkaError or ClientError if there is
        none. `timeout_s` replaces the timeout of requests, for one that the peer may hold."""
        future: asyncio.Future[Any] = self._driver.loop.create_future()

        def done(response: Any, error: Error | None) -> None:
            if future.done():  # cancelled
                return
            if error is None:
                future.set_result(response)
            else:
                future.set_exception(error)
                future.exception()  # if nobody awaits it any more, because the broker stops, that is no bug

        self.send_request(node_id, ClientRequest(request, done, timeout_s=timeout_s), role=role)
        return future

    def send_request(self, node_id: int, request: ClientRequest, *, role: Role) -> None:
        """Sends a request that says itself how it is encoded, and what is called when it ends, perhaps before this
        returns. Frequent requests use this."""
        if self._driver.closed:
            request.done(None, ClientClosed("the broker shuts down"))
            return
        self._client.now = time.monotonic()
        node = self._nodes.get((node_id, role))
        if node is None or not node.ready:
            address = self._address_of(node_id)
            if address is None:
                request.done(
                    None, BrokerNotAvailable(f"broker {node_id} is not registered with an address for brokers")
                )
                return
            node = self._nodes[node_id, role] = self._node(node_id, role, address)
        if node.in_flight >= IN_FLIGHT_MAX:
            request.done(None, RequestTimedOut(f"{IN_FLIGHT_MAX} requests to broker {node_id} wait for responses"))
            return
        self._connections.open(node, self._client.now).send(request, self._client.now)
        self._driver.turn_soon()  # not at once: the caller may be a callback of the turn before

    def connect(self, node_id: int) -> None:
        """Opens the connection for short requests if it is not open. `on_peer_unreached` tells if that fails."""
        address = None if self._driver.closed else self._address_of(node_id)
        if address is not None:
            self._client.now = time.monotonic()
            self._connections.open(self._node(node_id, Role.CONTROL, address), self._client.now)
            self._driver.turn_soon()

    def _node(self, node_id: int, role: int, address: PeerAddress) -> NodeConnection:
        """Returns the connection to a peer as it is registered now. One that was made before is dropped."""
        endpoint = address.endpoint
        node = self._connections.node(node_id, role, endpoint.host, endpoint.port)
        epochs = address.broker_epoch, self._identity().broker_epoch
        if self._epochs.setdefault((node_id, role), epochs) != epochs:
            self._epochs[node_id, role] = epochs
            self._connections.drop(node, connection_lost(node.address, "request", "a broker has registered again"))
        return node

    def addresses_changed(self) -> None:
        """Drops the connections to peers that are gone, moved, or registered again, or all after a new registration of
        this broker. Called after each change of the registrations."""
        self._nodes.clear()
        if self._driver.closed:
            return
        for node in list(self._connections):
            if node.connection is None:
                continue
            address = self._address_of(node.node_id)
            if address is None:
                self._connections.drop(node, connection_lost(node.address, "request", "the broker is gone"))
            else:
                self._node(node.node_id, node.role, address)
        self._driver.turn_soon()

    @property
    def settings(self) -> ConnectionSettings:
        return self._connections.settings

    # --- state ------------------------------------------------------------------------------------------------------

    def is_ready(self, node_id: int, role: Role) -> bool:
        """Whether a request would be sent at once, without connecting first."""
        node = self._connections.get(node_id, role)
        return node is not None and node.ready

    def _on_lost(self, node: NodeConnection, error: Error) -> None:
        """Reports a peer that does not fit, or does not know the secret: it will not get better by itself. Tells of the
        end of a connection that was in use, because the process of the peer may have ended, and of one that could not
        be made."""
        attempt = error.attempts[-1] if error.attempts else None
        if attempt is None:
            return
        is_refusal = not isinstance(error, ConnectionLost) or attempt.error == self._misfits.get(node.node_id)
        if attempt.stage in ("sasl", "introduction") and is_refusal:
            self._failures.warn(
                f"connections to broker {node.node_id}",
                f"broker {node.node_id} at {attempt.address} cannot be used: {attempt.error}",
            )
        elif attempt.stage == "request":
            if self.on_peer_lost is not None:
                self.on_peer_lost(node.node_id)
        elif self.on_peer_unreached is not None:
            refused = all(each.stage == "tcp" and each.errno == errno.ECONNREFUSED for each in error.attempts)
            self.on_peer_unreached(node.node_id, refused)

    def close(self) -> None:
        """Closes the connections, and fails what waits for responses with ClientClosed."""
        self._driver.close()
