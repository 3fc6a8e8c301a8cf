"""Envelope v0 (KIP-590). Handles the request of another broker's client, with that client's principal and host.

Only requests that change metadata are forwarded, and only to the controller. Another broker answers NOT_CONTROLLER,
and the broker that has the client looks for the controller again.
"""

import asyncio
from typing import Final

from barnabas.broker.peers.forwarded_connection import ForwardedConnection
from barnabas.broker.peers.forwarding import unpack_host
from barnabas.broker.peers.principals import decode_principal
from barnabas.broker.requests.dispatch import UnsupportedRequest
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.errors import (
    ClusterAuthorizationFailed,
    InvalidRequest,
    KafkaError,
    NotController,
    RequestTimedOut,
    UnknownServerError,
    UnsupportedVersion,
)
from barnabas.network.connection import Parts, PendingReply
from barnabas.out_of_memory import NoRoom
from barnabas.protocol.apis import FORWARDABLE, FORWARDED_IN_PART, ApiKey, message_classes, response_header_version
from barnabas.protocol.codec import MalformedMessage, decode
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.schema import Message

SEARCHED_BYTES_MAX: Final = 64 * 1024
"""The size up to which a response is searched for NOT_CONTROLLER although this broker still seems to be the
controller."""


def handle(
    broker: BrokerServices, request: EnvelopeRequest, context: RequestContext
) -> "EnvelopeResponse | asyncio.Future[EnvelopeResponse]":
    try:
        return _handle(broker, request, context)
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)


def _handle(
    broker: BrokerServices, request: EnvelopeRequest, context: RequestContext
) -> "EnvelopeResponse | asyncio.Future[EnvelopeResponse]":
    if not context.is_broker:
        raise ClusterAuthorizationFailed("only brokers forward requests")
    if broker.image.controller_id != broker.node_id:
        raise NotController
    principal = decode_principal(request.request_principal or b"")
    try:
        host = unpack_host(request.client_host_address)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    future: asyncio.Future[EnvelopeResponse] = broker.loop.create_future()

    def done(parts: Parts | None) -> None:
        if not future.done():
            future.set_result(_response(broker, forwarded, parts))

    frame = memoryview(request.request_data)
    connection = ForwardedConnection(context.connection, host, done)
    try:
        forwarded, position = broker.dispatcher.read_header(connection, frame)
    except UnsupportedRequest as error:
        raise UnsupportedVersion(str(error)) from None
    except MalformedMessage as error:
        raise InvalidRequest(str(error)) from None
    if forwarded.api_key not in FORWARDABLE | FORWARDED_IN_PART:
        raise InvalidRequest(f"{ApiKey(forwarded.api_key).name} is not forwarded")
    forwarded.principal = principal
    try:
        reply = broker.dispatcher.handle(forwarded, frame, position)
    except MalformedMessage as error:
        raise InvalidRequest(str(error)) from None
    except NoRoom as error:
        raise RequestTimedOut(str(error)) from None
    except Exception as error:
        raise broker.failures.report(f"a forwarded {ApiKey(forwarded.api_key).name}", error) from None
    return future if isinstance(reply, PendingReply) else _response(broker, forwarded, reply)


def _response(broker: BrokerServices, forwarded: RequestContext, parts: Parts | None) -> EnvelopeResponse:
    if not parts:
        return EnvelopeResponse(error_code=UnknownServerError.code)
    data = b"".join(parts)[4:]  # type: ignore[arg-type]  # these APIs send no slices of files
    is_controller = broker.image.controller_id == broker.node_id
    if (len(data) <= SEARCHED_BYTES_MAX or not is_controller) and _says_not_controller(forwarded, data):
        return EnvelopeResponse(error_code=NotController.code)
    return EnvelopeResponse(response_data=data)


def _says_not_controller(forwarded: RequestContext, data: bytes) -> bool:
    key, version = forwarded.api_key, forwarded.api_version
    position = 4 + response_header_version(key, version)
    return _has_error(decode(message_classes(key)[1], version, data, position)[0], NotController.code)


def _has_error(message: Message, code: int) -> bool:
    """Returns whether an error code in the message, at any depth, is this one."""
    for field in message.SCHEMA:
        value = getattr(message, field.name)
        if field.name == "error_code" and value == code:
            return True
        structs = () if isinstance(field.kind, str) or value is None else value if field.array else (value,)
        if any(_has_error(struct, code) for struct in structs):
            return True
    return False
