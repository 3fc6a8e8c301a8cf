"""AddOffsetsToTxn v0-v4: the partition that keeps a group's offsets joins the transaction."""

from collections.abc import Callable

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.coordinator.responses import producer_error
from barnabas.errors import KafkaError
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.types import TopicPartition

FIRST_VERSION_WITH_PRODUCER_FENCED = 2


def handle(
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
