"""Long answers: they are encoded a slice at a time, so that other connections are served in between.

What an answer describes may be made while it is encoded (`OneByOne`): then neither the work nor the memory of all of it
is taken at once. An answer that is short is ready when `encode` returns, and nothing was put in a queue.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Final, Generic, TypeVar, overload

from barnabas.broker.context import RequestContext
from barnabas.network.connection import Parts, PendingReply
from barnabas.protocol.apis import ApiKey, response_header_version
from barnabas.protocol.codec import encode_slices
from barnabas.protocol.schema import Response

__all__ = ["ANSWER_ELEMENTS_MAX", "LongAnswers", "OneByOne", "response_head", "sized"]

SLICE_S: Final = 0.005
"""How long an answer may hold up all others at a time."""
UNDER_WAY_MAX: Final = 4
"""So many long answers take turns; those behind them hold no more than their requests yet."""
ANSWER_ELEMENTS_MAX: Final = 250_000
"""Of what answers consist of when everything in a cluster is asked for: settings of topics, offsets of groups. 25 to
100 MB; librdkafka takes 100 MB (receive.message.max.bytes)."""

A = TypeVar("A")
B = TypeVar("B")


class OneByOne(Sequence[B], Generic[A, B]):
    """Elements of an answer, each made of an item when it is its turn to be encoded."""

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
            return OneByOne(self._items[index], self._make)
        return self._make(self._items[index])


def sized(make: Callable[[A], B], size: Callable[[B], int], refuse: Callable[[A], B]) -> Callable[[A], B]:
    """Returns a function that makes elements until they have ANSWER_ELEMENTS_MAX parts together, and refuses then."""
    left = ANSWER_ELEMENTS_MAX

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


class _Answer:
    """One that is being encoded: each step of `work` appends to `out`."""

    __slots__ = ("context", "out", "reply", "work")

    def __init__(self, context: RequestContext, out: bytearray, work: Iterator[None]) -> None:
        self.context = context
        self.out = out
        self.work = work
        self.reply: PendingReply | None = None

    def advance(self) -> bool:
        """Encode for SLICE_S; whether that was the end of it."""
        end = perf_counter() + SLICE_S
        for _ in self.work:
            if perf_counter() >= end:
                return False
        self.out[0:4] = (len(self.out) - 4).to_bytes(4, "big")
        return True


class LongAnswers:
    """Those of a broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: logging.Logger) -> None:
        self._loop = loop
        self._log = log
        self._under_way: deque[_Answer] = deque()
        self._waiting: deque[_Answer] = deque()

    def encode(self, context: RequestContext, response: Response) -> Parts | PendingReply:
        """Returns the frame of a response, or the place in the order of replies where it will be."""
        out = response_head(context)
        return self.write(context, out, encode_slices(out, response, context.api_version))

    def write(self, context: RequestContext, out: bytearray, work: Iterator[None]) -> Parts | PendingReply:
        """As `encode`, of a frame that begins as `response_head` and that each step of `work` appends to."""
        answer = _Answer(context, out, work)
        if answer.advance():
            return (out,)
        answer.reply = context.pending_reply()
        if len(self._under_way) < UNDER_WAY_MAX:
            if not self._under_way:
                self._loop.call_soon(self._turn)
            self._under_way.append(answer)
        else:
            self._waiting.append(answer)
        return answer.reply

    def _turn(self) -> None:
        """One slice of one answer; the loop serves the sockets before the next."""
        answer = self._under_way.popleft()
        if self._goes_on(answer):
            self._under_way.append(answer)
        elif self._waiting:
            self._under_way.append(self._waiting.popleft())
        if self._under_way:
            self._loop.call_soon(self._turn)

    def _goes_on(self, answer: _Answer) -> bool:
        connection = answer.context.connection
        if connection.closed:
            return False
        try:
            if not answer.advance():
                return True
        except Exception as error:
            # A bug of ours: the client must not wait for an answer that will never come.
            self._log.exception("%s failed", ApiKey(answer.context.api_key).name)
            connection.close(f"{type(error).__name__}: {error}")
            return False
        assert answer.reply is not None
        answer.reply.resolve((answer.out,))
        return False
