"""Listening sockets: accept, count, limit, and close what has been idle for too long."""

import asyncio
import errno
import logging
import socket
from collections import Counter
from dataclasses import dataclass
from typing import Final

from barnabas.errors import UsageError
from barnabas.network.connection import Connection, RequestHandler
from barnabas.protocol.framing import BufferPool

__all__ = ["Acceptor", "ConnectionLimits", "open_listener"]

_ACCEPTS_AT_ONCE: Final = 64
_IDLE_SWEEP_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds on connections, under Kafka's names with underscores."""

    socket_request_max_bytes: int
    max_connections: int
    max_connections_per_ip: int
    connections_max_idle_ms: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int


def open_listener(host: str, port: int, backlog: int) -> socket.socket:
    """A bound, listening, non-blocking socket. Raises UsageError that names a busy port or a foreign address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise UsageError(_why_not_bound(host, port, error)) from None
    sock.setblocking(False)
    return sock


def _why_not_bound(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{host}:{port}: the port is in use by another process; stop it or choose another with --listen"
    if error.errno == errno.EACCES:
        return f"{host}:{port}: ports below 1024 need privileges; choose another with --listen"
    return f"{host}:{port}: cannot listen there ({error.strerror or error}); --listen takes an address of this machine"


class Acceptor:
    """Owns the connections of all listeners."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: RequestHandler,
        limits: ConnectionLimits,
        log: logging.Logger,
    ) -> None:
        self._loop = loop
        self._handler = handler
        self._limits = limits
        self._log = log
        self._pool = BufferPool()
        self._listeners: list[socket.socket] = []
        self._per_ip: Counter[str] = Counter()
        self._sweep: asyncio.TimerHandle | None = None
        self.connections: set[Connection] = set()

    def listen(self, sock: socket.socket, listener_name: str) -> None:
        """Accept from a socket of `open_listener` from now on."""
        self._listeners.append(sock)
        self._loop.add_reader(sock.fileno(), self._on_acceptable, sock, listener_name)
        if self._sweep is None and self._limits.connections_max_idle_ms > 0:
            self._sweep = self._loop.call_later(_IDLE_SWEEP_S, self._close_idle)

    def _on_acceptable(self, listener: socket.socket, listener_name: str) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    self._out_of_descriptors(listener, listener_name, error)
                    return
                continue  # the peer was gone before we came
            self._accepted(sock, str(address[0]), listener_name)

    def _out_of_descriptors(self, listener: socket.socket, listener_name: str, error: OSError) -> None:
        """Level-triggered polling would spin on a backlog that cannot be accepted: look away for a second."""
        self._log.error("cannot accept connections: %s; raise the limit on open files (ulimit -n)", error.strerror)
        self._loop.remove_reader(listener.fileno())
        self._loop.call_later(1.0, self._listen_again, listener, listener_name)

    def _listen_again(self, listener: socket.socket, listener_name: str) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener.fileno(), self._on_acceptable, listener, listener_name)

    def _accepted(self, sock: socket.socket, ip: str, listener_name: str) -> None:
        limits = self._limits
        if len(self.connections) >= limits.max_connections:
            self._log.warning("connection from %s refused: max.connections is %d", ip, limits.max_connections)
            sock.close()
            return
        if self._per_ip[ip] >= limits.max_connections_per_ip:
            self._log.warning(
                "connection from %s refused: max.connections.per.ip is %d", ip, limits.max_connections_per_ip
            )
            sock.close()
            return
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
                on_close=self._closed,
            )
        except OSError:  # reset while it waited in the backlog
            sock.close()
            return
        self.connections.add(connection)
        self._per_ip[ip] += 1

    def _closed(self, connection: Connection, reason: str) -> None:
        self.connections.discard(connection)
        ip = connection.peer_host
        self._per_ip[ip] -= 1
        if self._per_ip[ip] <= 0:
            del self._per_ip[ip]
        self._log.debug("connection from %s:%d closed: %s", ip, connection.peer_port, reason)

    def _close_idle(self) -> None:
        before = self._loop.time() - self._limits.connections_max_idle_ms / 1000
        for connection in list(self.connections):
            if connection.last_active < before and connection.idle:
                connection.close("idle for longer than connections.max.idle.ms")
        self._sweep = self._loop.call_later(_IDLE_SWEEP_S, self._close_idle)

    def stop_accepting(self) -> None:
        """Close the listeners; connections live on."""
        for sock in self._listeners:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._listeners.clear()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def close(self) -> None:
        """Close listeners and connections."""
        self.stop_accepting()
        for connection in list(self.connections):
            connection.close("the broker shuts down")
