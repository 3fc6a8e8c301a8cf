"""Connections and their life: to open, handshaking, ready, idle, lost, in backoff. What to do is said, not done.

A peer is an address together with a role: long polls and what must not wait behind them have connections of their own.
Its wire exists as soon as somebody wants to send to it; a lost connection fails what was in flight, and the next
request opens another one once the backoff is over.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.connection.broker.broker_connection import Answered, BrokerConnection, Buffer
from barnabas.connection.broker.client_request import Error
from barnabas.connection.timers import NEVER
from barnabas.errors import Attempt, ConnectionLost

if TYPE_CHECKING:
    from barnabas.connection.broker.sasl import Mechanism

__all__ = ["BOOTSTRAP", "ClusterConnections", "Connect", "ConnectionSettings", "NodeConnection"]

BOOTSTRAP: Final = -1
"""The node ids of bootstrap addresses go down from here."""


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
    """-1 leaves the system's choice."""
    mechanism: "Callable[[], Mechanism] | None" = None


class Connect(NamedTuple):
    """An order to the driver: open this connection and say `connected` or `lost` with its number."""

    number: int
    host: str
    port: int
    timeout_s: float
    """Until then the network client gives up; several addresses of a name share it."""


class NodeConnection:
    """An address that requests go to, in one role."""

    __slots__ = (
        "attempts",
        "backoff_until",
        "connected",
        "failures",
        "host",
        "node_id",
        "number",
        "port",
        "role",
        "setup_until",
        "wire",
    )

    def __init__(self, node_id: int, role: int, host: str, port: int) -> None:
        self.node_id = node_id
        self.role = role
        self.host = host
        self.port = port
        self.number = 0
        """Of the connection that is open or opening; 0 for none."""
        self.wire: BrokerConnection | None = None
        self.connected = False
        self.setup_until = NEVER
        self.backoff_until = float("-inf")
        self.failures = 0
        """Without a success between them."""
        self.attempts: tuple[Attempt, ...] = ()
        """Of the last failure."""

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def ready(self) -> bool:
        return self.wire is not None and self.wire.ready

    @property
    def in_flight(self) -> int:
        """Requests without an answer."""
        return 0 if self.wire is None else self.wire.in_flight


class ClusterConnections:
    """All peers. `on_ready` hears when requests begin to flow, `on_lost` when a connection ended."""

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        on_ready: Callable[[NodeConnection], None],
        on_lost: Callable[[NodeConnection, Error], None],
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._on_ready = on_ready
        self._on_lost = on_lost
        self._rng = rng
        self._peers: dict[tuple[int, int], NodeConnection] = {}
        self._by_number: dict[int, NodeConnection] = {}
        self._last_number = 0
        self._connects: list[Connect] = []
        self._closes: list[int] = []
        self._writable: dict[int, None] = {}

    def __iter__(self) -> Iterator[NodeConnection]:
        return iter(self._peers.values())

    @property
    def await_answers(self) -> bool:
        """Whether a socket may have something to tell: a request is under way on it, it opens, or it was full."""
        for peer in self._by_number.values():
            wire = peer.wire
            if not peer.connected or (wire is not None and (wire.in_flight or wire.congested)):
                return True
        return False

    def under_way(self) -> list[Attempt]:
        """Returns an attempt for each connection that is being made and has no outcome yet."""
        return [
            Attempt(peer.address, peer.wire.stage if peer.connected else "tcp", "no answer yet", "")
            for peer in self._by_number.values()
            if peer.wire is not None and not peer.wire.ready
        ]

    def get(self, node_id: int, role: int) -> NodeConnection | None:
        return self._peers.get((node_id, role))

    def peer(self, node_id: int, role: int, host: str, port: int) -> NodeConnection:
        """The peer, at this address from now on: if it had another one, its connection ends."""
        peer = self._peers.get((node_id, role))
        if peer is None:
            peer = self._peers[node_id, role] = NodeConnection(node_id, role, host, port)
        elif (peer.host, peer.port) != (host, port):
            attempt = Attempt(peer.address, "request", f"broker {node_id} moved to {host}:{port}", "")
            peer.host, peer.port = host, port
            self._drop(peer, ConnectionLost(str(attempt), (attempt,)))
            peer.backoff_until, peer.failures = float("-inf"), 0
        return peer

    # --- requests ---------------------------------------------------------------------------------------------------

    def wire(self, peer: NodeConnection, now: float) -> BrokerConnection:
        """Where to send: opens the connection, now or when the backoff is over."""
        wire = peer.wire
        if wire is None:
            wire = peer.wire = BrokerConnection(
                peer.address,
                client_id=self._settings.client_id,
                request_timeout_s=self._settings.request_timeout_s,
                mechanism=self._settings.mechanism,
            )
            wire.last_used = now
            if now >= peer.backoff_until:
                self._connect(peer, now)
        if peer.connected:
            self._writable[peer.number] = None
        return wire

    def _connect(self, peer: NodeConnection, now: float) -> None:
        self._last_number += 1
        peer.number = self._last_number
        settings = self._settings
        allowed_s = min(settings.setup_timeout_s * 2.0 ** min(peer.failures, 20), settings.setup_timeout_max_s)
        peer.setup_until = now + allowed_s
        self._by_number[peer.number] = peer
        self._connects.append(Connect(peer.number, peer.host, peer.port, allowed_s))

    # --- what the driver does ---------------------------------------------------------------------------------------

    def take_connects(self) -> list[Connect]:
        connects, self._connects = self._connects, []
        return connects

    def take_closes(self) -> list[int]:
        closes, self._closes = self._closes, []
        return closes

    def take_output(self) -> list[tuple[int, list[Buffer]]]:
        """(connection, bytes to write) of all that have some."""
        if not self._writable:
            return []
        numbers, self._writable = self._writable, {}
        output = []
        for number in numbers:
            peer = self._by_number.get(number)
            if peer is not None and peer.wire is not None and peer.wire.has_output:
                output.append((number, peer.wire.take_output()))
        return output

    # --- what the driver tells --------------------------------------------------------------------------------------

    def connected(self, number: int, now: float) -> None:
        peer = self._by_number.get(number)
        if peer is None or peer.wire is None:
            return  # it was given up meanwhile, and the order to close it is out
        peer.connected = True
        peer.wire.start(now)
        self._writable[number] = None

    def congested(self, number: int, congested: bool) -> None:
        peer = self._by_number.get(number)
        if peer is not None and peer.wire is not None:
            peer.wire.congested = congested

    def room(self, number: int) -> memoryview | None:
        peer = self._by_number.get(number)
        return None if peer is None or peer.wire is None else peer.wire.room

    def received(self, number: int, data: bytes, now: float) -> list[Answered]:
        peer = self._by_number.get(number)
        if peer is None or peer.wire is None:
            return []
        was_ready = peer.wire.ready
        return self._took_in(peer, peer.wire, peer.wire.received(data, now), was_ready, now)

    def filled(self, number: int, count: int, now: float) -> list[Answered]:
        peer = self._by_number.get(number)
        if peer is None or peer.wire is None:
            return []
        was_ready = peer.wire.ready
        return self._took_in(peer, peer.wire, peer.wire.filled(count, now), was_ready, now)

    def _took_in(
        self, peer: NodeConnection, wire: BrokerConnection, answered: list[Answered], was_ready: bool, now: float
    ) -> list[Answered]:
        if wire.broken is not None:
            # what came whole before the mistake counts
            for call, response in answered:
                call.done(response, None)
            self.lost(peer, wire.broken, now)
            return []
        if wire.has_output:
            self._writable[peer.number] = None
        if wire.ready and not was_ready:
            peer.failures = 0
            peer.setup_until = NEVER
            self._on_ready(peer)
        return answered

    def lost_connection(self, number: int, attempts: tuple[Attempt, ...], now: float) -> None:
        peer = self._by_number.get(number)
        if peer is not None:
            self.lost(peer, ConnectionLost("; ".join(map(str, attempts)), attempts), now, closed=True)

    def stage(self, number: int) -> str:
        """How far the connection is: the stage of its next failure."""
        peer = self._by_number.get(number)
        return "request" if peer is None or peer.wire is None else peer.wire.stage

    # --- the end of a connection ------------------------------------------------------------------------------------

    def lost(self, peer: NodeConnection, error: Error, now: float, *, closed: bool = False) -> None:
        """The connection failed: backoff, and everyone who waits for it hears."""
        pause = min(self._settings.backoff_s * 2.0 ** min(peer.failures, 20), self._settings.backoff_max_s)
        peer.failures += 1
        peer.backoff_until = now + pause * self._rng.uniform(0.8, 1.2)
        self._drop(peer, error, closed=closed)
        self._on_lost(peer, error)

    def _drop(self, peer: NodeConnection, error: Error, *, closed: bool = False) -> None:
        if peer.number:
            del self._by_number[peer.number]
            self._writable.pop(peer.number, None)
            still_to_open = [order for order in self._connects if order.number != peer.number]
            if len(still_to_open) < len(self._connects):
                self._connects = still_to_open
            elif not closed:
                self._closes.append(peer.number)
        peer.attempts = error.attempts
        wire, peer.wire, peer.number, peer.connected = peer.wire, None, 0, False
        peer.setup_until = NEVER
        if wire is not None:
            wire.fail(error)

    def drop_all(self, error: Error) -> None:
        """Close every connection; the peers may be used again."""
        for peer in list(self._peers.values()):
            self._drop(peer, error)

    def forget(self, node_ids: Iterable[int], error: Error) -> None:
        """These nodes are gone."""
        gone = set(node_ids)
        for key in [key for key in self._peers if key[0] in gone]:
            self._drop(self._peers.pop(key), error)

    # --- time -------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        due = NEVER
        for peer in self._peers.values():
            wire = peer.wire
            if wire is None:
                continue
            if not peer.number:
                due = min(due, peer.backoff_until)
            due = min(due, peer.setup_until, wire.next_deadline())
            if peer.connected and not wire.in_flight:
                due = min(due, wire.last_used + self._settings.idle_max_s)
        return due

    def tick(self, now: float) -> None:
        for peer in list(self._peers.values()):
            wire = peer.wire
            if wire is None:
                continue
            if not peer.number and now >= peer.backoff_until:
                self._connect(peer, now)
            if wire.next_deadline() <= now:
                wire.tick(now)
                if wire.has_output and peer.connected:
                    self._writable[peer.number] = None
            if wire.broken is not None:
                self.lost(peer, wire.broken, now)
            elif now >= peer.setup_until:
                stage = wire.stage if peer.connected else "tcp"
                hint = "connected, but no answer: not a Kafka broker, or a TLS listener" if peer.connected else ""
                attempt = Attempt(peer.address, stage, "timed out", hint)
                self.lost(peer, ConnectionLost(str(attempt), (attempt,)), now)
            elif now >= wire.last_used + self._settings.idle_max_s and peer.connected and not wire.in_flight:
                attempt = Attempt(peer.address, "request", "idle for connections.max.idle.ms", "")
                self._drop(peer, ConnectionLost(str(attempt), (attempt,)))
