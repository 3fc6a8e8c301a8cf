"""Asks the transaction coordinators on other brokers whether partitions are in a transaction, or adds them (KIP-890).

One AddPartitionsToTxn request for many transactions, one in flight to each broker. A coordinator answers other brokers
at once: while the end markers of the last transaction are being written, or its partition is being loaded, one
transaction would hold up all others of the request. So a partition that joins the next transaction is sent again here,
for add.partitions.to.txn.retry.backoff.max.ms.

Where we differ from Kafka: two questions of a broker about one transactional id go to its coordinator in two requests,
and the first does not fail; a partition that the coordinator's broker does not know yet is an error to be retried.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from barnabas.broker.cluster.peer_batches import PeerBatches, RequestSender
from barnabas.broker.process.failure_log import FailureLog
from barnabas.connection.broker.client_request import Error
from barnabas.coordinator.timers import Scheduler
from barnabas.errors import (
    BrokerNotAvailable,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    KafkaError,
    NetworkException,
    OperationNotAttempted,
    ProducerFenced,
    UnknownTopicOrPartition,
    error_for,
)
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.types import BrokerId, ProducerId, TopicPartition

__all__ = ["TIMEOUT_S", "Outcomes", "RemoteVerification"]

TIMEOUT_S: Final = 10.0
"""Producers wait for 30 seconds as a rule, and ask again."""
BACKOFF_S: Final = 0.002
"""The first wait before a question is asked again; end markers take a few milliseconds as a rule."""
BACKOFF_MAX_S: Final = 0.02
"""Kafka's add.partitions.to.txn.retry.backoff.ms."""
_FIRST_VERSION: Final = 4

Outcomes = dict[TopicPartition, KafkaError | None]
_Codes = Mapping[str, Mapping[TopicPartition, int]]
"""The error codes of partitions by transactional id."""


class _Question:
    """The partitions of one transaction, and who wants to know."""

    __slots__ = ("backoff_s", "deadline", "key", "partitions", "reply", "transaction")

    def __init__(
        self,
        transaction: AddPartitionsToTxnTransaction,
        partitions: Sequence[TopicPartition],
        deadline: float,
        reply: Callable[[Outcomes], None],
    ) -> None:
        self.key = transaction.transactional_id
        self.transaction = transaction
        self.partitions = partitions
        self.deadline = deadline
        """The time after which it is not asked again."""
        self.reply = reply
        self.backoff_s = BACKOFF_S

    @property
    def items(self) -> int:
        return len(self.partitions)

    def fail(self, error: KafkaError) -> None:
        self.reply(dict.fromkeys(self.partitions, error))


class RemoteVerification:
    """The questions of this broker to the transaction coordinators of others. Used on the event loop's thread."""

    def __init__(
        self,
        peers: Callable[[], RequestSender | None],
        scheduler: Scheduler,
        failures: FailureLog,
        retry_max_ms: Callable[[], int],
    ) -> None:
        """`retry_max_ms` returns add.partitions.to.txn.retry.backoff.max.ms."""
        self._scheduler = scheduler
        self._retry_max_ms = retry_max_ms
        self._batches: PeerBatches[_Question, _Codes | KafkaError] = PeerBatches(
            peers,
            partial(scheduler.call_later, 0.0),
            failures,
            request=_request,
            results=_codes,
            answered=self._on_answer,
            failed=self._on_failure,
            in_flight_max=1,
            timeout_s=TIMEOUT_S,
            at_least=_FIRST_VERSION,
        )

    def verify_or_add(
        self,
        node_id: int,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        reply: Callable[[Outcomes], None],
    ) -> None:
        """Does what `TransactionCoordinator.verify_or_add` does, by the coordinator on that broker."""
        by_topic: dict[str, list[int]] = {}
        for topic, index in partitions:
            by_topic.setdefault(topic, []).append(index)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic.items()],
        )
        deadline = self._scheduler.monotonic() + self._retry_max_ms() / 1000
        self._ask(node_id, _Question(transaction, partitions, deadline, reply))

    def brokers_changed(self, is_active: Callable[[BrokerId], bool]) -> None:
        """Fails the questions to brokers that are not active any more: their partitions get other leaders."""
        self._batches.drop(
            lambda node_id: not is_active(BrokerId(node_id)),
            BrokerNotAvailable("the broker of the transaction coordinator is not active any more"),
        )

    def _ask(self, node_id: int, question: _Question) -> None:
        if not self._batches.add(node_id, question):
            question.fail(CoordinatorNotAvailable(f"too many transactions wait for broker {node_id}"))

    def _on_answer(self, node_id: int, question: _Question, codes: _Codes | KafkaError) -> None:
        if isinstance(codes, KafkaError):
            question.fail(codes)
            return
        answer = codes.get(question.key, {})
        outcomes = {partition: _error(node_id, answer.get(partition)) for partition in question.partitions}
        if (
            not question.transaction.verify_only
            and any(isinstance(error, ConcurrentTransactions) for error in outcomes.values())
            and self._scheduler.monotonic() + question.backoff_s < question.deadline
        ):
            self._scheduler.call_later(question.backoff_s, lambda: self._ask(node_id, question))
            question.backoff_s = min(2 * question.backoff_s, BACKOFF_MAX_S)
        else:
            question.reply(outcomes)

    def _on_failure(self, node_id: int, question: _Question, error: Error) -> None:
        question.fail(NetworkException(f"broker {node_id} could not be asked about the transaction: {error}"))


def _request(questions: list[_Question]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=[question.transaction for question in questions])


def _codes(response: AddPartitionsToTxnResponse) -> _Codes | KafkaError:
    if response.error_code:
        return error_for(response.error_code, "the transaction coordinator refuses the request of this broker")
    return {
        result.transactional_id: {
            TopicPartition(topic.name, partition.partition_index): partition.partition_error_code
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }


def _error(node_id: int, code: int | None) -> KafkaError | None:
    """Returns the error for a partition's leader; None if the partition is in the transaction."""
    if code is None:
        return CoordinatorNotAvailable(f"broker {node_id} has not answered for the partition")
    if code == 0:
        return None
    error = error_for(code, f"the transaction coordinator on broker {node_id} refuses the partition")
    if isinstance(error, UnknownTopicOrPartition | OperationNotAttempted):
        # This broker leads the partition, so it exists: the other one has older metadata.
        return CoordinatorNotAvailable(f"broker {node_id} does not know all partitions yet")
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(error.message)  # producers expect this one
    return error
