"""A non-blocking socket of the synchronous driver: connecting to one address after the other, TLS, reading, writing."""

import contextlib
import errno
import os
import re
import socket
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from barnabas.connection.broker.broker_connection import Buffer
from barnabas.connection.broker.cluster_connections import Connect
from barnabas.connection.drivers.os_errors import describe, hint_for
from barnabas.errors import Attempt

if TYPE_CHECKING:  # clients without TLS need not wait for the import
    import ssl

__all__ = ["Address", "Channel", "attempt_of", "lowat_grows_buffer", "prepare", "resolve"]

Address = tuple[Any, ...]
"""An entry of what socket.getaddrinfo returns."""
BUFFERS_MAX: Final = 256
"""The most buffers that one sendmsg writes; Linux takes 1024."""
TLS_CHUNK: Final = 256 * 1024
WAKE_MIN: Final = 32 * 1024
WAKE_BYTES: Final = 1024 * 1024
"""The bytes of a large frame that wake the poller: waking up for each piece would cost more than the piece."""


def lowat_grows_buffer(system: str, release: str) -> bool:
    """Whether the receive buffer of a socket grows with SO_RCVLOWAT. On a Linux before 5.7 it does not, or not enough
    if packets are small: a mark above its size would not wake the poller before the request is overdue."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return system != "Linux" or (found is not None and (int(found[1]), int(found[2])) >= (5, 7))


def resolve(host: str, port: int, *, numeric: bool = False) -> list[Address]:
    """Returns the addresses of a host. With `numeric` the host must be an IP address, which takes no time. Raises
    OSError."""
    flags = socket.AI_NUMERICHOST if numeric else 0
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))


def attempt_of(address: str, ip: str, stage: str, error: BaseException, started: float) -> Attempt:
    """Returns the attempt that describes a failure."""
    place = address if not ip or ip in address else f"{address} ({ip})"
    elapsed_ms = (time.monotonic() - started) * 1e3
    return Attempt(
        place, stage, describe(error), hint_for(error, stage), elapsed_ms, getattr(error, "errno", None) or 0
    )


def prepare(sock: socket.socket, buffers: tuple[int, int]) -> None:
    """Sets the options of a socket before it connects."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, size in zip((socket.SO_SNDBUF, socket.SO_RCVBUF), buffers, strict=True):
        if size >= 0:
            sock.setsockopt(socket.SOL_SOCKET, option, size)


_LOWAT_GROWS_BUFFER: Final = lowat_grows_buffer(os.uname().sysname, os.uname().release)


class Channel:
    """A socket. Its owner watches `fd`, for writing if `wants_write`, and calls the methods when it is ready."""

    def __init__(self, order: Connect, context: "ssl.SSLContext | None", buffers: tuple[int, int]) -> None:
        """Takes in `buffers` the sizes of the system's buffers for sending and receiving, -1 for its own choice."""
        self.number = order.number
        self._host = order.host
        self._port = order.port
        self._buffers = buffers
        self._context = context
        self._addresses: deque[Address] = deque()
        self._share_s = order.timeout_s
        self._sock: socket.socket | None = None
        self._out: deque[Buffer] = deque()
        self._ip = ""
        self._handshake_writes = False
        self._started = time.monotonic()
        self._wakes_at = 1
        self.fd = -1
        self.stage = "dns"
        """The stage of the connection: `dns`, `tcp`, `tls`, then `open`."""
        self.attempts: list[Attempt] = []
        self.give_up_at = float("inf")
        """The time at which the next address is tried."""

    @property
    def address(self) -> str:
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    # --- connecting -------------------------------------------------------------------------------------------------

    def begin(self, addresses: list[Address]) -> bool:
        """Begins to connect to the first address that can be reached. Returns False if none can."""
        self._addresses = deque(addresses)
        self._share_s /= max(len(addresses), 1)
        return self.next_address()

    def next_address(self) -> bool:
        """Begins to connect to the next address. Returns False if there is no other."""
        self._close_socket()
        while self._addresses:
            family, kind, protocol, _, target = self._addresses.popleft()
            self._started = time.monotonic()
            self._ip = str(target[0])
            self.stage = "tcp"
            try:
                sock = socket.socket(family, kind, protocol)
                self._sock, self.fd = sock, sock.fileno()
                prepare(sock, self._buffers)
                code = sock.connect_ex(target)
                if code not in (0, errno.EINPROGRESS):
                    raise OSError(code, os.strerror(code))
            except OSError as error:
                self.failed(error)
                self._close_socket()
                continue
            self.give_up_at = self._started + self._share_s
            return True
        return False

    def failed(self, error: BaseException, stage: str = "") -> Attempt:
        """Notes and returns a failed attempt for the current address."""
        attempt = attempt_of(self.address, self._ip, stage or self.stage, error, self._started)
        self.attempts.append(attempt)
        return attempt

    def proceed(self) -> bool:
        """Takes the next step of connecting. Returns True once the socket is open. Raises OSError."""
        assert self._sock is not None
        if self.stage == "tcp":
            code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            self.give_up_at = float("inf")
            if self._context is None:
                self.stage = "open"
                return True
            self.stage = "tls"
            self._sock = self._context.wrap_socket(
                self._sock, server_hostname=self._host, do_handshake_on_connect=False
            )
            self.fd = self._sock.fileno()
        import ssl

        assert isinstance(self._sock, ssl.SSLSocket)
        try:
            self._sock.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            self._handshake_writes = isinstance(error, ssl.SSLWantWriteError)
            return False
        self.stage = "open"
        return True

    # --- open -------------------------------------------------------------------------------------------------------

    @property
    def wants_write(self) -> bool:
        """Whether to watch for the socket to take bytes."""
        if self.stage == "open":
            return bool(self._out)
        return self.stage == "tcp" or self._handshake_writes

    def read(self, size: int) -> bytes | None:
        """Returns received bytes, b"" at the end of the stream, None if none are there now. Raises OSError."""
        assert self._sock is not None
        try:
            return self._sock.recv(size)
        except BlockingIOError:
            return None
        except OSError as error:
            if self._context is not None and _wants_more(error):
                return None
            raise

    def read_into(self, buffer: memoryview) -> int | None:
        """Does the same as `read`, but writes the bytes to the front of `buffer`, and returns their number."""
        assert self._sock is not None
        try:
            return self._sock.recv_into(buffer)
        except BlockingIOError:
            return None
        except OSError as error:
            if self._context is not None and _wants_more(error):
                return None
            raise

    def expect(self, size: int) -> None:
        """Sets the number of received bytes that wake the poller, 0 for the first byte. Does nothing if the application
        has chosen the size of the receive buffer, or with TLS, which holds back some of the received bytes."""
        wakes_at = min(size, WAKE_BYTES) if size >= WAKE_MIN else 1
        if wakes_at == self._wakes_at or self._buffers[1] >= 0 or self._context is not None or not _LOWAT_GROWS_BUFFER:
            return
        assert self._sock is not None
        with contextlib.suppress(OSError):  # a system without this option
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wakes_at)
        self._wakes_at = wakes_at

    @property
    def reads_ahead(self) -> bool:
        """Whether to read until nothing is left: TLS takes more from the socket than it returns."""
        return self._context is not None

    def write(self, buffers: Iterable[Buffer] = ()) -> None:
        """Writes as much of the kept bytes and of `buffers` as the socket takes, and keeps the rest. Raises OSError."""
        sock, out = self._sock, self._out
        assert sock is not None
        out += buffers
        try:
            while out:
                if self._context is not None:
                    self._write_tls()
                    continue
                if len(out) == 1:
                    sent = sock.send(out[0])
                else:
                    batch = list(out) if len(out) <= BUFFERS_MAX else [out[i] for i in range(BUFFERS_MAX)]
                    sent = sock.sendmsg(batch)
                while out:  # an empty buffer is written with the buffer before it, or alone
                    size = len(out[0])
                    if size > sent:
                        out[0] = memoryview(out[0])[sent:]
                        break
                    sent -= size
                    out.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            if self._context is None or not _wants_more(error):
                raise

    def _write_tls(self) -> None:
        """Writes one chunk. After a refusal OpenSSL must get the same bytes again, so a chunk stays until it is
        written."""
        assert self._sock is not None
        out = self._out
        if len(out) > 1 and len(out[0]) < TLS_CHUNK:
            parts = []
            size = 0
            while out and size < TLS_CHUNK:
                parts.append(out.popleft())
                size += len(parts[-1])
            out.appendleft(b"".join(parts))
        first = out[0]
        sent = self._sock.send(first)
        if sent == len(first):
            out.popleft()
        else:
            out[0] = memoryview(first)[sent:]

    def _close_socket(self) -> None:
        sock, self._sock = self._sock, None
        self.fd = -1
        self.give_up_at = float("inf")
        if sock is not None:
            sock.close()

    def close(self) -> None:
        self._out.clear()
        self._close_socket()

    def abandon(self) -> None:
        """Closes the descriptor alone: in a forked child the connection still belongs to the parent."""
        sock, self._sock = self._sock, None
        if sock is not None:
            os.close(sock.detach())


def _wants_more(error: OSError) -> bool:
    """Whether the error of TLS only means that it must wait for the socket."""
    import ssl

    return isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError)
