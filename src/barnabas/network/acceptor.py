"""Accepts, counts and limits connections, and closes those that have been idle for too long."""

import asyncio
import errno
import logging
import math
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.errors import UsageError
from barnabas.network.connection import PENDING_MAX, Connection, InThread, QueuedRequests, RequestHandler, plain_address
from barnabas.network.queued_responses import QUEUED_RESPONSES_BYTES_MAX, QueuedResponses
from barnabas.network.time_slicing import TimeSlicer
from barnabas.protocol.framing import BufferPool

__all__ = ["SHUTDOWN", "Acceptor", "ConnectionLimits", "open_listener"]

_ACCEPTS_AT_ONCE: Final = 64
_IDLE_SWEEP_S: Final = 10.0
_RETRY_S: Final = 1.0
_WARNING_INTERVAL_S: Final = 10.0
SHUTDOWN: Final = "the broker shuts down"
"""The reason for the end of all connections."""
INT_MAX: Final = 2**31 - 1
"""Kafka's value for "no limit"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The bounds on connections, named like Kafka's settings."""

    socket_request_max_bytes: int = 100 * 1024**2
    max_connections: int = INT_MAX
    max_connections_per_ip: int = INT_MAX
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """By IP address."""
    max_connections_of_listeners: Mapping[str, int] = field(default_factory=dict)
    """By the names of listeners."""
    max_connection_creation_rate: int = INT_MAX
    connections_max_idle_ms: int = 600_000
    socket_send_buffer_bytes: int = -1
    socket_receive_buffer_bytes: int = -1
    queued_max_requests: int = PENDING_MAX
    queued_max_request_bytes: int = -1
    queued_max_response_bytes: int = QUEUED_RESPONSES_BYTES_MAX


def open_listener(host: str, port: int, backlog: int) -> socket.socket:
    """Returns a bound, listening, non-blocking socket. Raises UsageError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise UsageError(_bind_error(host, port, error)) from None
    sock.setblocking(False)
    return sock


def _bind_error(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{host}:{port}: the port is in use by another process; stop it or choose another with --listen"
    if error.errno == errno.EACCES:
        return f"{host}:{port}: ports below 1024 need privileges; choose another with --listen"
    return f"{host}:{port}: cannot listen there ({error.strerror or error}); --listen takes an address of this machine"


class Acceptor:
    """Owns the connections of all listeners.

    If there is no room for another connection (too many, too fast, no file descriptors) the listeners are not polled
    for a while: new connections wait in the kernel's backlog, and level-triggered polling does not spin.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: RequestHandler,
        limits: ConnectionLimits,
        log: logging.Logger,
        *,
        descriptors_max: Callable[[], int] | None = None,
        in_thread: InThread | None = None,
        time_slicer: TimeSlicer | None = None,
        on_accepted: Callable[[], None] | None = None,
        on_closed: Callable[[Connection, str], None] | None = None,
    ) -> None:
        """`descriptors_max` returns the number of connections for which the process has file descriptors now.
        `time_slicer`: the queue of long work, if others on this loop use it as well. `on_accepted` is called when there
        is another connection, `on_closed` with each that has ended, and the reason."""
        self._loop = loop
        self._handler = handler
        self._limits = limits
        self._descriptors_max = descriptors_max
        self._log = log
        self._in_thread = in_thread
        self._on_accepted_one = on_accepted
        self._on_closed = on_closed
        self._time_slicer = time_slicer or TimeSlicer(loop)
        self.queued_responses = QueuedResponses(loop, limits.queued_max_response_bytes, log)
        self._pool = BufferPool()
        self.queued_requests = (
            QueuedRequests(limits.queued_max_request_bytes) if limits.queued_max_request_bytes > 0 else None
        )
        self._listeners: dict[socket.socket, str] = {}
        self._per_ip: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._full: set[str] = set()
        """The listeners that are not polled because they have as many connections as they may have."""
        self._sweep: asyncio.TimerHandle | None = None
        self._muted: asyncio.TimerHandle | None = None
        self._tokens = float(limits.max_connection_creation_rate)
        """The number of connections that may be made now: grows by the rate, up to that of one second."""
        self._tokens_at = loop.time()
        self._warned_at: dict[str, float] = {}
        self.connections: dict[Connection, None] = {}
        """The oldest first."""

    def listen(self, sock: socket.socket, listener_name: str) -> None:
        """Accepts connections from a socket of `open_listener`."""
        self._listeners[sock] = listener_name
        self._loop.add_reader(sock.fileno(), self._on_acceptable, sock, listener_name)
        if self._sweep is None and self._limits.connections_max_idle_ms > 0:
            self._plan_sweep()

    def _plan_sweep(self) -> None:
        idle_s = self._limits.connections_max_idle_ms / 1000
        self._sweep = self._loop.call_later(min(_IDLE_SWEEP_S, max(0.05, idle_s / 4)), self._close_idle)

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Sets the limits of connections that are made from now on."""
        self._limits = limits
        self._tokens = min(self._tokens, limits.max_connection_creation_rate)
        self._unmute()

    # --- accepting --------------------------------------------------------------------------------------------------

    def _on_acceptable(self, listener: socket.socket, listener_name: str) -> None:
        for turn in range(_ACCEPTS_AT_ONCE):
            waits = turn == 0  # if anybody waits after the first ones, the loop calls again at once
            if not self._has_room_at(listener_name, waits) or not self._has_room(waits):
                return
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    self._warn(
                        "cannot accept connections: %s; raise the limit on open files (ulimit -n)", error.strerror
                    )
                    self._mute(_RETRY_S)
                    return
                continue  # the client has disconnected already
            self._tokens -= 1
            self._on_accepted(sock, plain_address(str(address[0])), listener_name)

    def _has_room_at(self, listener_name: str, waits: bool) -> bool:
        """Returns whether this listener may have one more connection. If not, and one `waits`, the listener is not
        polled before another has ended."""
        most = self._limits.max_connections_of_listeners.get(listener_name, INT_MAX)
        if self._per_listener[listener_name] < most:
            return True
        if not waits:
            return False
        self._warn("listener.name.%s.max.connections is %d: further connections wait", listener_name.lower(), most)
        self._full.add(listener_name)
        for sock, name in self._listeners.items():
            if name == listener_name:
                self._loop.remove_reader(sock.fileno())
        return False

    def _has_room(self, waits: bool) -> bool:
        """Returns whether one more connection may be made. If not, and one `waits`, the listeners are muted for a
        while."""
        obstacle = self._obstacle()
        if obstacle is not None and waits:
            warning, value, seconds = obstacle
            self._warn(warning, value)
            self._mute(seconds)
        return obstacle is None

    def _obstacle(self) -> tuple[str, int, float] | None:
        """Returns the limit that is reached: a warning, its value, and the seconds after which to try again."""
        limits = self._limits
        if len(self.connections) >= limits.max_connections:
            return "max.connections is %d: further connections wait", limits.max_connections, _RETRY_S
        if self._descriptors_max is not None and len(self.connections) >= self._descriptors_max():
            warning = (
                "the limit on open files is exhausted: %d connections are open, and the rest is kept for the logs; "
                "further connections wait; raise the limit (ulimit -n, LimitNOFILE= of systemd)"
            )
            return warning, len(self.connections), _RETRY_S
        rate = limits.max_connection_creation_rate
        if rate == INT_MAX:
            return None
        now = self._loop.time()
        self._tokens = min(max(rate, 1), self._tokens + (now - self._tokens_at) * rate)
        self._tokens_at = now
        if self._tokens >= 1:
            return None
        seconds = min(_RETRY_S, (1 - self._tokens) / rate) if rate else _RETRY_S
        return "max.connection.creation.rate is %d a second: further connections wait", rate, seconds

    def _mute(self, seconds: float) -> None:
        if self._muted is None:
            for sock in self._listeners:
                self._loop.remove_reader(sock.fileno())
            self._muted = self._loop.call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        elif not self._full:
            return
        self._full.clear()
        for sock, listener_name in self._listeners.items():
            self._loop.add_reader(sock.fileno(), self._on_acceptable, sock, listener_name)

    def _warn(self, message: str, *values: object) -> None:
        """Logs each message at most every ten seconds: a client that connects in a loop must not fill the log."""
        now = self._loop.time()
        if now - self._warned_at.get(message, -math.inf) >= _WARNING_INTERVAL_S:
            self._warned_at[message] = now
            self._log.warning(message, *values)

    def _on_accepted(self, sock: socket.socket, ip: str, listener_name: str) -> None:
        limits = self._limits
        per_ip = limits.max_connections_per_ip_overrides.get(ip, limits.max_connections_per_ip)
        if self._per_ip[ip] >= per_ip:
            self._warn("connection from %s refused: max.connections.per.ip is %d", ip, per_ip)
            sock.close()
            return
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if limits.socket_send_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.socket_send_buffer_bytes)
            if limits.socket_receive_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.socket_receive_buffer_bytes)
            connection = Connection(
                self._loop,
                sock,
                listener_name=listener_name,
                pool=self._pool,
                request_size_max=limits.socket_request_max_bytes,
                handler=self._handler,
                on_close=self._on_close,
                time_slicer=self._time_slicer,
                queued_responses=self.queued_responses,
                pending_max=limits.queued_max_requests,
                queued_requests=self.queued_requests,
                in_thread=self._in_thread,
            )
        except OSError:  # reset while it waited in the backlog
            sock.close()
            return
        self.connections[connection] = None
        self._per_ip[ip] += 1
        self._per_listener[listener_name] += 1
        if self._on_accepted_one is not None:
            self._on_accepted_one()
        connection.read()  # the first request usually comes right after the connection

    def _on_close(self, connection: Connection, reason: str) -> None:
        self.connections.pop(connection, None)
        ip = connection.peer_host
        self._per_ip[ip] -= 1
        if self._per_ip[ip] <= 0:
            del self._per_ip[ip]
        self._per_listener[connection.listener_name] -= 1
        self._log.debug("connection from %s:%d closed: %s", ip, connection.peer_port, reason)
        if self._on_closed is not None:
            self._on_closed(connection, reason)
        if self._muted is not None or connection.listener_name in self._full:
            self._unmute()

    def _close_idle(self) -> None:
        before = self._loop.time() - self._limits.connections_max_idle_ms / 1000
        for connection in list(self.connections):
            if connection.last_active < before and connection.idle:
                connection.close("idle for longer than connections.max.idle.ms")
        self._plan_sweep()

    def stop_accepting(self) -> None:
        """Closes the listeners and keeps the connections."""
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        for sock in self._listeners:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._listeners.clear()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def close(self) -> None:
        self.stop_accepting()
        for connection in list(self.connections):
            connection.close(SHUTDOWN)
