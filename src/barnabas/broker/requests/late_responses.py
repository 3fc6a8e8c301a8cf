"""Sends the responses of handlers that wait: for a coordinator's commit, or for the controller."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.network.connection import Parts, PendingReply
from barnabas.protocol.apis import ApiKey

__all__ = ["respond_later"]

T = TypeVar("T")


def respond_later(
    broker: BrokerServices,
    context: RequestContext,
    future: "asyncio.Future[T]",
    encode: Callable[[T], Parts | PendingReply],
    *,
    alone: bool,
) -> PendingReply:
    """Returns a reply that is resolved with the encoded result. A failure is reported and closes the connection.

    With `alone` the connection takes its next request only after the response.
    """
    connection = context.connection
    pending = context.pending_reply()
    if alone:
        connection.mute()

    def done(future: "asyncio.Future[T]") -> None:
        if not connection.closed and not future.cancelled():
            try:
                parts = encode(future.result())
            except Exception as error:
                broker.failures.report(f"{ApiKey(context.api_key).name} v{context.api_version}", error)
                connection.close(f"{type(error).__name__}: {error}")
            else:
                if not isinstance(parts, PendingReply):
                    pending.resolve(parts)
        if alone:
            connection.unmute()

    future.add_done_callback(done)
    return pending
