"""Produce requests that wait for a transaction's coordinator, and those of the same producer behind them.

A producer may have five requests under way, and their sequences must reach the log in order: while one waits, the
others stand in line behind it. Who waits is copied, as a frame lives only as long as its handler runs.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.produce.add_partitions_to_txn_manager import ClientSupport, Grants, verify
from barnabas.broker.produce.batch_validator import Verdict
from barnabas.broker.requests.request_context import RequestContext
from barnabas.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidTxnState,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
)
from barnabas.log.producers.verification_guards import Sender
from barnabas.network.connection import Parts, PendingReply
from barnabas.protocol.produce import ProduceRequest
from barnabas.records.validation import ValidatedBatch
from barnabas.replication.partition import Partition

if TYPE_CHECKING:
    from barnabas.broker.server import Broker

__all__ = ["ProduceQueues", "ValidatedRequest"]

_LINE_MAX: Final = 100
"""Requests in one line. Java's producers have five under way, librdkafka's as well when they are idempotent."""
_ABORTABLE_FROM: Final = 11
_ADDS_PARTITIONS_FROM: Final = 12
_NOT_NOW: Final = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)


class ValidatedRequest(NamedTuple):
    """A Produce request, and for each of its topics the verdicts on its partitions' batches, in their order.

    None is a verdict that a thread has not reached yet.
    """

    request: ProduceRequest
    verdicts: list[list[Verdict | None]]

    def copied(self) -> "ValidatedRequest":
        """As long-lived as one likes: what the request's records are is in the verdicts. These lists stay the same."""
        for verdicts in self.verdicts:
            for verdict in verdicts:
                if isinstance(verdict, ValidatedBatch):
                    verdict.payload = bytes(verdict.payload)
        topics = [
            topic._replace(partitions=[(index, None) for index, _ in topic.partitions]) for topic in self.request.topics
        ]
        return ValidatedRequest(self.request._replace(topics=topics), self.verdicts)


Append = Callable[[ValidatedRequest, Grants], Parts | PendingReply]


class ProduceQueues:
    """One line for each producer that waits. `waiting`: the ids of these producers."""

    __slots__ = ("_broker", "waiting")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.waiting: dict[int, deque[_Waiting]] = {}

    def enter(
        self,
        context: RequestContext,
        validated: ValidatedRequest,
        batches: dict[Partition, Sender],
        append: Append,
    ) -> Parts | PendingReply:
        """Append the request as soon as its transaction's coordinator agrees and no older one of its producer waits.

        `batches` are the transactional ones, all of one producer.
        """
        transactional_id = validated.request.transactional_id
        assert transactional_id is not None
        version = context.api_version
        support = ClientSupport(version >= _ABORTABLE_FROM, version >= _ADDS_PARTITIONS_FROM)
        producer_id = next(iter(batches.values())).producer_id
        line = self.waiting.get(producer_id)
        if line is None:
            grants = verify(self._broker, transactional_id, batches, support, partial(self._verified, producer_id))
            if grants is not None:
                return append(validated, _for_producer(grants, support))
            line = self.waiting[producer_id] = deque()
        elif len(line) >= _LINE_MAX:
            full = NotEnoughReplicas(f"{_LINE_MAX} requests of producer {producer_id} wait for its transaction")
            return append(validated, {partition.topic_partition: full for partition in batches})
        waiting = _Waiting(context, transactional_id, validated.copied(), batches, support, append)
        line.append(waiting)
        return context.pending_reply()

    def _verified(self, producer_id: int, grants: Grants) -> None:
        line = self.waiting[producer_id]
        answer: Grants | None = grants
        while answer is not None:
            self._finish(line.popleft(), answer)
            answer = self._ask_for_next(producer_id, line)

    def _ask_for_next(self, producer_id: int, line: "deque[_Waiting]") -> Grants | None:
        """The answer for the head of the line, if it is there at once; None also if nobody is left."""
        while line:
            head = line[0]
            try:
                return verify(
                    self._broker,
                    head.transactional_id,
                    head.batches,
                    head.support,
                    partial(self._verified, producer_id),
                )
            except Exception as error:
                self._fail(line.popleft(), error)
        del self.waiting[producer_id]
        return None

    def _finish(self, waiting: "_Waiting", grants: Grants) -> None:
        context = waiting.context
        try:
            answer = waiting.append(waiting.validated, _for_producer(grants, waiting.support))
        except Exception as error:
            self._fail(waiting, error)
            return
        if not isinstance(answer, PendingReply) and not context.connection.closed:
            context.pending_reply().resolve(answer)

    def _fail(self, waiting: "_Waiting", error: Exception) -> None:
        # A bug of ours: the client must not wait for an answer that will never come, nor those behind it.
        self._broker.log.exception("a Produce request that waited for its transaction failed")
        waiting.context.pending_reply().fail(f"{type(error).__name__}: {error}")


class _Waiting(NamedTuple):
    """A request in line."""

    context: RequestContext
    transactional_id: str
    validated: ValidatedRequest
    batches: dict[Partition, Sender]
    support: ClientSupport
    append: Append


def _for_producer(grants: Grants, support: ClientSupport) -> Grants:
    """Coordinators' errors as producers know them; NOT_ENOUGH_REPLICAS makes all of them try again without a look at
    the metadata."""
    return {
        place: _known_to_producers(grant, support) if isinstance(grant, KafkaError) else grant
        for place, grant in grants.items()
    }


def _known_to_producers(error: KafkaError, support: ClientSupport) -> KafkaError:
    if isinstance(error, InvalidTxnState):
        return InvalidTxnState("Partition was not added to the transaction")
    if isinstance(error, _NOT_NOW) or (isinstance(error, ConcurrentTransactions) and not support.adds_partitions):
        return NotEnoughReplicas(f"Unable to verify the partition has been added to the transaction: {error.message}")
    return error
