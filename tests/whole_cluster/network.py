"""The simulated network: sockets and event loops that use them. Each link between two hosts has a delay, and may be cut
in either direction. Nothing is lost on a link that is cut: it arrives when the cut has ended, as with TCP."""

import asyncio
import errno
import os
import socket
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from whole_cluster.world import Host, World, _Loop

__all__ = ["HostLoop", "Network", "SimulatedSocket"]

DELAY_S: Final = 0.0001
CONNECT_AGAIN_S: Final = 1.0
SPLIT: Final = 0.02
"""The share of sends that arrive in two pieces."""
END: Final = b""
"""Sent after the last byte."""
RESET: Final = b"reset"
"""By identity: the connection has been reset."""


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.sockets: dict[int, SimulatedSocket] = {}
        self.listeners: dict[int, SimulatedSocket] = {}
        self._next_fd = 1_000_000
        self._next_port = 40_000
        self._cut: dict[tuple[str, str], list[Callable[[], None]]] = {}
        """What is held on the links that are cut."""
        self.delays: dict[tuple[str, str], float] = {}
        """The additional mean delays of slow links."""

    def number(self, sock: "SimulatedSocket") -> int:
        self._next_fd += 1
        self.sockets[self._next_fd] = sock
        return self._next_fd

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def cut(self, source: str, target: str) -> None:
        self._cut.setdefault((source, target), [])

    def mend(self) -> None:
        """Ends all cuts and slow links."""
        self.delays.clear()
        held, self._cut = self._cut, {}
        for events in held.values():
            for event in events:
                event()

    def mend_link(self, source: str, target: str) -> None:
        self.delays.pop((source, target), None)
        for event in self._cut.pop((source, target), ()):
            event()

    def delay(self, source: str, target: str) -> float:
        mean = DELAY_S + self.delays.get((source, target), 0.0)
        return mean * (0.5 + self.world.random.random())

    def carry(self, sock: "SimulatedSocket", data: bytes) -> None:
        """Brings data from a socket to its peer, behind what was sent before."""
        peer = sock.peer
        assert peer is not None
        held = self._cut.get((sock.host.name, peer.host.name))
        if held is not None:
            held.append(partial(self.carry, sock, data))
            return
        sock.arrives_at = when = max(sock.arrives_at, self.world.now + self.delay(sock.host.name, peer.host.name))
        self.world.at(when, partial(self._arrive, sock, peer, data))

    def _arrive(self, sock: "SimulatedSocket", peer: "SimulatedSocket", data: bytes) -> None:
        kind = "reset" if data is RESET else f"{len(data)} {zlib.crc32(data):08x}"
        self.world.note(f"{sock.fd}>{peer.fd} {sock.host.name}>{peer.host.name} {kind}")
        if peer.closed:
            if data and data is not RESET:
                peer.peer = sock
                self.carry(peer, RESET)
            return
        if data is RESET:
            peer.error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        elif data:
            peer.inbox.append(data)
        else:
            peer.ended = True
        peer.host.loop.poke(peer)

    def connect(self, sock: "SimulatedSocket", port: int, future: "asyncio.Future[None]") -> None:
        listener = self.listeners.get(port)
        target = sock.host.name if listener is None else listener.host.name
        self.world.after(self.delay(sock.host.name, target), partial(self._connect, sock, port, target, future))

    def _connect(self, sock: "SimulatedSocket", port: int, target: str, future: "asyncio.Future[None]") -> None:
        source = sock.host.name
        if future.done() or sock.closed or not sock.host.alive:
            return
        if (source, target) in self._cut or (target, source) in self._cut:
            self.world.after(CONNECT_AGAIN_S, partial(self._connect, sock, port, target, future))
            return
        listener = self.listeners.get(port)
        if listener is None or not listener.host.alive:
            error = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
            sock.host.call(_fail, future, error)
            return
        sock.local = sock.local or ("127.0.0.1", self.free_port())
        accepted = SimulatedSocket(self, listener.host)
        accepted.peer, sock.peer = sock, accepted
        accepted.local, accepted.remote = listener.local, sock.local
        sock.remote = listener.local
        self.world.note(f"{sock.fd}>{accepted.fd} {source}>{target} connected")
        listener.backlog.append(accepted)
        listener.host.loop.poke(listener)
        sock.host.call(_succeed, future)


def _fail(future: "asyncio.Future[None]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _succeed(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class SimulatedSocket:
    """A TCP socket, as far as brokers and clients use one."""

    def __init__(self, network: Network, host: Host) -> None:
        self.network = network
        self.host = host
        self.fd = network.number(self)
        self.local: tuple[str, int] | None = None
        self.remote: tuple[str, int] | None = None
        self.peer: SimulatedSocket | None = None
        self.backlog: deque[SimulatedSocket] = deque()
        self.inbox: deque[bytes | memoryview] = deque()
        self.ended = False
        self.error: OSError | None = None
        self.closed = False
        self.arrives_at = 0.0
        self.reader: Callable[[], object] | None = None
        self.writer: Callable[[], object] | None = None
        self.is_poked = False

    def fileno(self) -> int:
        return self.fd

    def setblocking(self, flag: bool) -> None: ...

    def setsockopt(self, *_: object) -> None: ...

    def bind(self, address: tuple[str, int]) -> None:
        host, port = address
        self.local = (host, port or self.network.free_port())
        if self.local[1] in self.network.listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")

    def listen(self, backlog: int) -> None:
        assert self.local is not None
        self.network.listeners[self.local[1]] = self

    def accept(self) -> "tuple[SimulatedSocket, tuple[str, int]]":
        if not self.backlog:
            raise BlockingIOError
        sock = self.backlog.popleft()
        assert sock.remote is not None
        return sock, sock.remote

    def getsockname(self) -> tuple[str, int]:
        return self.local or ("127.0.0.1", 0)

    def getpeername(self) -> tuple[str, int]:
        if self.remote is None:
            raise OSError(errno.ENOTCONN, "not connected")
        return self.remote

    @property
    def is_readable(self) -> bool:
        return bool(self.inbox or self.backlog or self.ended or self.error)

    def recv_into(self, buffer: Any) -> int:
        if self.error is not None:
            raise self.error
        if not self.inbox:
            if self.ended:
                return 0
            raise BlockingIOError
        data = memoryview(self.inbox.popleft())
        count = min(len(data), len(buffer))
        memoryview(buffer)[:count] = data[:count]
        if count < len(data):
            self.inbox.appendleft(data[count:])
        return count

    def send(self, data: Any, flags: int = 0) -> int:
        if self.closed:
            raise OSError(errno.EBADF, "closed")
        if self.error is not None:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        data = bytes(data)
        if data and self.host.alive:
            cut = len(data)
            if self.host.world.random.random() < SPLIT:
                cut = self.host.world.random.randint(1, cut)
            self.network.carry(self, data[:cut])
            if cut < len(data):
                self.network.carry(self, data[cut:])
        return len(data)

    def sendmsg(self, buffers: Sequence[Any], ancillary: object = (), flags: int = 0) -> int:
        return self.send(b"".join(buffers))

    def close(self) -> None:
        self._close(END)

    def abort(self) -> None:
        self._close(RESET)

    def _close(self, last: bytes) -> None:
        if self.closed:
            return
        self.closed = True
        self.reader = self.writer = None
        if self.local is not None and self.network.listeners.get(self.local[1]) is self:
            del self.network.listeners[self.local[1]]
        for waiting in self.backlog:
            waiting.abort()
        if self.peer is not None and self.error is None:
            self.network.carry(self, last)


class HostLoop(_Loop):
    """An event loop with simulated sockets."""

    def __init__(self, host: Host, network: Network) -> None:
        super().__init__(host)
        self._network = network

    def add_reader(self, fd: int, callback: Any, *args: Any) -> None:
        sock = self._network.sockets[fd]
        sock.reader = partial(callback, *args)
        self.poke(sock)

    def remove_reader(self, fd: int) -> bool:
        sock = self._network.sockets[fd]
        had, sock.reader = sock.reader is not None, None
        return had

    def add_writer(self, fd: int, callback: Any, *args: Any) -> None:
        sock = self._network.sockets[fd]
        sock.writer = partial(callback, *args)
        self.call_soon(self._writable, sock)

    def remove_writer(self, fd: int) -> bool:
        sock = self._network.sockets[fd]
        had, sock.writer = sock.writer is not None, None
        return had

    def _writable(self, sock: SimulatedSocket) -> None:
        if sock.writer is not None:
            sock.writer()
            if sock.writer is not None:
                self.call_soon(self._writable, sock)

    def poke(self, sock: SimulatedSocket) -> None:
        """Calls the reader of a socket that is readable."""
        if sock.reader is not None and not sock.is_poked and sock.is_readable and self.host.alive:
            sock.is_poked = True
            self.call_soon(self._readable, sock)

    def _readable(self, sock: SimulatedSocket) -> None:
        sock.is_poked = False
        if sock.reader is not None and sock.is_readable:
            sock.reader()
            self.poke(sock)

    async def sock_connect(self, sock: Any, address: Any) -> None:
        future: asyncio.Future[None] = self.create_future()
        self._network.connect(sock, address[1], future)
        await future

    async def create_connection(self, protocol_factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:  # type: ignore[override]
        protocol = protocol_factory()
        return _Transport(self, sock, protocol), protocol


class _Transport(asyncio.Transport):
    """A connection of a client, or of a broker to another one."""

    def __init__(self, loop: HostLoop, sock: SimulatedSocket, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._loop = loop
        self._sock = sock
        self._protocol = protocol
        self._is_lost = False
        protocol.connection_made(self)
        if not self._is_lost:
            loop.add_reader(sock.fd, self._read)

    def _read(self) -> None:
        buffer = self._protocol.get_buffer(-1)
        try:
            count = self._sock.recv_into(buffer)
        except OSError as error:
            self._lose(error)
            return
        if count:
            self._protocol.buffer_updated(count)
        else:
            self._protocol.eof_received()
            self._lose(None)

    def write(self, data: Any) -> None:
        if self._is_lost:
            return
        try:
            self._sock.send(data)
        except OSError as error:
            self._lose(error)

    def is_closing(self) -> bool:
        return self._is_lost

    def abort(self) -> None:
        self._lose(None, reset=True)

    def close(self) -> None:
        self._lose(None)

    def _lose(self, error: Exception | None, *, reset: bool = False) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        if reset:
            self._sock.abort()
        else:
            self._sock.close()
        self._loop.call_soon(self._protocol.connection_lost, error)


class SimulatedSockets:
    """In place of the module `socket`, where a program opens sockets."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)

    def socket(self, *_: object) -> SimulatedSocket:
        host = self._network.world.host
        assert host is not None
        return SimulatedSocket(self._network, host)


class FileSending:
    """In place of the module `os`, where a program sends files."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def sendfile(self, out_fd: int, in_fd: int, offset: int, count: int) -> int:
        return self._network.sockets[out_fd].send(os.pread(in_fd, count, offset))
