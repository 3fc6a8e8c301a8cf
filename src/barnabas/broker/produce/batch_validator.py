"""Batches that take long to validate: decompressed, checked and compressed again in threads, appended on the loop.

The connection takes no further request before its batches are appended, so their order stays; others go on. A thread
works for a slice of time on one request, then the next one in line has its turn.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.requests.request_context import RequestContext
from barnabas.errors import KafkaError, UnknownServerError
from barnabas.network.connection import Parts, PendingReply
from barnabas.records.append_policy import AppendPolicy
from barnabas.records.validation import ValidatedBatch, validate_produce

if TYPE_CHECKING:
    from barnabas.broker.server import Broker

__all__ = ["BatchToValidate", "BatchValidator", "Verdict"]

_THREADS: Final = 2
_SLICE_S: Final = 0.02

Verdict = ValidatedBatch | KafkaError
"""What may be appended, or why it may not."""


class BatchToValidate(NamedTuple):
    """The arguments of `validate_produce`. The records are bytes: the frame is void when the thread reads them."""

    records: bytes
    policy: AppendPolicy
    now_ms: int
    zstd_allowed: bool

    def validate(self) -> Verdict:
        try:
            return validate_produce(self.records, self.policy, self.now_ms, zstd_allowed=self.zstd_allowed)
        except KafkaError as error:
            return error
        except Exception as error:  # a bug costs one partition, as everywhere
            unknown = UnknownServerError(repr(error))
            unknown.__cause__ = error
            return unknown


class BatchValidator:
    """Used on the event loop's thread. Bounded by the connections: each has one request here at most."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="barnabas-validate")

    def validate(
        self,
        context: RequestContext,
        batches: list[BatchToValidate],
        append: Callable[[list[Verdict]], Parts | PendingReply],
    ) -> PendingReply:
        """The place of the answer that `append` gives when it has heard the verdict on each of the batches, on the
        loop. It does so if the client has gone meanwhile, too: acks=0 waits for nothing."""
        context.connection.mute()
        reply = context.pending_reply()
        self._go_on(_Request(context, reply, batches, append, []))
        return reply

    def _go_on(self, request: "_Request") -> None:
        done = self._broker.loop.run_in_executor(self._threads, request.run_slice)
        done.add_done_callback(lambda future: self._slice_done(request, future))

    def _slice_done(self, request: "_Request", done: "asyncio.Future[None]") -> None:
        if self._broker.stopped or done.cancelled():
            return
        connection = request.context.connection
        try:
            done.result()
            if len(request.verdicts) < len(request.batches):
                self._go_on(request)
                return
            for verdict in request.verdicts:
                if isinstance(verdict, KafkaError) and verdict.__cause__ is not None:
                    self._broker.log.error("validating a batch failed", exc_info=verdict.__cause__)
            answer = request.append(request.verdicts)
        except Exception as error:
            self._broker.log.exception("a Produce request whose batches were validated in a thread failed")
            request.reply.fail(f"{type(error).__name__}: {error}")
            return
        if not isinstance(answer, PendingReply) and not connection.closed:
            request.reply.resolve(answer)
        connection.unmute()

    def shutdown(self) -> None:
        """What is under way is finished in vain; the rest is not begun."""
        self._threads.shutdown(wait=True, cancel_futures=True)


class _Request(NamedTuple):
    """A request whose batches are validated in order."""

    context: RequestContext
    reply: PendingReply
    batches: list[BatchToValidate]
    append: Callable[[list[Verdict]], Parts | PendingReply]
    verdicts: list[Verdict]

    def run_slice(self) -> None:
        until = time.monotonic() + _SLICE_S
        while len(self.verdicts) < len(self.batches):
            self.verdicts.append(self.batches[len(self.verdicts)].validate())
            if time.monotonic() >= until:
                return
