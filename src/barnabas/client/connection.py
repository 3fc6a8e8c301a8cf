"""One blocking socket to one broker: frames, correlation ids, versions negotiated by ApiVersions when it opens.

Requests may be pipelined: `send` several, then `receive` each; a broker answers a connection's requests in order. Every
wait has a deadline. A connection that failed once stays closed: whoever owns it opens another.
"""

import socket
import struct
import time
from collections import deque
from typing import Any, Final, NamedTuple, TypeVar, cast

from barnabas.client.core.addresses import RESPONSE_SIZE_MAX, foreign_protocol
from barnabas.client.core.frames import API_VERSIONS, body_of, choose_version, client_id_field, request_frame
from barnabas.client.deadline import Deadline
from barnabas.client.errors import Attempt, ConnectionLost, OperationTimedOut
from barnabas.client.reasons import describe, hint_for
from barnabas.errors import UnsupportedVersion
from barnabas.protocol.apis import message_classes
from barnabas.protocol.codec import MalformedMessage, decode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.schema import Request, Response

__all__ = ["Connection", "Handshake"]

RECEIVE_CHUNK: Final = 1 << 20

_FRAME: Final = struct.Struct(">i")

R = TypeVar("R", bound=Response)


class Pending(NamedTuple):
    """A request whose answer is on its way."""

    correlation_id: int
    api_key: int
    version: int


class Handshake(NamedTuple):
    """What opening the connection cost and told."""

    dns_ms: float
    tcp_ms: float
    version_ms: float
    ip: str


class Connection:
    """An open connection. `Connection.open` makes one; use as a context manager or `close()` it."""

    __slots__ = (
        "_client_id",
        "_correlation_id",
        "_pending",
        "_socket",
        "address",
        "api_versions",
        "bytes_in",
        "bytes_out",
        "handshake",
        "host",
        "port",
        "versions",
    )

    def __init__(self, sock: socket.socket, host: str, port: int, client_id: str) -> None:
        self._socket: socket.socket | None = sock
        self.host = host
        self.port = port
        self.address = f"{host}:{port}"
        self._client_id = client_id_field(client_id)
        self._correlation_id = 0
        self._pending: deque[Pending] = deque()
        self.versions: dict[int, tuple[int, int]] = {}
        self.api_versions = ApiVersionsResponse()
        self.handshake = Handshake(0, 0, 0, "")
        self.bytes_in = 0
        self.bytes_out = 0

    @classmethod
    def open(cls, host: str, port: int, *, client_id: str = "barnabas", timeout_s: float = 10.0) -> "Connection":
        """Resolve, connect, negotiate versions. Raises ConnectionLost with an attempt for each address tried."""
        deadline = Deadline(timeout_s)
        address = f"{host}:{port}"
        started = time.perf_counter()
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise _lost(Attempt(address, "dns", describe(error), hint_for(error), _since(started))) from None
        resolved = time.perf_counter()
        sock, ip = _connect_first(address, found, deadline)
        connected = time.perf_counter()
        connection = cls(sock, host, port, client_id)
        try:
            connection._negotiate(deadline)
        except BaseException:
            connection.close()
            raise
        connection.handshake = Handshake(
            (resolved - started) * 1e3, (connected - resolved) * 1e3, _since(connected), ip
        )
        return connection

    def _negotiate(self, deadline: Deadline) -> None:
        """ApiVersions at our newest version; a broker that does not know it says 35 and how far it goes (KIP-511)."""
        response = self._ask_versions(4, deadline)
        if response.error_code == UnsupportedVersion.code:
            known = {api.api_key: api.max_version for api in response.api_keys}
            response = self._ask_versions(min(known.get(API_VERSIONS, 0), 4), deadline)
        if response.error_code:
            raise _lost(Attempt(self.address, "version", f"ApiVersions answers error {response.error_code}", ""))
        self.api_versions = response
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _ask_versions(self, version: int, deadline: Deadline) -> ApiVersionsResponse:
        from barnabas import __version__

        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        try:
            self.send(request, version, deadline)
            return cast(ApiVersionsResponse, self.receive(deadline, stage="version")[1])
        except OperationTimedOut as error:
            hint = "connected, but no answer to ApiVersions: not a Kafka broker, or a TLS listener"
            raise _lost(error.attempts[-1]._replace(hint=hint)) from None
        except MalformedMessage as error:
            raise _lost(Attempt(self.address, "version", str(error), "the answer is not Kafka's")) from None

    # --- requests ---------------------------------------------------------------------------------------------------

    def version_of(self, request: type[Request], *, at_most: int | None = None) -> int:
        """The newest version that both sides speak. Raises UnsupportedVersion."""
        return choose_version(self.versions, request, self.address, at_most=at_most)

    def call(self, request: Request, deadline: Deadline, *, version: int | None = None) -> Any:
        """Send one request and wait for its response; the response's class belongs to the request's.

        Raises UnsupportedVersion, ConnectionLost, OperationTimedOut (the connection is closed then: the answer could
        still come).
        """
        assert not self._pending, "call() among pipelined requests would take another request's answer"
        self.send(request, self.version_of(type(request)) if version is None else version, deadline)
        return self.receive(deadline)[1]

    def send(self, request: Request, version: int, deadline: Deadline, *, expect_response: bool = True) -> int:
        """Write one request; its correlation id. `expect_response` is False for Produce with acks=0."""
        self._correlation_id += 1
        correlation_id = self._correlation_id
        out = request_frame(request, version, correlation_id, self._client_id)
        sock = self._open_socket()
        try:
            sock.settimeout(max(deadline.remaining(), 0.001))
            sock.sendall(out)
        except OSError as error:
            raise self._fail(error, "request") from None
        self.bytes_out += len(out)
        if expect_response:
            self._pending.append(Pending(correlation_id, request.API_KEY, version))
        return correlation_id

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def fileno(self) -> int:
        return self._open_socket().fileno()

    def readable(self, timeout_s: float = 0.0) -> bool:
        """Whether an answer (or the end of the connection) has begun to arrive."""
        import select

        return bool(select.select([self._open_socket()], [], [], timeout_s)[0])

    def receive(self, deadline: Deadline, *, stage: str = "request") -> tuple[int, Response]:
        """(correlation id, response) of the oldest request in flight. Raises ConnectionLost, OperationTimedOut."""
        pending = self._pending[0]
        head = self._read(4, deadline, stage)
        (size,) = _FRAME.unpack(head)
        if not 4 <= size <= RESPONSE_SIZE_MAX:
            foreign = foreign_protocol(head + self._peek()) or "the answer is not Kafka's"
            raise self._fail(MalformedMessage(f"a frame claims {size & 0xFFFFFFFF} bytes: {foreign}"), stage, foreign)
        data = self._read(size, deadline, stage)
        self._pending.popleft()
        (correlation_id,) = _FRAME.unpack_from(data, 0)
        if correlation_id != pending.correlation_id:
            problem = f"answer to request {correlation_id}, expected {pending.correlation_id}"
            raise self._fail(MalformedMessage(problem), stage)
        return correlation_id, self._decode(pending, data)

    def _decode(self, pending: Pending, data: bytes) -> Response:
        try:
            version, position = body_of(pending.api_key, pending.version, data, 0)
            message, _ = decode(message_classes(pending.api_key)[1], version, data, position)
        except MalformedMessage as error:
            self.close()
            raise MalformedMessage(f"{self.address}: {error}") from None
        return message

    # --- the socket -------------------------------------------------------------------------------------------------

    def _read(self, size: int, deadline: Deadline, stage: str) -> bytes:
        sock = self._open_socket()
        data = bytearray()
        try:
            while len(data) < size:
                left = deadline.remaining()
                if left <= 0:
                    raise TimeoutError
                sock.settimeout(left)
                chunk = sock.recv(min(size - len(data), RECEIVE_CHUNK))
                if not chunk:
                    raise ConnectionResetError(104, "connection closed by the broker")
                if len(chunk) == size:
                    self.bytes_in += size
                    return chunk
                data += chunk
        except OSError as error:
            raise self._fail(error, stage) from None
        self.bytes_in += size
        return bytes(data)

    def _peek(self) -> bytes:
        try:
            self._open_socket().settimeout(0.2)
            return self._open_socket().recv(64, socket.MSG_PEEK)
        except OSError:
            return b""

    def _fail(self, error: BaseException, stage: str, hint: str = "") -> ConnectionLost | OperationTimedOut:
        self.close()
        attempt = Attempt(self.address, stage, describe(error), hint or hint_for(error))
        if isinstance(error, TimeoutError):
            return OperationTimedOut(f"{attempt} after the deadline", (attempt,))
        return _lost(attempt)

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise _lost(Attempt(self.address, "request", "connection is closed", ""))
        return self._socket

    def close(self) -> None:
        """Close the socket; what is in flight stays unanswered."""
        sock, self._socket = self._socket, None
        self._pending.clear()
        if sock is not None:
            sock.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connect_first(address: str, found: list[Any], deadline: Deadline) -> tuple[socket.socket, str]:
    """Try each resolved address in turn with an even share of what time is left."""
    attempts = []
    for index, (family, kind, protocol, _, target) in enumerate(found):
        started = time.perf_counter()
        where = address if target[0] in address else f"{address} ({target[0]})"
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(max(deadline.remaining() / (len(found) - index), 0.01))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.connect(target)
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):
                raise
            attempts.append(Attempt(where, "tcp", describe(error), hint_for(error), _since(started)))
            continue
        return sock, str(target[0])
    raise ConnectionLost("; ".join(map(str, attempts)), tuple(attempts))


def _lost(attempt: Attempt) -> ConnectionLost:
    return ConnectionLost(f"{attempt}", (attempt,))


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1e3
