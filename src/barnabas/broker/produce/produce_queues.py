"""Queues the Produce requests of a transactional producer while one of them waits for the transaction coordinator.

A producer may have five requests in flight, and their sequences must reach the log in order. A queued request is
copied, because a frame lives only as long as its handler runs.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from barnabas.broker.produce.add_partitions_to_txn_manager import (
    AddPartitionsToTxnManager,
    ClientSupport,
    VerificationResults,
)
from barnabas.broker.produce.batch_validator import ValidationResult
from barnabas.broker.requests.request_context import RequestContext
from barnabas.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidTxnState,
    KafkaError,
    NetworkException,
    NotCoordinator,
    NotEnoughReplicas,
)
from barnabas.log.producers.verification_guards import Sender
from barnabas.network.connection import Parts, PendingReply
from barnabas.out_of_memory import end_if_out_of_memory
from barnabas.protocol.produce import ProduceRequest
from barnabas.records.validation import ValidatedBatch
from barnabas.replication.partition import Partition

__all__ = ["ProduceQueues", "ValidatedRequest"]

_QUEUE_MAX: Final = 100
"""Requests of one producer. Java's producers have five in flight, librdkafka's as well when they are idempotent."""
_ABORTABLE_FROM: Final = 11
_ADDS_PARTITIONS_FROM: Final = 12
_COORDINATOR_UNAVAILABLE: Final = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NetworkException, NotCoordinator)


class ValidatedRequest(NamedTuple):
    """A Produce request with the validation results of its partitions' batches, by topic and in their order.

    A result is None while a thread validates the batch.
    """

    request: ProduceRequest
    results: list[list[ValidationResult | None]]

    def copied(self) -> "ValidatedRequest":
        """Returns the request without views into its frame. The lists of results stay the same objects."""
        for results in self.results:
            for result in results:
                if isinstance(result, ValidatedBatch):
                    result.payload = bytes(result.payload)
        topics = [
            topic._replace(partitions=[(index, None) for index, _ in topic.partitions]) for topic in self.request.topics
        ]
        return ValidatedRequest(self.request._replace(topics=topics), self.results)


Append = Callable[[ValidatedRequest, VerificationResults], Parts | PendingReply]


class ProduceQueues:
    """Holds one queue for each producer that waits. `waiting` maps producer ids to these queues."""

    __slots__ = ("_log", "_manager", "waiting")

    def __init__(self, manager: AddPartitionsToTxnManager, log: logging.Logger) -> None:
        self._manager = manager
        self._log = log
        self.waiting: dict[int, deque[_QueuedRequest]] = {}

    def append_verified(
        self,
        context: RequestContext,
        validated: ValidatedRequest,
        batches: dict[Partition, Sender],
        append: Append,
    ) -> Parts | PendingReply:
        """Appends the request once the transaction coordinator agrees and the producer's older requests are appended.

        `batches` are the request's transactional batches, all of one producer.
        """
        transactional_id = validated.request.transactional_id
        assert transactional_id is not None
        version = context.api_version
        support = ClientSupport(version >= _ABORTABLE_FROM, version >= _ADDS_PARTITIONS_FROM)
        producer_id = next(iter(batches.values())).producer_id
        queue = self.waiting.get(producer_id)
        if queue is None:
            verify = self._manager.verify
            results = verify(transactional_id, batches, support, partial(self._on_verified, producer_id))
            if results is not None:
                return append(validated, _for_producer(results, support))
            queue = self.waiting[producer_id] = deque()
        elif len(queue) >= _QUEUE_MAX:
            full = NotEnoughReplicas(f"{_QUEUE_MAX} requests of producer {producer_id} wait for its transaction")
            return append(validated, {partition.topic_partition: full for partition in batches})
        queue.append(_QueuedRequest(context, transactional_id, validated.copied(), batches, support, append))
        return context.pending_reply()

    def _on_verified(self, producer_id: int, verified: VerificationResults) -> None:
        queue = self.waiting[producer_id]
        results: VerificationResults | None = verified
        while results is not None:
            self._append(queue.popleft(), results)
            results = self._verify_next(producer_id, queue)

    def _verify_next(self, producer_id: int, queue: "deque[_QueuedRequest]") -> VerificationResults | None:
        """Returns the results for the first queued request if they are there at once; None also for an empty queue."""
        while queue:
            head = queue[0]
            reply = partial(self._on_verified, producer_id)
            try:
                return self._manager.verify(head.transactional_id, head.batches, head.support, reply)
            except Exception as error:
                self._fail(queue.popleft(), error)
        del self.waiting[producer_id]
        return None

    def _append(self, queued: "_QueuedRequest", results: VerificationResults) -> None:
        context = queued.context
        try:
            response = queued.append(queued.validated, _for_producer(results, queued.support))
        except Exception as error:
            self._fail(queued, error)
            return
        if not isinstance(response, PendingReply) and not context.connection.closed:
            context.pending_reply().resolve(response)

    def _fail(self, queued: "_QueuedRequest", error: Exception) -> None:
        end_if_out_of_memory(error)
        # A bug of ours: the client must not wait for a response that never comes, nor must the requests behind it.
        self._log.exception("a Produce request that waited for its transaction failed")
        queued.context.pending_reply().fail(f"{type(error).__name__}: {error}")


class _QueuedRequest(NamedTuple):
    context: RequestContext
    transactional_id: str
    validated: ValidatedRequest
    batches: dict[Partition, Sender]
    support: ClientSupport
    append: Append


def _for_producer(results: VerificationResults, support: ClientSupport) -> VerificationResults:
    """Translates coordinators' errors into errors that producers know. All producers retry NOT_ENOUGH_REPLICAS without
    refreshing their metadata."""
    return {
        topic_partition: _producer_error(result, support) if isinstance(result, KafkaError) else result
        for topic_partition, result in results.items()
    }


def _producer_error(error: KafkaError, support: ClientSupport) -> KafkaError:
    if isinstance(error, InvalidTxnState):
        return InvalidTxnState("Partition was not added to the transaction")
    is_concurrent = isinstance(error, ConcurrentTransactions) and not support.adds_partitions
    if is_concurrent or isinstance(error, _COORDINATOR_UNAVAILABLE):
        return NotEnoughReplicas(f"Unable to verify the partition has been added to the transaction: {error.message}")
    return error
