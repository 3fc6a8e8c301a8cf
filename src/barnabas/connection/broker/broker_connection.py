"""One connection's bytes: frames in and out, versions, SASL, pipelining; no socket.

A wire begins with ApiVersions and, where a mechanism is given, SASL; requests wait until both are through. A broker
answers a connection's requests in their order, so the oldest request in flight owns the next frame. Whatever is wrong
with the peer ends in `broken`; its owner closes the connection then and calls `fail`.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

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
    request_frame,
)
from barnabas.connection.broker.frame_buffer import FrameBuffer
from barnabas.connection.timers import NEVER
from barnabas.errors import (
    Attempt,
    BarnabasError,
    ConnectionLost,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from barnabas.protocol.apis import message_classes
from barnabas.protocol.codec import MalformedMessage, decode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.schema import Request

if TYPE_CHECKING:
    from barnabas.connection.broker.sasl import Mechanism

__all__ = ["Answered", "BrokerConnection", "Buffer"]

Buffer = bytes | bytearray | memoryview
Answered = tuple[ClientRequest, Any]

REAUTHENTICATE_AT: Final = 0.85
"""Of the session's lifetime (KIP-368)."""
SASL_STEPS_MAX: Final = 16
JOINED_MAX: Final = 4096
"""Parts of a request of less than so many bytes are put together: copying them costs less than writing them one by
one."""


class _OwnCall(ClientRequest):
    """A request of the connection itself: versions, SASL."""

    __slots__ = ()


class BrokerConnection:
    """See the module. `ready` says whether requests leave at once."""

    def __init__(
        self,
        address: str,
        *,
        client_id: str,
        request_timeout_s: float,
        mechanism: "Callable[[], Mechanism] | None" = None,
    ) -> None:
        self.address = address
        self.versions: Versions = {}
        self.api_versions = ApiVersionsResponse()
        self.ready = False
        self.congested = False
        """The socket does not take what was written last; the driver says so."""
        self.broken: Error | None = None
        self.stage = "version"
        self.last_used = 0.0
        self.bytes_in = 0
        self.bytes_out = 0
        self._client_id = client_id_field(client_id)
        self._request_timeout_s = request_timeout_s
        self._new_mechanism = mechanism
        self._mechanism: Mechanism | None = None
        self._steps = 0
        self._reauthenticate_at = NEVER
        self._muted_until = 0.0
        self._correlation_id = 0
        self._in_flight: deque[ClientRequest] = deque()
        self._waiting: deque[ClientRequest] = deque()
        self._output: list[Buffer] = []
        self._room: FrameBuffer | None = None
        """For the frame that has begun and is not whole."""
        self._rest = b""
        """Less than a frame's size."""
        self._now = 0.0

    # --- requests out -----------------------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """The connection stands: ask for the versions."""
        self._now = now
        self._ask_versions(4)

    def send(self, call: ClientRequest, now: float) -> None:
        """Write it now, or once the connection is ready. `call.done` hears UnsupportedVersion at once."""
        self._now = now
        if not self.ready or self._waiting or now < self._muted_until:
            call.expires = now + (call.timeout_s or self._request_timeout_s)
            self._waiting.append(call)
        else:
            self._write(call)

    def takes(self, now: float) -> bool:
        """Whether a request would be written at once."""
        return self.ready and not self.congested and not self._waiting and now >= self._muted_until

    @property
    def in_flight(self) -> int:
        """Requests that were written or wait to be."""
        return len(self._in_flight) + len(self._waiting)

    @property
    def has_output(self) -> bool:
        return bool(self._output)

    def take_output(self) -> list[Buffer]:
        """The bytes to write, in order; they are the caller's now."""
        output, self._output = self._output, []
        return output

    def _write(self, call: ClientRequest) -> None:
        try:
            call.version = choose_version(self.versions, call.api, self.address, at_most=call.at_most)
            if call.version < call.at_least:
                raise UnsupportedVersion(f"{self.address} is too old for this: it speaks {call.name} v{call.version}")
        except UnsupportedVersion as error:
            call.done(None, error)
            return
        self._put(call)

    def _put(self, call: ClientRequest) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        call.correlation_id = self._correlation_id
        call.sent_at = self.last_used = self._now
        call.expires = self._now + (call.timeout_s or self._request_timeout_s)
        if call.encode is not None:
            self._put_parts(call, call.encode(call.version))
        else:
            assert call.build is not None
            frame = request_frame(call.build(call.version), call.version, call.correlation_id, self._client_id)
            self.bytes_out += len(frame)
            self._output.append(frame)
        if call.one_way:
            call.done(None, None)
        else:
            self._in_flight.append(call)

    def _put_parts(self, call: ClientRequest, parts: list[Buffer]) -> None:
        front = self._client_id + b"\0" if call.version >= call.api.FLEXIBLE_FROM else self._client_id
        size = 8 + len(front) + sum(map(len, parts))
        head = HEADER.pack(size, call.api.API_KEY, call.version, call.correlation_id) + front
        self.bytes_out += size + 4
        if size < JOINED_MAX:
            self._output.append(b"".join((head, *parts)))
        else:
            self._output.append(head)
            self._output += parts

    def _flush_waiting(self) -> None:
        while self._waiting and self.ready and self._now >= self._muted_until:
            self._write(self._waiting.popleft())

    # --- bytes in ---------------------------------------------------------------------------------------------------

    @property
    def room(self) -> memoryview | None:
        """Where the rest of a frame may be received into, to be told by `filled`; None between frames."""
        return None if self._room is None else self._room.left

    def filled(self, count: int, now: float) -> list[Answered]:
        """As `received`, for bytes that were written into `room`."""
        assert self._room is not None
        self._now = now
        self.bytes_in += count
        answered: list[Answered] = []
        self._room.filled(count)
        self._take_room(self._room, answered)
        return answered

    def _take_room(self, room: FrameBuffer, answered: list[Answered]) -> None:
        if not room.left:
            self._room = None
            frame = room.take()
            self._take_frame(frame, 0, len(frame), answered)

    def received(self, data: bytes, now: float) -> list[Answered]:
        """The requests that these bytes answer, with their responses; look at `broken` afterwards."""
        self._now = now
        self.bytes_in += len(data)
        answered: list[Answered] = []
        position = 0
        if self._room is not None:
            position = self._room.put(data)
            self._take_room(self._room, answered)
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
                self._room = FrameBuffer(size)
                position += self._room.put(data[position:])
            else:
                self._take_frame(data, position, position + size, answered)
                position += size
        self._rest = data[position:]
        return answered

    def _take_frame(self, data: bytes, start: int, end: int, answered: list[Answered]) -> None:
        if not self._in_flight:
            self._break("an answer to no request", "the answer is not Kafka's")
            return
        call = self._in_flight.popleft()
        correlation_id = int.from_bytes(data[start : start + 4], "big", signed=True)
        if correlation_id != call.correlation_id:
            self._in_flight.appendleft(call)
            self._break(f"answer to request {correlation_id}, expected {call.correlation_id}")
            return
        if end < len(data):
            data, start = data[start:end], 0  # what stands behind the frame is not the decoder's to read
        try:
            version, position = body_of(call.api.API_KEY, call.version, data, start)
            if call.decode is not None:
                response = call.decode(data, position, version)
            else:
                response = decode(message_classes(call.api.API_KEY)[1], version, data, position)[0]
        except MalformedMessage as error:
            self._in_flight.appendleft(call)
            self._break(str(error), "the answer is not Kafka's")
            return
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._muted_until = max(self._muted_until, self._now + throttle_ms / 1000)
        if type(call) is _OwnCall:
            self._taken_in(response, None)
        else:
            answered.append((call, response))
        if not self.ready and self.stage == "request" and not self._in_flight:
            self._authenticate()

    # --- versions ---------------------------------------------------------------------------------------------------

    def _own(self, request: Request, version: int) -> None:
        """Write one of the connection's own requests, before all others."""
        call = _OwnCall(request, self._taken_in)
        call.version = version
        self._put(call)

    def _taken_in(self, response: Any, error: Error | None) -> None:
        if error is not None:
            return  # the connection ends, and `fail` tells everyone
        if isinstance(response, ApiVersionsResponse):
            self._take_versions(response)
        elif hasattr(response, "mechanisms"):
            self._take_handshake(response)
        else:
            self._take_challenge(response)

    def _ask_versions(self, version: int) -> None:
        from barnabas.version import __version__

        self._own(ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__), version)

    def _take_versions(self, response: ApiVersionsResponse) -> None:
        """A broker that does not know our version says 35 and how far it goes (KIP-511)."""
        if response.error_code == UnsupportedVersion.code and self._correlation_id == 1:
            known = {api.api_key: api.max_version for api in response.api_keys}
            self._ask_versions(min(known.get(API_VERSIONS, 0), 4))
            return
        if response.error_code:
            self._break(f"ApiVersions answers error {response.error_code}")
            return
        self.api_versions = response
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        if self._new_mechanism is None:
            self._become_ready()
        else:
            self._authenticate()

    def _become_ready(self) -> None:
        self.ready = True
        self.stage = "request"
        self._flush_waiting()

    # --- SASL -------------------------------------------------------------------------------------------------------

    def _authenticate(self) -> None:
        from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest

        assert self._new_mechanism is not None
        self.stage = "sasl"
        self._mechanism = self._new_mechanism()
        self._steps = 0
        self._reauthenticate_at = NEVER
        self._own(SaslHandshakeRequest(mechanism=self._mechanism.name), 1)

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
        """The mechanism's next word; without one the exchange is over."""
        from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest

        assert self._mechanism is not None
        self._steps += 1
        try:
            answer = self._mechanism.next(challenge)
        except (BarnabasError, ValueError) as error:
            self._refused(SaslAuthenticationFailed, str(error))
            return
        if answer is None:
            self._become_ready()
            return
        if self._steps > SASL_STEPS_MAX:
            self._break(f"{self._mechanism.name} does not end after {SASL_STEPS_MAX} steps")
            return
        low, high = self.versions.get(SaslAuthenticateRequest.API_KEY, (0, 0))
        self._own(SaslAuthenticateRequest(auth_bytes=answer), max(low, min(high, SaslAuthenticateRequest.LAST_VERSION)))

    def _refused(self, kind: type[KafkaError], text: str, hint: str = "check sasl.username and sasl.password") -> None:
        """Not a matter of trying again."""
        attempt = Attempt(self.address, "sasl", text, hint)
        self.broken = kind(f"{attempt} ({hint})")
        self.broken.attempts = (attempt,)

    # --- time and the end -------------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """When `tick` has something to do."""
        due = self._reauthenticate_at
        for calls in (self._in_flight, self._waiting):
            for call in calls:
                if call.expires < due:
                    due = call.expires
        return self._muted_until if self._now < self._muted_until < due else due

    def tick(self, now: float) -> None:
        """Breaks the connection when an answer is overdue: it may still come, and would be taken for another's."""
        self._now = now
        overdue = next((call for call in (*self._in_flight, *self._waiting) if call.expires <= now), None)
        if overdue is not None:
            hint = "connected, but no answer: not a Kafka broker, or a TLS listener" if self.stage == "version" else ""
            attempt = Attempt(self.address, self.stage, f"no answer to {overdue.name} in time", hint)
            self.broken = ConnectionLost(str(attempt), (attempt,))
            return
        if now >= self._reauthenticate_at and self.ready:
            self.ready = False
            self._reauthenticate_at = NEVER
            if not self._in_flight:
                self._authenticate()
        self._flush_waiting()

    def _break(self, problem: str, hint: str = "") -> None:
        attempt = Attempt(self.address, self.stage, problem, hint)
        self.broken = ConnectionLost(str(attempt), (attempt,))

    def fail(self, error: Error) -> None:
        """The connection is gone: every request hears it, the oldest first."""
        self.broken = self.broken or error
        self.ready = False
        calls = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        self._output.clear()
        self._room, self._rest = None, b""
        for call in calls:
            call.done(None, error)
