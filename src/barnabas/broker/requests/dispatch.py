"""Passes each frame to the handler of its API: header, version check, decoding, encoding, late responses in order.

Budget: under 5 µs around a hot handler. Produce, Fetch and Metadata have a function `handle_frame`, because they read
or write their bodies without the codec; every other API goes through it.

A response that takes long to encode is encoded a slice at a time (`sliced_responses`).
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from barnabas.broker.handlers import HANDLER_MODULES
from barnabas.broker.requests.late_responses import respond_later, run_handler
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import complete_frame, response_head
from barnabas.broker.services import BrokerServices
from barnabas.errors import BarnabasError, KafkaError, NotController
from barnabas.late_imports import import_late
from barnabas.network.connection import Connection, Parts, PendingReply, RequestConnection
from barnabas.out_of_memory import NoRoom
from barnabas.protocol.apis import FORWARDABLE, SERVED, ApiKey, VersionRange, is_flexible, message_classes
from barnabas.protocol.codec import MalformedMessage, decode, encode_into
from barnabas.protocol.primitives import skip_tags
from barnabas.protocol.schema import Response

__all__ = ["Dispatcher", "UnsupportedRequest", "frame_of"]

_HEADER: Final = struct.Struct(">hhih")
_MANY_IN_ONE: Final = frozenset(
    (
        *(ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_FETCH),
        *(ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS),
        *(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS),
    )
)
"""APIs that name many groups or transactions in one request. A connection has one such request in progress at a time,
so that the memory of the results stays bounded."""

FrameHandler = Callable[[BrokerServices, memoryview, int, RequestContext], "Parts | PendingReply"]
Interceptor = Callable[["Dispatcher", RequestContext, memoryview, int], "Parts | PendingReply"]


class UnsupportedRequest(BarnabasError):
    """The API or its version is not served. The client could not read any response, so the connection is closed."""


class HandlerFailed(BarnabasError):
    """A handler raised an unexpected exception, which is logged. The connection is closed."""


class OutOfReach:
    """The broker, whose controller is out of reach: every call of it raises the error of the forwarded request.

    A client that was told NOT_CONTROLLER would take it that nothing was done, and look for another controller.
    """

    def __init__(self, broker: BrokerServices, error: KafkaError) -> None:
        self._broker = broker
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    @property
    def controller(self) -> "OutOfReach":
        return self

    async def call(self, action: object, *, until_known: bool = True) -> Any:
        raise self._error


def frame_of(context: RequestContext, response: Response) -> bytearray:
    out = response_head(context)
    encode_into(out, response, context.api_version)
    return complete_frame(out)


class Dispatcher:
    """The broker's request handler: one instance serves all connections."""

    context_class: type[RequestContext] = RequestContext

    def __init__(
        self,
        broker: BrokerServices,
        served: Mapping[int, VersionRange] = SERVED,
        modules: Mapping[str, str] = HANDLER_MODULES,
    ) -> None:
        """`served` are the APIs that are served, and `modules` the modules of the handlers by the APIs' names."""
        self._broker = broker
        self._served = served
        self._modules = modules
        self._handlers: dict[int, Callable[..., Any]] = {}
        self._frame_handlers: dict[int, FrameHandler] = {}
        self._flexible: dict[tuple[int, int], bool] = {}
        """Whether the request header has tagged fields, by API key and version of the served APIs."""
        self.loop = broker.loop
        self.intercept: Interceptor | None = None
        """Set by the test kit: called with every request first, may respond, delay the request or close the
        connection."""

    def __call__(self, connection: Connection, frame: memoryview) -> Parts | PendingReply:
        """Handles one frame. Raises BarnabasError if the connection must be closed."""
        context, position = self.read_header(connection, frame)
        try:
            if self.intercept is not None:
                return self.intercept(self, context, frame, position)
            return self.handle(context, frame, position)
        except BarnabasError:
            raise
        except Exception as error:
            # The client must not wait for a response that never comes.
            self._broker.failures.report(f"{ApiKey(context.api_key).name} v{context.api_version}", error)
            raise HandlerFailed(f"{type(error).__name__}: {error}") from error

    def handle(self, context: RequestContext, frame: memoryview, position: int) -> Parts | PendingReply:
        """Handles the request whose body starts at `position`."""
        api_key = context.api_key
        frame_handler = self._frame_handlers.get(api_key)
        if frame_handler is not None:
            return frame_handler(self._broker, frame, position, context)
        if api_key in FORWARDABLE and not context.is_broker:
            cluster = self._broker.cluster
            if cluster is not None and not cluster.is_controller:
                frame = memoryview(bytes(frame))  # the buffer is used again when this returns
                work = self._forwarded(context, frame, position, cluster.forward(frame, context))
                reply = run_handler(self.loop, work)
                if isinstance(reply, asyncio.Future):
                    return respond_later(self._broker, context, reply, lambda parts: parts, alone=True)
                return reply
        return self._handle_here(context, frame, position)

    async def _forwarded(
        self, context: RequestContext, frame: memoryview, position: int, response: Awaitable[Parts]
    ) -> Parts | PendingReply:
        """Returns the response of the controller. Without one the handler of this broker answers: it has become the
        controller, or gives the client the error in the form of the API."""
        try:
            return await response
        except NotController:
            return self._handle_here(context, frame, position)
        except KafkaError as error:
            return self._handle_here(context, frame, position, OutOfReach(self._broker, error))

    def _handle_here(
        self, context: RequestContext, frame: memoryview, position: int, broker: Any = None
    ) -> Parts | PendingReply:
        api_key = context.api_key
        handler = self._handlers.get(api_key)
        if handler is None:
            if self._load(api_key):
                return self.handle(context, frame, position)
            handler = self._handlers[api_key]
        request_class = message_classes(api_key)[0]
        try:
            request, _ = decode(request_class, context.api_version, frame[position:])
        except MemoryError:
            raise NoRoom("there is no memory for the request") from None
        return self._reply(context, handler(broker or self._broker, request, context))

    def _load(self, api_key: int) -> bool:
        """Imports the API's handler. Returns True if the handler reads its frames itself."""
        module = import_late(self._modules[ApiKey(api_key).name.lower()])
        if hasattr(module, "handle_frame"):
            self._frame_handlers[api_key] = module.handle_frame
            return True
        self._handlers[api_key] = module.handle
        return False

    def read_header(self, connection: RequestConnection, frame: memoryview) -> tuple[RequestContext, int]:
        """Returns the context of a request and the position of its body. Raises BarnabasError if the request is
        malformed or not served."""
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
        context = self.context_class(api_key, version, correlation_id, client_id, connection)
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
        """Returns whether the header has tagged fields; None for ApiVersions in a version that is not served.

        A client with a newer version learns the served versions from a v0 response (KIP-511).
        """
        served = self._served.get(api_key)
        if served is None:
            raise UnsupportedRequest(f"API key {api_key} is not served")
        if served.first <= version <= served.last:
            return is_flexible(api_key, version)
        if api_key == ApiKey.API_VERSIONS:
            return None
        raise UnsupportedRequest(f"{ApiKey(api_key).name} v{version} is not served, v{served.first}-v{served.last} are")

    def _reply(self, context: RequestContext, response: Any) -> Parts | PendingReply:
        encode = self._broker.sliced_responses.encode
        if isinstance(response, Response):
            return encode(context, response)
        is_alone = context.api_key in _MANY_IN_ONE
        if isinstance(response, Coroutine):
            # a client may create a topic and write to it without waiting for the response in between
            response, is_alone = run_handler(self.loop, response), True
        if isinstance(response, asyncio.Future):
            return respond_later(self._broker, context, response, partial(encode, context), alone=is_alone)
        return encode(context, response)
