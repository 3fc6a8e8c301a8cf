"""The protocol of one connection to a broker: frames in and out, versions, SASL, pipelining; no socket.

A connection begins with ApiVersions and, if a mechanism is given, SASL; brokers introduce themselves to each other
afterwards. Requests wait until all that has ended. A broker
answers a connection's requests in their order, so the next frame answers the oldest request in flight. An error of the
other side sets `broken`; the owner then closes the connection and calls `fail`.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.connection.broker.addresses import RESPONSE_SIZE_MAX, foreign_protocol
from barnabas.connection.broker.client_request import (
    API_VERSIONS,
    HEADER,
    ClientRequest,
    Error,
    Versions,
    body_of,
    choose_version,
    client_id_field,
    connection_lost,
    request_frame,
)
from barnabas.connection.broker.frame_buffer import FrameBuffer
from barnabas.connection.timers import NEVER
from barnabas.errors import (
    Attempt,
    BarnabasError,
    KafkaError,
    RebootstrapRequired,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
    WrongBroker,
)
from barnabas.late_imports import import_late
from barnabas.protocol.apis import message_classes
from barnabas.protocol.codec import MalformedMessage, decode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.schema import Request
from barnabas.version import __version__

if TYPE_CHECKING:
    from barnabas.connection.broker.sasl import Mechanism

__all__ = ["SILENT_HINT", "BrokerConnection", "Buffer", "Completed", "Introduction"]

SILENT_HINT: Final = "connected, but no answer: not a Kafka broker, or a TLS listener, or it hangs"
"""The remedy where a connection was made and the first request is not answered."""

Buffer = bytes | bytearray | memoryview
Completed = tuple[ClientRequest, Any]

REAUTHENTICATE_AT: Final = 0.85
"""The part of a session's lifetime after which the client authenticates again (KIP-368)."""
API_VERSIONS_LAST: Final = ApiVersionsRequest.LAST_VERSION
"""The version that tells the broker which one is meant; others are asked in version 4, which Kafka 2.4 to 4.3 know."""
SASL_STEPS_MAX: Final = 16
JOINED_MAX: Final = 4096
"""The size below which the parts of a request are joined: copying them costs less than writing each."""


class Introduction(Protocol):
    """One exchange between authentication and the first request, by which two brokers find out whether they fit."""

    def request(self) -> Request:
        """Returns the request, which is sent in the newest version that both sides know."""

    def check(self, response: Any) -> str:
        """Returns why the connection must not be used; an empty string if it may be."""


class _HandshakeRequest(ClientRequest):
    """A request of the connection itself: versions, SASL."""


class BrokerConnection:
    """The state of one connection. `ready` says whether its handshake has ended."""

    def __init__(
        self,
        address: str,
        *,
        client_id: str,
        request_timeout_s: float,
        mechanism: "Callable[[], Mechanism] | None" = None,
        introduction: Introduction | None = None,
        expected: tuple[str, int] | None = None,
    ) -> None:
        """`expected` are the ids of the cluster and the node that the broker must have."""
        self.address = address
        self.versions: Versions = {}
        self.api_versions = ApiVersionsResponse()
        self.ready = False
        self.congested = False
        """Whether the socket is full; the driver sets this."""
        self.broken: Error | None = None
        self.stage = "version"
        self.last_used = 0.0
        self._client_id = client_id_field(client_id)
        self._request_timeout_s = request_timeout_s
        self._new_mechanism = mechanism
        self._mechanism: Mechanism | None = None
        self._expected = expected
        self._introduction = introduction
        """None without one, or when it is over."""
        self._steps = 0
        self._reauthenticate_at = NEVER
        self._muted_until = 0.0
        self._correlation_id = 0
        self._in_flight: deque[ClientRequest] = deque()
        self._unsent: deque[ClientRequest] = deque()
        self._output: list[Buffer] = []
        self._frame: FrameBuffer | None = None
        """The frame that is only partly received."""
        self._rest = b""
        """The first bytes of a frame whose size field is not complete."""
        self._now = 0.0

    # --- requests out -----------------------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Begins the handshake."""
        self._now = now
        self._request_versions(4 if self._expected is None else API_VERSIONS_LAST)

    def send(self, request: ClientRequest, now: float) -> None:
        """Writes the request now, or once the connection is ready."""
        self._now = now
        if not self.ready or self._unsent or now < self._muted_until:
            request.expires = now + (request.timeout_s or self._request_timeout_s)
            self._unsent.append(request)
        else:
            self._write(request)

    def takes(self, now: float) -> bool:
        """Whether a request would be written at once."""
        return self.ready and not self.congested and not self._unsent and now >= self._muted_until

    @property
    def in_flight(self) -> int:
        """The number of requests without a response, written or not."""
        return len(self._in_flight) + len(self._unsent)

    @property
    def has_output(self) -> bool:
        return bool(self._output)

    def take_output(self) -> list[Buffer]:
        """Returns the bytes to write, in order, and forgets them."""
        output, self._output = self._output, []
        return output

    def _write(self, request: ClientRequest) -> None:
        api = request.api
        if request.version < 0:
            try:
                request.version = choose_version(self.versions, api, self.address, at_most=request.at_most)
                if request.version < request.at_least:
                    problem = f"{self.address} is too old for this: it speaks {request.name} v{request.version}"
                    raise UnsupportedVersion(problem)
            except UnsupportedVersion as error:
                request.done(None, error)
                return
        version = request.version
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        request.correlation_id = self._correlation_id
        self.last_used = self._now
        request.expires = self._now + (request.timeout_s or self._request_timeout_s)
        if request.encode is not None:
            parts = request.encode(version)
            front = self._client_id + b"\0" if version >= api.FLEXIBLE_FROM else self._client_id
            size = 8 + len(front) + sum(map(len, parts))
            head = HEADER.pack(size, api.API_KEY, version, request.correlation_id) + front
            if size < JOINED_MAX:
                self._output.append(b"".join((head, *parts)))
            else:
                self._output.append(head)
                self._output += parts
        else:
            assert request.build is not None
            frame = request_frame(request.build(version), version, request.correlation_id, self._client_id)
            self._output.append(frame)
        if request.one_way:
            request.done(None, None)
        else:
            self._in_flight.append(request)

    def _flush_unsent(self) -> None:
        while self._unsent and self.ready and self._now >= self._muted_until:
            self._write(self._unsent.popleft())

    # --- bytes in ---------------------------------------------------------------------------------------------------

    @property
    def receive_buffer(self) -> memoryview | None:
        """The buffer for the rest of a frame that is partly received; None between frames."""
        return None if self._frame is None else self._frame.left

    def buffer_filled(self, count: int, now: float) -> list[Completed]:
        """Does the same as `received` for bytes that were written into `receive_buffer`."""
        assert self._frame is not None
        self._now = now
        completed: list[Completed] = []
        self._frame.filled(count)
        self._complete_frame(self._frame, completed)
        return completed

    def received(self, data: bytes, now: float) -> list[Completed]:
        """Returns the requests that these bytes answer, with their responses. The caller checks `broken` afterwards."""
        self._now = now
        completed: list[Completed] = []
        position = 0
        if self._frame is not None:
            position = self._frame.put(data)
            self._complete_frame(self._frame, completed)
        elif self._rest:
            data, self._rest = self._rest + data, b""
        end = len(data)
        while end - position >= 4 and self.broken is None:
            size = int.from_bytes(data[position : position + 4], "big", signed=True)
            position += 4
            if not 4 <= size <= RESPONSE_SIZE_MAX:
                foreign = foreign_protocol(data[position - 4 :]) or "the answer is not Kafka's"
                self._break(f"a frame claims {size & 0xFFFFFFFF} bytes: {foreign}", foreign)
            elif end - position < size:
                self._frame = FrameBuffer(size)
                position += self._frame.put(data[position:])
            else:
                self._read_frame(data, position, position + size, completed)
                position += size
        self._rest = data[position:]
        return completed

    def _complete_frame(self, frame: FrameBuffer, completed: list[Completed]) -> None:
        if not frame.left:
            self._frame = None
            data = frame.take()
            self._read_frame(data, 0, len(data), completed)

    def _read_frame(self, data: bytes, start: int, end: int, completed: list[Completed]) -> None:
        if not self._in_flight:
            self._break("an answer to no request", "the answer is not Kafka's")
            return
        request = self._in_flight[0]
        correlation_id = int.from_bytes(data[start : start + 4], "big", signed=True)
        if correlation_id != request.correlation_id:
            self._break(f"answer to request {correlation_id}, expected {request.correlation_id}")
            return
        if end < len(data):
            data, start = data[start:end], 0  # the decoder must not read beyond the frame
        try:
            version, position = body_of(request.api.API_KEY, request.version, data, start)
            if request.decode is not None:
                response = request.decode(data, position, version)
            else:
                response = decode(message_classes(request.api.API_KEY)[1], version, data, position)[0]
        except MalformedMessage as error:
            self._break(str(error), "the answer is not Kafka's")
            return
        self._in_flight.popleft()
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._muted_until = max(self._muted_until, self._now + throttle_ms / 1000)
        if type(request) is _HandshakeRequest:
            request.done(response, None)
        else:
            completed.append((request, response))
        if not self.ready and self.stage == "request" and not self._in_flight:
            self._authenticate()

    # --- versions ---------------------------------------------------------------------------------------------------

    def _send_own(self, request: Request, version: int, take: Callable[[Any], None]) -> None:
        """Writes a request of the handshake before all others, and calls `take` with the response."""

        def done(response: Any, error: Error | None) -> None:
            if error is None:  # otherwise the connection ends
                take(response)

        own = _HandshakeRequest(request, done)
        own.version = version
        self._write(own)

    def _request_versions(self, version: int) -> None:
        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        if version >= 5 and self._expected is not None:
            request.cluster_id, request.node_id = self._expected
        self._send_own(request, version, self._take_versions)

    def _take_versions(self, response: ApiVersionsResponse) -> None:
        """Takes over the broker's versions. A broker that does not know the request's version answers error 35 with the
        newest version that it knows (KIP-511); the request is sent again in that version."""
        if response.error_code == UnsupportedVersion.code and self._correlation_id == 1:
            known = {api.api_key: api.max_version for api in response.api_keys}
            self._request_versions(min(known.get(API_VERSIONS, 0), 4))
            return
        if response.error_code == RebootstrapRequired.code:
            cluster_id, node_id = self._expected or ("", -1)
            attempt = Attempt(
                self.address,
                self.stage,
                f"this is not broker {node_id} of cluster {cluster_id}",
                "the address leads to another broker, which DNS or a load balancer chose",
            )
            self.broken = WrongBroker(str(attempt), (attempt,))
            return
        if response.error_code:
            self._break(f"ApiVersions answers error {response.error_code}")
            return
        self.api_versions = response
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        if self._new_mechanism is None:
            self._introduce()
        else:
            self._authenticate()

    def _introduce(self) -> None:
        """Begins the introduction. Without one, or if it is over, the connection is ready."""
        introduction = self._introduction
        if introduction is None:
            self._become_ready()
            return
        self.stage = "introduction"
        request = introduction.request()
        try:
            version = choose_version(self.versions, type(request), self.address)
        except UnsupportedVersion as error:
            self._break(str(error), "it runs another release")
            return
        self._send_own(request, version, self._take_introduction)

    def _take_introduction(self, response: Any) -> None:
        assert self._introduction is not None
        problem = self._introduction.check(response)
        if problem:
            self._break(problem)
            return
        self._introduction = None
        self._become_ready()

    def _become_ready(self) -> None:
        self.ready = True
        self.stage = "request"
        self._flush_unsent()

    # --- SASL -------------------------------------------------------------------------------------------------------

    def _authenticate(self) -> None:
        assert self._new_mechanism is not None
        self.stage = "sasl"
        self._mechanism = self._new_mechanism()
        self._steps = 0
        self._reauthenticate_at = NEVER
        made = import_late("barnabas.protocol.messages.sasl_handshake").SaslHandshakeRequest
        self._send_own(made(mechanism=self._mechanism.name), 1, self._take_handshake)

    def _take_handshake(self, response: Any) -> None:
        assert self._mechanism is not None
        if response.error_code:
            offered = ", ".join(response.mechanisms) or "none"
            text = f"the broker does not take {self._mechanism.name}; it offers: {offered}"
            self._refused(UnsupportedSaslMechanism, text, "set sasl.mechanism to one that it offers")
            return
        self._step(None)

    def _take_challenge(self, response: Any) -> None:
        if response.error_code:
            self._refused(SaslAuthenticationFailed, response.error_message or "the broker refuses the credentials")
            return
        self._step(response.auth_bytes)
        if response.session_lifetime_ms > 0:
            self._reauthenticate_at = self._now + response.session_lifetime_ms / 1000 * REAUTHENTICATE_AT

    def _step(self, challenge: bytes | None) -> None:
        """Sends the mechanism's next message. If there is none, the exchange is over."""
        assert self._mechanism is not None
        self._steps += 1
        try:
            answer = self._mechanism.next(challenge)
        except (BarnabasError, ValueError) as error:
            self._refused(SaslAuthenticationFailed, str(error))
            return
        if answer is None:
            self._introduce()
            return
        if self._steps > SASL_STEPS_MAX:
            self._break(f"{self._mechanism.name} does not end after {SASL_STEPS_MAX} steps")
            return
        made = import_late("barnabas.protocol.messages.sasl_authenticate").SaslAuthenticateRequest
        low, high = self.versions.get(made.API_KEY, (0, 0))
        version = max(low, min(high, made.LAST_VERSION))
        self._send_own(made(auth_bytes=answer), version, self._take_challenge)

    def _refused(self, kind: type[KafkaError], text: str, hint: str = "check sasl.username and sasl.password") -> None:
        """Breaks the connection with an error that is not retriable."""
        attempt = Attempt(self.address, "sasl", text, hint)
        self.broken = kind(f"{attempt} ({hint})")
        self.broken.attempts = (attempt,)

    # --- time and the end -------------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """Returns when `advance` has something to do."""
        due = self._reauthenticate_at
        for requests in (self._in_flight, self._unsent):
            for request in requests:
                if request.expires < due:
                    due = request.expires
        return self._muted_until if self._now < self._muted_until < due else due

    def advance(self, now: float) -> None:
        """Breaks the connection when a response is overdue: a late response would be taken for the next request's."""
        self._now = now
        overdue = next((request for request in (*self._in_flight, *self._unsent) if request.expires <= now), None)
        if overdue is not None:
            hint = SILENT_HINT if self.stage == "version" else ""
            self._break(f"no answer to {overdue.name} in time", hint)
            return
        if now >= self._reauthenticate_at and self.ready:
            self.ready = False
            self._reauthenticate_at = NEVER
            if not self._in_flight:
                self._authenticate()
        self._flush_unsent()

    def _break(self, problem: str, hint: str = "") -> None:
        self.broken = connection_lost(self.address, self.stage, problem, hint)

    def fail(self, error: Error) -> None:
        """Fails every request, the oldest first, because the connection is closed."""
        self.broken = self.broken or error
        self.ready = False
        requests = [*self._in_flight, *self._unsent]
        self._in_flight.clear()
        self._unsent.clear()
        self._output.clear()
        self._frame, self._rest = None, b""
        for request in requests:
            request.done(None, error)
