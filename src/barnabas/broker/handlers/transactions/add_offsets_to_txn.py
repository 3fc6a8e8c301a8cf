"""AddOffsetsToTxn v0-v4: the partition that keeps a group's offsets joins the transaction.

Java's producers send this before they look for the group's coordinator, so __consumer_offsets may not exist yet. Kafka
then adds a partition that no broker has. Here the topic is created first: a partition joins a transaction only if this
broker's metadata has it (see `broker/coordinators/marker_channel.py`).
"""

from collections.abc import Callable, Coroutine
from typing import Any

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.coordinator.responses import producer_error
from barnabas.errors import CoordinatorLoadInProgress, KafkaError
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.types import TopicPartition

FIRST_VERSION_WITH_PRODUCER_FENCED = 2


def handle(
    broker: BrokerServices, request: AddOffsetsToTxnRequest, context: RequestContext
) -> MaybeFuture[AddOffsetsToTxnResponse] | Coroutine[Any, Any, AddOffsetsToTxnResponse]:
    if OFFSETS_TOPIC not in broker.image.topics:
        return _create_then_add(broker, request, context)
    return _add(broker, request, context)


async def _create_then_add(
    broker: BrokerServices, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    for error in (await broker.auto_create_topics([OFFSETS_TOPIC])).values():
        broker.failures.warn(OFFSETS_TOPIC, f"{OFFSETS_TOPIC} could not be created: {error}")
    if OFFSETS_TOPIC not in broker.image.topics:
        # Clients repeat the request after this error without looking for the coordinator.
        return AddOffsetsToTxnResponse(error_code=CoordinatorLoadInProgress.code)
    added = _add(broker, request, context)
    return added if isinstance(added, AddOffsetsToTxnResponse) else await added


def _add(
    broker: BrokerServices, request: AddOffsetsToTxnRequest, context: RequestContext
) -> MaybeFuture[AddOffsetsToTxnResponse]:
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_for(request.group_id))
    knows_fencing = context.api_version >= FIRST_VERSION_WITH_PRODUCER_FENCED

    def start(reply: Callable[[AddOffsetsToTxnResponse], None]) -> None:
        def answered(error: KafkaError | None) -> None:
            reply(AddOffsetsToTxnResponse(error_code=producer_error(error, knows_fencing=knows_fencing)))

        broker.transactions.add_partitions(
            request.transactional_id,
            (request.producer_id, request.producer_epoch),
            [partition],
            transaction_version=0,  # a client with transaction.version 2 sends TxnOffsetCommit alone
            reply=answered,
        )

    return answer(broker.loop, start)
