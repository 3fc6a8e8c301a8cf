"""The connections to the nodes of a cluster, from opening to backoff. The driver opens and closes their sockets.

A node has a connection for each role, so that no request waits behind one that the broker holds. The first request
opens the connection. When a connection is lost, its requests in flight fail, and the next request opens another
connection once the backoff is over.
"""

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.connection.broker.broker_connection import SILENT_HINT, BrokerConnection, Buffer, Introduction
from barnabas.connection.broker.client_request import Error, connection_lost
from barnabas.connection.timers import NEVER, exponential_backoff
from barnabas.errors import Attempt, ConnectionLost

if TYPE_CHECKING:
    from barnabas.connection.broker.sasl import Mechanism

__all__ = ["BOOTSTRAP", "ClusterConnections", "Connect", "ConnectionSettings", "NodeConnection"]

BOOTSTRAP: Final = -1
"""The node id of the first bootstrap address; the following addresses have the ids -2, -3 and so on."""


class ConnectionSettings(NamedTuple):
    """Kafka's settings of connections, in seconds."""

    client_id: str = "barnabas"
    request_timeout_s: float = 30.0
    setup_timeout_s: float = 10.0
    """socket.connection.setup.timeout.ms: DNS, TCP, TLS, versions and SASL together; it doubles with each failure."""
    setup_timeout_max_s: float = 30.0
    backoff_s: float = 0.05
    backoff_max_s: float = 1.0
    idle_max_s: float = 540.0
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    """The size of the receive buffer; -1 leaves the choice to the system."""
    mechanism: "Callable[[], Mechanism] | None" = None
    introduction: Callable[[int], Introduction] | None = None
    """Makes the exchange that follows the authentication with the node of this id; clients have none."""


class Connect(NamedTuple):
    """A connection for the driver to open. The driver calls `connected` or `lost` with its number."""

    number: int
    host: str
    port: int
    timeout_s: float
    """The time for all addresses of the host together."""


class NodeConnection:
    """The connection to a node in one role, open or not."""

    def __init__(self, node_id: int, role: int, host: str, port: int) -> None:
        self.node_id = node_id
        self.role = role
        self.host = host
        self.port = port
        self.number = 0
        """The number of the connection that is open or opening; 0 for none."""
        self.connection: BrokerConnection | None = None
        """The state of the connection; None if there is no request for the node."""
        self.connected = False
        self.setup_until = NEVER
        self.backoff_until = float("-inf")
        self.failures = 0
        """The number of attempts that failed in a row."""
        self.attempts: tuple[Attempt, ...] = ()
        """The attempts of the last failure."""

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def ready(self) -> bool:
        return self.connection is not None and self.connection.ready

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return 0 if self.connection is None else self.connection.in_flight


class ClusterConnections:
    """All connections. `on_ready` is called when a connection can take requests, `on_lost` when one has failed."""

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        on_ready: Callable[[NodeConnection], None],
        on_lost: Callable[[NodeConnection, Error], None],
        rng: random.Random,
    ) -> None:
        self.settings = settings
        self._on_ready = on_ready
        self._on_lost = on_lost
        self._rng = rng
        self._nodes: dict[tuple[int, int], NodeConnection] = {}
        """The connections by node id and role."""
        self._by_number: dict[int, NodeConnection] = {}
        self._last_number = 0
        self.cluster_id: str | None = None
        """The cluster whose brokers are expected at the addresses of known nodes; None: any broker is welcome."""
        self.has_resolved = False
        """Whether the name of any node has been resolved."""
        self._connects: list[Connect] = []
        self._closes: list[int] = []
        self._writable: dict[int, None] = {}
        """The numbers of the connections that may have output."""

    def __iter__(self) -> Iterator[NodeConnection]:
        return iter(self._nodes.values())

    @property
    def has_in_flight_requests(self) -> bool:
        for node in self._by_number.values():
            connection = node.connection
            if not node.connected or (connection is not None and (connection.in_flight or connection.congested)):
                return True
        return False

    def connecting(self) -> list[Attempt]:
        """Returns an attempt for each connection that is being made and has no outcome yet. Safe in any thread: an
        error of a call that has waited too long tells them, while another thread opens and closes connections."""
        found = [(node, node.connection) for node in tuple(self._by_number.values())]
        return [
            Attempt(node.address, connection.stage if node.connected else "tcp", "no answer yet", "")
            for node, connection in found
            if connection is not None and not connection.ready
        ]

    def get(self, node_id: int, role: int) -> NodeConnection | None:
        return self._nodes.get((node_id, role))

    def node(self, node_id: int, role: int, host: str, port: int) -> NodeConnection:
        """Returns the node, whose address is now `host:port`. A connection to its former address is closed."""
        node = self._nodes.get((node_id, role))
        if node is None:
            node = self._nodes[node_id, role] = NodeConnection(node_id, role, host, port)
        elif node.port != port or node.host != host:
            error = connection_lost(node.address, "request", f"broker {node_id} moved to {host}:{port}")
            node.host, node.port = host, port
            self.drop(node, error)
        return node

    def open(self, node: NodeConnection, now: float) -> BrokerConnection:
        """Returns the connection that takes the node's requests, and opens it, now or when the backoff is over."""
        connection = node.connection
        if connection is None:
            introduction = self.settings.introduction
            connection = node.connection = BrokerConnection(
                node.address,
                client_id=self.settings.client_id,
                request_timeout_s=self.settings.request_timeout_s,
                mechanism=self.settings.mechanism,
                introduction=None if introduction is None else introduction(node.node_id),
                expected=None if self.cluster_id is None or node.node_id < 0 else (self.cluster_id, node.node_id),
            )
            connection.last_used = now
            if now >= node.backoff_until:
                self._connect(node, now)
        if node.connected:
            self._writable[node.number] = None
        return connection

    def _connect(self, node: NodeConnection, now: float) -> None:
        self._last_number += 1
        node.number = self._last_number
        settings = self.settings
        allowed_s = min(settings.setup_timeout_s * 2.0 ** min(node.failures, 20), settings.setup_timeout_max_s)
        node.setup_until = now + allowed_s
        self._by_number[node.number] = node
        self._connects.append(Connect(node.number, node.host, node.port, allowed_s))

    # --- what the driver does ---------------------------------------------------------------------------------------

    def take_connects(self) -> list[Connect]:
        """Returns the connections to open. Each ends in `connected` or `lost`, unless its number is closed before."""
        connects, self._connects = self._connects, []
        return connects

    def take_closes(self) -> list[int]:
        """Returns the connections to close, open or opening. Events of them are ignored from now on."""
        closes, self._closes = self._closes, []
        return closes

    def take_output(self) -> list[tuple[int, list[Buffer]]]:
        """Returns the bytes to write on each connection, in order, and drops them."""
        if not self._writable:
            return []
        numbers, self._writable = self._writable, {}
        output = []
        for number in numbers:
            node = self._by_number.get(number)
            if node is not None and node.connection is not None and node.connection.has_output:
                output.append((number, node.connection.take_output()))
        return output

    # --- what the driver tells --------------------------------------------------------------------------------------

    def _connection(self, number: int) -> BrokerConnection | None:
        """Returns the connection with this number, None if the network client has given it up meanwhile."""
        node = self._by_number.get(number)
        return None if node is None else node.connection

    def resolved(self) -> None:
        """Notes that the name of a node has been resolved."""
        self.has_resolved = True

    def connected(self, number: int, now: float) -> None:
        connection = self._connection(number)
        if connection is not None:
            self._by_number[number].connected = True
            connection.start(now)
            self._writable[number] = None

    def congested(self, number: int, congested: bool) -> None:
        """Notes whether the socket is full: its node is not ready as long as it is."""
        connection = self._connection(number)
        if connection is not None:
            connection.congested = congested

    def receive_buffer(self, number: int) -> memoryview | None:
        """Returns the buffer for the rest of a frame that is partly received; None between frames."""
        connection = self._connection(number)
        return None if connection is None else connection.receive_buffer

    def received(self, number: int, data: bytes | None, count: int, now: float) -> None:
        """Takes `data`, or if that is None the `count` bytes that the driver has just written into the receive buffer,
        and completes the requests that these bytes answer."""
        node = self._by_number.get(number)
        connection = None if node is None else node.connection
        if node is None or connection is None:
            return
        was_ready = connection.ready
        completed = connection.buffer_filled(count, now) if data is None else connection.received(data, now)
        broken = connection.broken
        if broken is None:
            if connection.has_output:
                self._writable[number] = None
            if connection.ready and not was_ready:
                node.failures = 0
                node.setup_until = NEVER
                self._on_ready(node)
        for request, response in completed:
            request.done(response, None)
        if broken is not None:
            self._fail(node, broken, now)

    def lost(self, number: int, attempts: tuple[Attempt, ...], now: float) -> None:
        """Fails a connection that could not be made or broke. `attempts` name the addresses, stages and reasons."""
        node = self._by_number.get(number)
        if node is not None:
            self._fail(node, ConnectionLost("; ".join(map(str, attempts)), attempts), now, closed=True)

    def stage(self, number: int) -> str:
        """Returns the stage that the connection has reached, which its next failure names."""
        connection = self._connection(number)
        return "request" if connection is None else connection.stage

    # --- the end of a connection ------------------------------------------------------------------------------------

    def _fail(self, node: NodeConnection, error: Error, now: float, *, closed: bool = False) -> None:
        """Fails the requests of a connection, and begins its backoff."""
        node.failures += 1
        node.backoff_until = now + exponential_backoff(
            node.failures, self.settings.backoff_s, self.settings.backoff_max_s, self._rng
        )
        self._drop(node, error, closed=closed)
        self._on_lost(node, error)

    def _drop(self, node: NodeConnection, error: Error, *, closed: bool = False) -> None:
        if node.number:
            del self._by_number[node.number]
            self._writable.pop(node.number, None)
            still_to_open = [connect for connect in self._connects if connect.number != node.number]
            if len(still_to_open) < len(self._connects):
                self._connects = still_to_open
            elif not closed:
                self._closes.append(node.number)
        node.attempts = error.attempts
        connection, node.connection, node.number, node.connected = node.connection, None, 0, False
        node.setup_until = NEVER
        if connection is not None:
            connection.fail(error)

    def drop(self, node: NodeConnection, error: Error) -> None:
        """Closes the node's connection, if there is one. The next request opens another, without a backoff."""
        self._drop(node, error)
        node.backoff_until, node.failures = float("-inf"), 0

    def drop_all(self, error: Error) -> None:
        """Closes every connection; the next requests open them again."""
        for node in list(self._nodes.values()):
            self._drop(node, error)

    # --- time -------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        due = NEVER
        for node in self._nodes.values():
            connection = node.connection
            if connection is None:
                continue
            if not node.number:
                due = min(due, node.backoff_until)
            due = min(due, node.setup_until, connection.next_deadline())
            if node.connected and not connection.in_flight:
                due = min(due, connection.last_used + self.settings.idle_max_s)
        return due

    def advance(self, now: float) -> None:
        """Opens connections whose backoff is over, and closes connections that are overdue or idle."""
        for node in list(self._nodes.values()):
            connection = node.connection
            if connection is None:
                continue
            if connection.next_deadline() <= now:
                connection.advance(now)
                if connection.has_output and node.connected:
                    self._writable[node.number] = None
            if not node.number:
                if connection.broken is not None:  # by a request that expired in the backoff: no connection has failed
                    self._drop(node, connection.broken)
                elif now >= node.backoff_until:
                    self._connect(node, now)
            elif connection.broken is not None:
                self._fail(node, connection.broken, now)
            elif now >= node.setup_until:
                stage = connection.stage if node.connected else "tcp"
                hint = SILENT_HINT if node.connected else ""
                self._fail(node, connection_lost(node.address, stage, "timed out", hint), now)
            elif now >= connection.last_used + self.settings.idle_max_s and node.connected and not connection.in_flight:
                self._drop(node, connection_lost(node.address, "request", "idle for connections.max.idle.ms"))
