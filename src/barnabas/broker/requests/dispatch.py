"""From a frame to a handler and back: header, version check, decoding, encoding, ordered late replies.

Budget: under 5 µs around a hot handler. Produce and Fetch have doors of their own (`handle_frame`), because they read
and write their bodies by hand; every other API goes through the codec.

A response that takes long to encode is encoded a slice at a time (`sliced_responses`).
"""

import asyncio
import struct
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.handlers import HANDLER_MODULES
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import complete_frame, response_head
from barnabas.errors import BarnabasError
from barnabas.network.connection import Connection, Parts, PendingReply
from barnabas.protocol.apis import SERVED, ApiKey, is_flexible, message_classes
from barnabas.protocol.codec import MalformedMessage, decode, encode_into
from barnabas.protocol.primitives import skip_tags
from barnabas.protocol.schema import Response

if TYPE_CHECKING:
    from barnabas.broker.server import Broker

__all__ = ["Dispatcher", "UnsupportedRequest", "frame_of"]

_HEADER: Final = struct.Struct(">hhih")
_IN_PIECES: Final = frozenset(
    (
        *(ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_FETCH),
        *(ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS),
        *(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS),
    )
)
"""Many coordinated things in one request: a connection has one such request in work, and its results held, at once."""

FrameHandler = Callable[["Broker", memoryview, int, RequestContext], "Parts | PendingReply"]
Interceptor = Callable[["Dispatcher", RequestContext, memoryview, int], "Parts | PendingReply"]


class UnsupportedRequest(BarnabasError):
    """An API or version that is not served: there is no answer the client could read, so the connection ends."""


class HandlerFailed(BarnabasError):
    """A handler raised what it must not raise. It is logged; the connection ends."""


def frame_of(context: RequestContext, response: Response) -> bytearray:
    """A whole response frame."""
    out = response_head(context)
    encode_into(out, response, context.api_version)
    return complete_frame(out)


class Dispatcher:
    """The broker's request handler: one instance serves all connections."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._handlers: dict[int, Callable[..., Any]] = {}
        self._frame_handlers: dict[int, FrameHandler] = {}
        self._flexible: dict[tuple[int, int], bool] = {}
        """By API key and version, of those that are served: whether the request header has tagged fields."""
        self.loop = broker.loop
        self.intercept: Interceptor | None = None
        """Set by the test kit: sees every request first, and may answer, delay or cut it."""

    def __call__(self, connection: Connection, frame: memoryview) -> Parts | PendingReply:
        """Handle one frame. Raises BarnabasError where the connection must end."""
        context, position = self._read_header(connection, frame)
        try:
            if self.intercept is not None:
                return self.intercept(self, context, frame, position)
            return self.handle(context, frame, position)
        except BarnabasError:
            raise
        except Exception as error:
            # The client must not wait for an answer that will never come.
            self._broker.failures.report(f"{ApiKey(context.api_key).name} v{context.api_version}", error)
            raise HandlerFailed(f"{type(error).__name__}: {error}") from error

    def handle(self, context: RequestContext, frame: memoryview, position: int) -> Parts | PendingReply:
        """Handle the request whose body starts at `position`."""
        api_key = context.api_key
        frame_handler = self._frame_handlers.get(api_key)
        if frame_handler is not None:
            return frame_handler(self._broker, frame, position, context)
        handler = self._handlers.get(api_key)
        if handler is None:
            if self._load(api_key):
                return self.handle(context, frame, position)
            handler = self._handlers[api_key]
        request_class = message_classes(api_key)[0]
        request, _ = decode(request_class, context.api_version, frame[position:])
        return self._reply(context, handler(self._broker, request, context))

    def _load(self, api_key: int) -> bool:
        """Import the API's handler at its first use; True if it reads its frames itself."""
        module = import_module(HANDLER_MODULES[ApiKey(api_key).name.lower()])
        if hasattr(module, "handle_frame"):
            self._frame_handlers[api_key] = module.handle_frame
            return True
        self._handlers[api_key] = module.handle
        return False

    def _read_header(self, connection: Connection, frame: memoryview) -> tuple[RequestContext, int]:
        try:
            api_key, version, correlation_id, client_id_size = _HEADER.unpack_from(frame)
        except struct.error:
            raise MalformedMessage(f"a frame of {len(frame)} bytes has no room for a request header") from None
        position = 10
        client_id = None
        if client_id_size >= 0:
            position += client_id_size
            if position > len(frame):
                raise MalformedMessage("the client id runs past the end of the frame")
            client_id = bytes(frame[10:position])
        context = RequestContext(api_key, version, correlation_id, client_id, connection)
        flexible = self._flexible.get((api_key, version))
        if flexible is None:
            flexible = self._check_served(api_key, version)
            if flexible is None:
                return context, len(frame)
            self._flexible[api_key, version] = flexible
        if flexible:
            try:
                position = skip_tags(frame, position)
            except IndexError:
                raise MalformedMessage("the header's tagged fields run past the end of the frame") from None
        return context, position

    def _check_served(self, api_key: int, version: int) -> bool | None:
        """Whether the header has tagged fields; None for ApiVersions in a version that is not served.

        A client that speaks a newer version than we learns ours from the v0 answer to it (KIP-511).
        """
        served = SERVED.get(api_key)
        if served is None:
            raise UnsupportedRequest(f"API key {api_key} is not served")
        if served.first <= version <= served.last:
            return is_flexible(api_key, version)
        if api_key == ApiKey.API_VERSIONS:
            return None
        raise UnsupportedRequest(f"{ApiKey(api_key).name} v{version} is not served, v{served.first}-v{served.last} are")

    def _reply(self, context: RequestContext, answer: Any) -> Parts | PendingReply:
        if isinstance(answer, Response):
            return self._broker.sliced_responses.encode(context, answer)
        if isinstance(answer, asyncio.Future):
            pending = context.pending_reply()
            in_pieces = context.api_key in _IN_PIECES
            if in_pieces:
                context.connection.mute()

            def done(future: "asyncio.Future[Response]") -> None:
                self._late_reply(context, pending, future)
                if in_pieces:
                    context.connection.unmute()

            answer.add_done_callback(done)
            return pending
        return answer  # type: ignore[no-any-return]

    def _late_reply(self, context: RequestContext, pending: PendingReply, future: "asyncio.Future[Response]") -> None:
        if context.connection.closed or future.cancelled():
            return
        error = future.exception()
        if error is None:
            try:
                answer = self._broker.sliced_responses.encode(context, future.result())
            except Exception as encoding_error:
                error = encoding_error
        if error is not None:
            self._broker.failures.report(f"{ApiKey(context.api_key).name} v{context.api_version}", error)
            context.connection.close(f"{type(error).__name__}: {error}")
        elif not isinstance(answer, PendingReply):
            pending.resolve(answer)
