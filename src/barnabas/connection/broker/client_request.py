"""A request on its way to a broker: its version, its frame, and the frame of the response."""

import struct
from collections.abc import Callable
from typing import Any, Final

from barnabas.errors import Attempt, ClientError, ConnectionLost, KafkaError, UnsupportedVersion
from barnabas.protocol.apis import response_header_version
from barnabas.protocol.codec import MalformedMessage, encode_into
from barnabas.protocol.primitives import read_uvarint
from barnabas.protocol.schema import Request

__all__ = [
    "API_VERSIONS",
    "HEADER",
    "PRODUCE",
    "Build",
    "ClientRequest",
    "Done",
    "Error",
    "Versions",
    "body_of",
    "choose_version",
    "client_id_field",
    "connection_lost",
    "request_frame",
]

API_VERSIONS: Final = 18
PRODUCE: Final = 0

Versions = dict[int, tuple[int, int]]
"""The first and the last version that a broker serves, by API key."""

HEADER: Final = struct.Struct(">ihhi")
"""The size of the rest of the frame, the API key, the version, the correlation id."""
_SIZE: Final = struct.Struct(">i")

Error = KafkaError | ClientError
"""The reason why there is no response: connection, deadline, version. Callers read the errors in a response."""
Done = Callable[[Any, Error | None], None]
"""Called once with the response or an error."""
Build = Callable[[int], Request]
"""Returns the request for a version."""


def connection_lost(address: str, stage: str, problem: str, hint: str = "") -> ConnectionLost:
    """Returns the error of one failed attempt."""
    attempt = Attempt(address, stage, problem, hint)
    return ConnectionLost(str(attempt), (attempt,))


class ClientRequest:
    """A request and its callback. For frequent requests `encode(version)` returns the parts of the body in the place of
    `build`, and `decode(data, position, version)` reads the response in the place of the codec. With `one_way` no
    response is expected: `done` is called with None when the request is written."""

    def __init__(
        self,
        request: Request | type[Request],
        done: Done,
        *,
        build: Build | None = None,
        encode: Callable[[int], list[bytes | bytearray | memoryview]] | None = None,
        decode: Callable[[bytes, int, int], Any] | None = None,
        at_most: int | None = None,
        at_least: int = 0,
        timeout_s: float | None = None,
        one_way: bool = False,
    ) -> None:
        """Takes a request, or its class with `build` or `encode`. The version is at most `at_most`; a broker that does
        not know version `at_least` does not get the request. `timeout_s` replaces request.timeout.ms, for requests that
        a broker may hold."""
        if isinstance(request, type):
            self.api = request
            assert build is not None or encode is not None, f"{request.__name__} needs build or encode"
        else:
            self.api = type(request)
            fixed = request
            build = build or (lambda version: fixed)
        self.build = build
        self.encode = encode
        self.decode = decode
        self.done = done
        self.at_most = at_most
        self.at_least = at_least
        self.timeout_s = timeout_s
        self.one_way = one_way
        self.version = -1
        self.correlation_id = 0
        self.expires = 0.0

    @property
    def name(self) -> str:
        return _name(self.api)


# --- frames -----------------------------------------------------------------------------------------------------------


def client_id_field(client_id: str) -> bytes:
    """Returns the client id as it is written in the header of every request."""
    data = client_id.encode()
    return len(data).to_bytes(2, "big") + data


def request_frame(request: Request, version: int, correlation_id: int, client_id: bytes) -> bytearray:
    """Returns the whole frame. `client_id` is the result of `client_id_field`."""
    out = bytearray(HEADER.pack(0, request.API_KEY, version, correlation_id))
    out += client_id
    if version >= request.FLEXIBLE_FROM:
        out.append(0)
    encode_into(out, request, version)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return out


def body_of(api_key: int, version: int, data: bytes, position: int) -> tuple[int, int]:
    """Returns the version and the position of the body of a response, which starts at `position` with its correlation
    id. Raises MalformedMessage. The version is 0 for the ApiVersions error 35, which has no other."""
    position += 4
    if api_key == API_VERSIONS and data[position : position + 2] == b"\x00\x23":
        return 0, position
    if response_header_version(api_key, version):
        if data[position : position + 1] == b"\0":  # no tags, as always
            return version, position + 1
        try:
            count, position = read_uvarint(data, position)
            for _ in range(count):
                _, position = read_uvarint(data, position)
                size, position = read_uvarint(data, position)
                position += size
        except IndexError:
            raise MalformedMessage("a response's header is cut off") from None
    return version, position


def choose_version(versions: Versions, request: type[Request], address: str, *, at_most: int | None = None) -> int:
    """Returns the newest version that both sides speak. Raises UnsupportedVersion."""
    low, high = versions.get(request.API_KEY, (-1, -1))
    if high < 0:
        raise UnsupportedVersion(f"broker {address} does not serve {_name(request)}")
    version = min(high, request.LAST_VERSION, high if at_most is None else at_most)
    if version < low or version < request.FIRST_VERSION:
        if request.API_KEY == PRODUCE:
            low = max(low, request.FIRST_VERSION)
        raise UnsupportedVersion(
            f"broker {address} serves {_name(request)} v{low} to v{high}, this client v{request.FIRST_VERSION} to "
            f"v{request.LAST_VERSION if at_most is None else at_most}"
        )
    return version


def _name(request: type[Request]) -> str:
    return request.__name__.removesuffix("Request")
