"""EndTxn v0-v5: commit or abort. The response is sent once the outcome is committed to the log; end markers follow.

From v5 on the response has the producer's next epoch (KIP-890).
"""

from collections.abc import Callable

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.coordinator.responses import producer_error
from barnabas.coordinator.transaction.end_txn import EndTransaction
from barnabas.coordinator.transaction.transaction_metadata import TV2
from barnabas.errors import KafkaError
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.types import ProducerId

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_OF_TV2 = 5


def handle(broker: BrokerServices, request: EndTxnRequest, context: RequestContext) -> MaybeFuture[EndTxnResponse]:
    version = context.api_version
    ending = EndTransaction(
        request.transactional_id,
        ProducerId(request.producer_id),
        request.producer_epoch,
        request.committed,
        TV2 if version >= FIRST_VERSION_OF_TV2 else 0,
    )

    def answered(response: "tuple[int, int] | KafkaError") -> EndTxnResponse:
        if isinstance(response, KafkaError):
            code = producer_error(response, knows_fencing=version >= FIRST_VERSION_WITH_PRODUCER_FENCED)
            return EndTxnResponse(error_code=code)
        return EndTxnResponse(producer_id=response[0], producer_epoch=response[1])

    def start(reply: Callable[[EndTxnResponse], None]) -> None:
        broker.transactions.end_transaction(ending, reply=lambda response: reply(answered(response)))

    return answer(broker.loop, start)
