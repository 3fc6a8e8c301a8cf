"""Encodes long responses a slice at a time, so that other connections are served in between.

The elements of a response may be made while it is encoded (`LazySequence`): then neither the work nor the memory of all
of it is taken at once. A short response is ready when `encode` returns, without a queue. A connection
takes no further request before its long response is encoded, so that memory stays bounded.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar, overload

from barnabas.broker.requests.request_context import RequestContext
from barnabas.network.connection import Parts, PendingReply
from barnabas.network.time_slicing import Slices, TimeSlicer
from barnabas.out_of_memory import NoRoom
from barnabas.protocol.apis import ApiKey, response_header_version
from barnabas.protocol.codec import encode_slices
from barnabas.protocol.schema import Response

__all__ = ["RESPONSE_ELEMENTS_MAX", "LazySequence", "SlicedResponses", "complete_frame", "response_head", "sized"]

UNDER_WAY_MAX: Final = 4
"""The number of long responses that are encoded in turns. The others hold only their first slice and what they
describe."""
RESPONSE_ELEMENTS_MAX: Final = 250_000
"""The bound on the elements of a response about the whole cluster: settings of topics, offsets of groups. They take 25
to 100 MB; librdkafka accepts 100 MB (receive.message.max.bytes)."""

A = TypeVar("A")
B = TypeVar("B")


class LazySequence(Sequence[B], Generic[A, B]):
    """The elements of a response, each made when it is encoded."""

    __slots__ = ("_items", "_make")

    def __init__(self, items: Sequence[A], make: Callable[[A], B]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[B]:
        return map(self._make, self._items)

    @overload
    def __getitem__(self, index: int) -> B: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[B]: ...
    def __getitem__(self, index: int | slice) -> B | Sequence[B]:
        if isinstance(index, slice):
            return LazySequence(self._items[index], self._make)
        return self._make(self._items[index])


def sized(make: Callable[[A], B], size: Callable[[B], int], refuse: Callable[[A], B]) -> Callable[[A], B]:
    """Returns a function that makes elements until they have RESPONSE_ELEMENTS_MAX parts together, and refuses the
    others."""
    left = RESPONSE_ELEMENTS_MAX

    def one(item: A) -> B:
        nonlocal left
        if left <= 0:
            return refuse(item)
        made = make(item)
        left -= size(made)
        return made

    return one


def response_head(context: RequestContext) -> bytearray:
    """Returns the beginning of a response frame: room for its size, and the header."""
    out = bytearray(4)
    out += context.correlation_id.to_bytes(4, "big", signed=True)
    if response_header_version(context.api_key, context.api_version) == 1:
        out.append(0)
    return out


class SlicedResponses:
    """Encodes the responses of a broker."""

    def __init__(self, time_slicer: TimeSlicer, log: logging.Logger) -> None:
        self._time_slicer = time_slicer
        self._log = log
        self._under_way = 0
        self._waiting: deque[Callable[[], bool]] = deque()

    def encode(self, context: RequestContext, response: Response) -> Parts | PendingReply:
        out = response_head(context)
        return self.write(context, out, encode_slices(out, response, context.api_version))

    def write(self, context: RequestContext, out: bytearray, work: Slices[None]) -> Parts | PendingReply:
        """Does the same as `encode` for a frame that begins as `response_head`; each step of `work` appends to it."""
        try:
            self._time_slicer.advance(work)
        except StopIteration:
            return (complete_frame(out),)
        except MemoryError:
            raise NoRoom("there is no memory for the response") from None
        reply = context.pending_reply()
        connection = context.connection

        def run_slice() -> bool:
            if self._goes_on(context, work, out, reply):
                return True
            self._under_way -= 1
            if self._waiting:
                self._begin(self._waiting.popleft())
            connection.unmute()
            return False

        connection.mute()
        if self._under_way < UNDER_WAY_MAX:
            self._begin(run_slice)
        else:
            self._waiting.append(run_slice)
        return reply

    def _begin(self, run_slice: Callable[[], bool]) -> None:
        self._under_way += 1
        self._time_slicer.add(run_slice)

    def _goes_on(self, context: RequestContext, work: Slices[None], out: bytearray, reply: PendingReply) -> bool:
        connection = context.connection
        if connection.closed:
            return False
        try:
            self._time_slicer.advance(work)
        except StopIteration:
            reply.resolve((complete_frame(out),))
        except MemoryError:
            connection.close("there is no memory for the response")
        except Exception as error:
            # A bug of ours: the client must not wait for a response that never comes.
            self._log.exception("%s failed", ApiKey(context.api_key).name)
            connection.close(f"{type(error).__name__}: {error}")
        else:
            return True
        return False


def complete_frame(out: bytearray) -> bytearray:
    """Writes the size of a complete response frame into its first bytes."""
    out[0:4] = (len(out) - 4).to_bytes(4, "big")
    return out
