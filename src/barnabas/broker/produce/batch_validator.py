"""Validates batches that take long in threads: decompressed, checked and compressed again, appended on the loop.

The connection takes no further request before its batches are appended, so their order stays. Other connections go on.
A thread works on one request for a slice of time, then on the next one in the queue.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.broker.process.failure_log import FailureLog
from barnabas.broker.requests.request_context import RequestContext
from barnabas.errors import KafkaError, as_kafka_error
from barnabas.network.connection import Parts, PendingReply
from barnabas.out_of_memory import is_lack_of_memory
from barnabas.records.append_policy import AppendPolicy
from barnabas.records.validation import ValidatedBatch, validate_produce
from barnabas.thread_pool import ThreadPool

__all__ = ["BatchToValidate", "BatchValidator", "ValidationResult"]

_THREADS: Final = 2
_SLICE_S: Final = 0.02

ValidationResult = ValidatedBatch | KafkaError
"""The batch that may be appended, or why it is refused."""


class BatchToValidate(NamedTuple):
    """The arguments of `validate_produce`. The records are bytes: the frame is void when the thread reads them."""

    records: bytes
    policy: AppendPolicy
    now_ms: int
    zstd_allowed: bool

    def validate(self) -> ValidationResult:
        try:
            return validate_produce(self.records, self.policy, self.now_ms, zstd_allowed=self.zstd_allowed)
        except KafkaError as error:
            return error
        except Exception as error:  # a bug, or a lack of memory, fails one partition only: nothing has changed
            failure = as_kafka_error(error)
            failure.__cause__ = error
            return failure


class BatchValidator:
    """Used on the event loop's thread. The connections bound it: each has one request here at most."""

    def __init__(self, loop: asyncio.AbstractEventLoop, failures: FailureLog) -> None:
        self._loop = loop
        self._failures = failures
        self._threads = ThreadPool(_THREADS, "barnabas-validate")
        self._is_shut_down = False

    def validate(
        self,
        context: RequestContext,
        batches: list[BatchToValidate],
        append: Callable[[list[ValidationResult]], Parts | PendingReply],
    ) -> PendingReply:
        """Validates the batches in a thread, then calls `append` with the results on the loop.

        Returns the place of the response that `append` makes. `append` is also called if the client has disconnected:
        a producer with acks=0 waits for nothing.
        """
        context.connection.mute()
        reply = context.pending_reply()
        self._run_slice(_Request(context, reply, batches, append, []))
        return reply

    def _run_slice(self, request: "_Request") -> None:
        done = self._loop.run_in_executor(self._threads, request.run_slice)
        done.add_done_callback(lambda future: self._on_slice_done(request, future))

    def _on_slice_done(self, request: "_Request", done: "asyncio.Future[None]") -> None:
        if self._is_shut_down or done.cancelled():
            return
        connection = request.context.connection
        try:
            done.result()
            if len(request.results) < len(request.batches):
                self._run_slice(request)
                return
            for result in request.results:
                if isinstance(result, KafkaError) and result.__cause__ is not None:
                    self._report(result.__cause__)
            response = request.append(request.results)
        except Exception as error:
            self._failures.report("a Produce request whose batches were validated in a thread", error)
            request.reply.fail(f"{type(error).__name__}: {error}")
            return
        if not isinstance(response, PendingReply) and not connection.closed:
            request.reply.resolve(response)
        connection.unmute()

    def _report(self, cause: BaseException) -> None:
        if is_lack_of_memory(cause):
            self._failures.report_no_memory("validating a batch")
        else:
            self._failures.report("validating a batch", cause)

    def shutdown(self) -> None:
        """Waits for the threads. The batches that are being validated are not appended."""
        self._is_shut_down = True
        self._threads.shutdown(wait=True, cancel_futures=True)


class _Request(NamedTuple):
    """A request whose batches are validated in order."""

    context: RequestContext
    reply: PendingReply
    batches: list[BatchToValidate]
    append: Callable[[list[ValidationResult]], Parts | PendingReply]
    results: list[ValidationResult]

    def run_slice(self) -> None:
        until = time.monotonic() + _SLICE_S
        while len(self.results) < len(self.batches):
            self.results.append(self.batches[len(self.results)].validate())
            if time.monotonic() >= until:
                return
