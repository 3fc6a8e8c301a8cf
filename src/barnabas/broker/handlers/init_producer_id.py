"""InitProducerId v0-v5 for idempotent producers: a producer id that nobody had before, epoch 0."""

from typing import TYPE_CHECKING

from barnabas.broker.context import RequestContext
from barnabas.errors import InvalidRequest, KafkaError, TransactionalIdAuthorizationFailed
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from barnabas.broker.server import Broker


def handle(broker: "Broker", request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    try:
        if request.transactional_id == "":
            raise InvalidRequest("an empty transactional id")
        if request.transactional_id is not None:
            raise TransactionalIdAuthorizationFailed("transactions are not served by this broker")
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise InvalidRequest("a producer id and its epoch come together or not at all")
        producer_id = broker.controller.next_producer_id()
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
