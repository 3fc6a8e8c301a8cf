"""Faults on request: errors, delays and cut connections, chosen by API key.

A rule sees each request before the broker does. `error` answers in the broker's place, `delay` delays the response,
`disconnect` cuts the connection before the request is handled, or (`after=True`) once it is handled.
"""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.broker.requests.dispatch import Dispatcher, frame_of
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.server import Broker
from barnabas.errors import KafkaError, UsageError
from barnabas.network.connection import NO_REPLY, Parts, PendingReply
from barnabas.protocol.apis import SERVED, ApiKey, message_classes
from barnabas.protocol.codec import decode
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from barnabas.protocol.schema import Field, Message, Request, Response

__all__ = ["Fault", "Faults", "error_response"]

_NAMES = ("name", "topic", "topic_name", "topic_id", "group_id", "key", "resource_name", "resource_type")
_INDEXES = ("partition_index", "partition", "index")


@dataclass
class Fault:
    """One rule. `hits` counts the requests that it met; `remaining` None means for ever.

    Raises UsageError for a rule that could meet no request, or have no effect.
    """

    api_key: ApiKey
    error: type[KafkaError] | None = None
    delay_s: float = 0.0
    disconnect: bool = False
    after: bool = False
    remaining: int | None = 1
    client_id: str | None = None
    hits: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        _, response_class = message_classes(self.api_key)
        if self.error is not None:
            if not (isinstance(self.error, type) and issubclass(self.error, KafkaError) and self.error.code):
                raise UsageError(
                    f"{self.error!r} is not an error that a broker answers with; give a class of"
                    " barnabas.errors, such as NotLeaderOrFollower"
                )
            if not _tells_errors(response_class):
                raise UsageError(f"an answer to {self.api_key.name} has no place for an error; use delay or disconnect")
        if not (isinstance(self.delay_s, int | float) and 0 <= self.delay_s < math.inf):
            raise UsageError(f"a delay is a number of seconds, 0 or more, not {self.delay_s!r}")
        if self.remaining is not None and not (isinstance(self.remaining, int) and self.remaining > 0):
            raise UsageError(f"times={self.remaining!r}: a fault meets 1 request or more, or None for all of them")
        if not isinstance(self.client_id, str | None):
            raise UsageError(f"client_id={self.client_id!r}: a client id is text, or None for all clients")

    def meets(self, context: RequestContext) -> bool:
        return (
            context.api_key == self.api_key
            and self.remaining != 0
            and (self.client_id is None or self.client_id == context.client_id)
        )

    def count(self) -> None:
        self.hits += 1
        if self.remaining is not None:
            self.remaining -= 1


class Faults:
    """The rules of one broker, in the order in which they were given. Safe to change from any thread."""

    def __init__(self, broker: Callable[[], Broker | None]) -> None:
        """`broker()` returns the running broker, or None while it is stopped: the rules then apply from its next start
        on."""
        self._broker = broker
        self._rules: list[Fault] = []
        self._lock = threading.Lock()

    def error(
        self, api: str | int, error: type[KafkaError], *, times: int | None = 1, client_id: str | None = None
    ) -> Fault:
        """Answers the next `times` requests (None: all) with an error in every place where the response has one."""
        return self._add(Fault(_api_key(api), error=error, remaining=times, client_id=client_id))

    def delay(self, api: str | int, seconds: float, *, times: int | None = 1, client_id: str | None = None) -> Fault:
        """Handles the next `times` requests `seconds` later; later requests of the connection are not held up."""
        return self._add(Fault(_api_key(api), delay_s=seconds, remaining=times, client_id=client_id))

    def disconnect(
        self, api: str | int, *, after: bool = False, times: int | None = 1, client_id: str | None = None
    ) -> Fault:
        """Cuts the connection instead of answering; with `after`, once the request has had its effect."""
        return self._add(Fault(_api_key(api), disconnect=True, after=after, remaining=times, client_id=client_id))

    def clear(self) -> None:
        """Forgets all rules."""
        with self._lock:
            self._rules = []
        self.install()

    def install(self) -> None:
        """Applies the present rules to the dispatcher of a broker that was restarted."""
        with self._lock:
            broker = self._broker()
            if broker is not None:
                broker.dispatcher.intercept = self._intercept if self._rules else None

    def _add(self, fault: Fault) -> Fault:
        with self._lock:
            self._rules = [*self._rules, fault]
        self.install()
        return fault

    def _intercept(
        self, dispatcher: Dispatcher, context: RequestContext, frame: memoryview, position: int
    ) -> Parts | PendingReply:
        for rule in self._rules:
            if rule.meets(context):
                rule.count()
                if rule.error is not None:
                    broker = self._broker()
                    assert broker is not None, "a broker that handles a request runs"
                    return _refuse(rule.error, broker, context, frame, position)
                return _apply(rule, dispatcher, context, frame, position)
        return dispatcher.handle(context, frame, position)


def _api_key(api: str | int) -> ApiKey:
    try:
        key = ApiKey[api.upper()] if isinstance(api, str) else ApiKey(api)
    except (KeyError, ValueError):
        key = None
    if key not in SERVED:
        there = ", ".join(ApiKey(served).name for served in SERVED)
        raise UsageError(f"{api!r} is not an API of this broker; there are {there}")
    return key


def _apply(
    rule: Fault, dispatcher: Dispatcher, context: RequestContext, frame: memoryview, position: int
) -> Parts | PendingReply:
    connection = context.connection
    if rule.disconnect:
        if rule.after:
            dispatcher.handle(context, frame, position)
        connection.close("a fault asked for it")
        return NO_REPLY
    reply = context.pending_reply()
    kept = memoryview(bytes(frame))

    def handle_late() -> None:
        if connection.closed:
            return
        try:
            answer = dispatcher.handle(context, kept, position)
        except Exception as error:
            reply.fail(f"{type(error).__name__}: {error}")
            return
        if answer is not reply:
            reply.resolve(answer)  # type: ignore[arg-type]

    dispatcher.loop.call_later(rule.delay_s, handle_late)
    return reply


def _refuse(
    error: type[KafkaError], broker: Broker, context: RequestContext, frame: memoryview, position: int
) -> Parts:
    request_class, response_class = message_classes(context.api_key)
    request, _ = decode(request_class, context.api_version, bytes(frame[position:]))
    if getattr(request, "acks", None) == 0:
        # The request gets no response: as in Kafka only the end of the connection reports the error.
        context.connection.close(f"a fault asked for {error.__name__}")
        return NO_REPLY
    response = error_response(request, response_class, error.code)
    if isinstance(response, MetadataResponse):
        # Without any broker in the response a client has no address for its next request.
        response.cluster_id, response.controller_id = broker.cluster_id, broker.image.controller_id
        response.brokers = [
            MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in broker.advertised_brokers(context.connection)
        ]
    return (frame_of(context, response),)


def error_response(request: Request, response_class: type[Response], code: int) -> Response:
    """A response to `request` in which every error code is `code`: topics and partitions mirror the request's."""
    response: Response = _mirror(request, response_class, code)
    return response


def _mirror(asked: Message | int | str | None, answer_class: type[Any], code: int) -> Any:
    values: dict[str, Any] = {}
    fields = {f.name: f for f in answer_class.SCHEMA}
    if "error_code" in fields:
        values["error_code"] = code
    if isinstance(asked, int):
        values |= {name: asked for name in _INDEXES if name in fields}
    elif isinstance(asked, str):
        values |= {name: asked for name in _NAMES if name in fields and fields[name].kind == "string"}
    elif isinstance(asked, Message):
        values |= _copied(asked, fields)
        arrays = [f for f in answer_class.SCHEMA if f.array and _tells_errors(f.kind)]
        sources = [f for f in asked.SCHEMA if f.array and getattr(asked, f.name)]
        for target, source in zip(arrays, sources, strict=False):
            elements: Sequence[Any] = getattr(asked, source.name)
            values[target.name] = [_mirror(element, target.kind, code) for element in elements]
    return answer_class(**values)


def _tells_errors(kind: str | type[Message]) -> bool:
    """Returns whether a struct, or a struct within it, has an error code."""
    if isinstance(kind, str):
        return False
    return any(f.name == "error_code" or _tells_errors(f.kind) for f in kind.SCHEMA)


def _copied(asked: Message, fields: dict[str, Field]) -> dict[str, Any]:
    """Copies the names and indexes of the request into the response, although the two messages name the fields
    differently."""
    own = {f.name for f in asked.SCHEMA}
    copied = {name: getattr(asked, name) for name in own & fields.keys() if not fields[name].array}
    copied.pop("error_code", None)
    for family in (_NAMES[:3], _INDEXES):
        source = next((name for name in family if name in own), None)
        target = next((name for name in family if name in fields), None)
        if source and target:
            copied[target] = getattr(asked, source)
    return copied
