"""One request on its way: how to build it for the version that a broker speaks, and who hears of its end."""

from collections.abc import Callable
from typing import Any

from barnabas.errors import ClientError, KafkaError
from barnabas.protocol.schema import Request

__all__ = ["Build", "ClientRequest", "Done", "Error"]

Error = KafkaError | ClientError
"""Why no response came: connection, deadline, version. What a response itself says is the caller's to read."""
Done = Callable[[Any, Error | None], None]
"""Called once with the response or an error."""
Build = Callable[[int], Request]
"""The request for a version."""


class ClientRequest:
    """See the module. `decode(data, position, version)` replaces the codec for hot responses; `encode(version)` gives
    the body's parts for hot requests (`build` is not asked then). With `one_way` no response is expected: `done` is
    called with None when the request is handed to the connection."""

    __slots__ = (
        "api",
        "at_least",
        "at_most",
        "build",
        "correlation_id",
        "decode",
        "done",
        "encode",
        "expires",
        "one_way",
        "sent_at",
        "timeout_s",
        "version",
    )

    def __init__(
        self,
        request: "Request | type[Request]",
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
        """`request` as it is, or its class and `build` or `encode`. `at_most` bounds the version; to
        brokers that do not know version `at_least` it is not sent. `timeout_s` replaces
        request.timeout.ms, for requests that a broker may hold back."""
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
        self.sent_at = 0.0
        self.expires = 0.0

    @property
    def name(self) -> str:
        return self.api.__name__.removesuffix("Request")
