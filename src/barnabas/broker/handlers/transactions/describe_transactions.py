"""DescribeTransactions v0: the state of transactional ids that this broker coordinates."""

from collections.abc import Callable

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.coordinator.responses import each
from barnabas.coordinator.transaction.transaction_metadata import TransactionMetadata
from barnabas.errors import KafkaError
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(
    broker: BrokerServices, request: DescribeTransactionsRequest, context: RequestContext
) -> MaybeFuture[DescribeTransactionsResponse]:
    def one(transactional_id: str, done: Callable[[TransactionState], None]) -> None:
        broker.transactions.describe(
            transactional_id, reply=lambda response: done(_described(transactional_id, response))
        )

    def start(reply: Callable[[DescribeTransactionsResponse], None]) -> None:
        each(
            list(dict.fromkeys(request.transactional_ids)),
            one,
            lambda states: reply(DescribeTransactionsResponse(transaction_states=states)),
            broker.time_slicer.call_soon,
        )

    return answer(broker.loop, start)


def _described(transactional_id: str, response: TransactionMetadata | KafkaError) -> TransactionState:
    if isinstance(response, KafkaError):
        return TransactionState(error_code=response.code, transactional_id=transactional_id)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(response.partitions):
        by_topic.setdefault(topic, []).append(partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=response.state.kafka_name,
        transaction_timeout_ms=response.timeout_ms,
        transaction_start_time_ms=response.start_timestamp_ms,
        producer_id=response.producer_id,
        producer_epoch=response.producer_epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in by_topic.items()],
    )
