"""Sends the responses of handlers that wait: for a coordinator's commit, or for the controller."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture
from barnabas.network.connection import Parts, PendingReply
from barnabas.out_of_memory import NoRoom, end_if_out_of_memory
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import MalformedMessage

__all__ = ["respond_later", "run_handler"]

T = TypeVar("T")


def run_handler(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> MaybeFuture[T]:
    """Runs a handler's coroutine, at once up to its first wait. Returns its result, or a future of it.

    A task would run it only in the next turn of the loop, and would complain if the broker stopped while it waits.
    """
    result: asyncio.Future[T] = loop.create_future()
    _go_on(work, result)
    return result.result() if result.done() else result


def _go_on(work: Coroutine[Any, Any, T], result: "asyncio.Future[T]", _: object = None) -> None:
    # Not a closure: one that names itself is a cycle, which lives until a garbage collection.
    try:
        awaited: asyncio.Future[Any] = work.send(None)
    except StopIteration as end:
        result.set_result(end.value)
    except asyncio.CancelledError:
        result.cancel()
    except Exception as error:
        end_if_out_of_memory(error)
        result.set_exception(error)
    else:
        awaited._asyncio_future_blocking = False  # as a task does: others may await the same future
        awaited.add_done_callback(partial(_go_on, work, result))


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
            except (MalformedMessage, NoRoom) as error:  # of a request that is read here after the controller's refusal
                connection.close(str(error))
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
