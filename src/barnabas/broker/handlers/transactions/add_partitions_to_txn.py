"""AddPartitionsToTxn v0-v5: partitions join a transaction, all of them or none.

Clients send v0-v3, for one transaction. From v4 on other brokers send it, for many; `verify_only` asks whether the
partitions are in it already (KIP-890). One transaction must not hold up the others of a broker's request, so it waits
neither for end markers nor for the load of its partition: the broker asks again.

Where we differ from Kafka: a transactional id that stands twice in one request is answered once, and a request without
transactions gets an answer.
"""

from collections.abc import Callable, Sequence

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.coordinator.responses import each, producer_error
from barnabas.coordinator.transaction.transaction_metadata import TV2
from barnabas.errors import KafkaError, OperationNotAttempted, TopicAuthorizationFailed, UnknownTopicOrPartition
from barnabas.metadata.image import INTERNAL_TOPICS
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.types import TopicPartition

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_OF_BROKERS = 4

Results = dict[TopicPartition, KafkaError | None]


def handle(
    broker: BrokerServices, request: AddPartitionsToTxnRequest, context: RequestContext
) -> MaybeFuture[AddPartitionsToTxnResponse]:
    version = context.api_version
    transactions = _transactions(request, version)

    def answered(results: list[list[AddPartitionsToTxnTopicResult]]) -> AddPartitionsToTxnResponse:
        if version < FIRST_VERSION_OF_BROKERS:
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0])
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topics)
                for transaction, topics in zip(transactions, results, strict=True)
            ]
        )

    def start(reply: Callable[[AddPartitionsToTxnResponse], None]) -> None:
        def one(
            transaction: AddPartitionsToTxnTransaction, done: "Callable[[list[AddPartitionsToTxnTopicResult]], None]"
        ) -> None:
            _start(broker, transaction, context, lambda results: done(_by_topic(results, version)))

        each(transactions, one, lambda parts: reply(answered(parts)), broker.time_slicer.call_soon)

    return answer(broker.loop, start)


def _transactions(request: AddPartitionsToTxnRequest, version: int) -> Sequence[AddPartitionsToTxnTransaction]:
    if version >= FIRST_VERSION_OF_BROKERS:
        by_id: dict[str, AddPartitionsToTxnTransaction] = {}
        for transaction in request.transactions:
            by_id.setdefault(transaction.transactional_id, transaction)
        return list(by_id.values())
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _start(
    broker: BrokerServices,
    transaction: AddPartitionsToTxnTransaction,
    context: RequestContext,
    done: "Callable[[Results], None]",
) -> None:
    version = context.api_version
    results: Results = {
        TopicPartition(topic.name, index): _refusal(broker, topic.name, index, version)
        for topic in transaction.topics
        for index in topic.partitions
    }
    partitions = list(results)
    if any(results.values()):
        # One partition that cannot be added prevents the others: a client cannot use a part of them.
        done(
            {
                partition: refusal
                or OperationNotAttempted(f"another partition cannot join {transaction.transactional_id}")
                for partition, refusal in results.items()
            }
        )
        return
    producer = (transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        broker.transactions.verify_partitions(
            transaction.transactional_id,
            producer,
            partitions,
            waits=not context.is_broker,
            reply=lambda response: done(
                dict.fromkeys(partitions, response) if isinstance(response, KafkaError) else response
            ),
        )
        return
    broker.transactions.add_partitions(
        transaction.transactional_id,
        producer,
        partitions,
        transaction_version=TV2 if version >= FIRST_VERSION_OF_BROKERS else 0,
        waits=not context.is_broker,
        reply=lambda error: done(dict.fromkeys(partitions, error)),
    )


def _refusal(broker: BrokerServices, topic: str, partition: int, version: int) -> KafkaError | None:
    if version < FIRST_VERSION_OF_BROKERS and topic in INTERNAL_TOPICS:
        return TopicAuthorizationFailed(f"{topic} is not for clients to write to")
    known = broker.image.topics.get(topic)
    if known is None or not 0 <= partition < len(known.partitions):
        return UnknownTopicOrPartition(f"{topic}-{partition} does not exist")
    return None


def _by_topic(results: Results, version: int) -> list[AddPartitionsToTxnTopicResult]:
    knows_fencing = version >= FIRST_VERSION_WITH_PRODUCER_FENCED
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for partition, error in results.items():
        by_topic.setdefault(partition.topic, []).append(
            AddPartitionsToTxnPartitionResult(
                partition_index=partition.partition,
                partition_error_code=producer_error(error, knows_fencing=knows_fencing),
            )
        )
    return [AddPartitionsToTxnTopicResult(name=name, results_by_partition=parts) for name, parts in by_topic.items()]
