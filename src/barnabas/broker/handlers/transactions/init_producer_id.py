"""InitProducerId v0-v6: returns a new producer id, or that of a transactional id with its next epoch.

A transactional producer fences the producer that had the id before and aborts its open transaction: the response is
then CONCURRENT_TRANSACTIONS, and the client retries. From v3 on a producer may name its former producer id and epoch
(KIP-360), from v6 on it may take part in two-phase commits (KIP-939).

Where we differ from Kafka: v6 is served without `unstable.api.versions.enable`, which Kafka requires, and
KeepPreparedTxn works.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.coordinator.responses import producer_error
from barnabas.coordinator.transaction.transaction_coordinator_shard import InitProducerIdResult
from barnabas.errors import InvalidRequest, KafkaError
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId

FIRST_VERSION_WITH_PRODUCER_FENCED = 4


def handle(
    broker: BrokerServices, request: InitProducerIdRequest, context: RequestContext
) -> MaybeFuture[InitProducerIdResponse] | Coroutine[Any, Any, InitProducerIdResponse]:
    if broker.producer_ids.is_empty:
        return _wait_for_ids(broker, request, context)
    return _handle(broker, request, context)


async def _wait_for_ids(
    broker: BrokerServices, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    with contextlib.suppress(KafkaError):  # who needs a new id gets COORDINATOR_LOAD_IN_PROGRESS, and asks again
        await broker.producer_ids.wait()
    response = _handle(broker, request, context)
    return await response if isinstance(response, asyncio.Future) else response


def _handle(
    broker: BrokerServices, request: InitProducerIdRequest, context: RequestContext
) -> MaybeFuture[InitProducerIdResponse]:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(InvalidRequest("a producer id and its epoch come together or not at all"), context)
    transactional_id = request.transactional_id
    if transactional_id is None:
        try:
            producer_id = broker.producer_ids.next()
        except KafkaError as error:
            return _refused(error, context)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    known = request.producer_id != NO_PRODUCER_ID

    def start(reply: Callable[[InitProducerIdResponse], None]) -> None:
        broker.transactions.init_producer_id(
            transactional_id,
            request.transaction_timeout_ms,
            expected=(ProducerId(request.producer_id), request.producer_epoch) if known else None,
            two_phase_commit=request.enable2_pc,
            keep_prepared=request.keep_prepared_txn,
            reply=lambda response: reply(_answered(response, context)),
        )

    return answer(broker.loop, start)


def _answered(response: InitProducerIdResult | KafkaError, context: RequestContext) -> InitProducerIdResponse:
    if isinstance(response, KafkaError):
        return _refused(response, context)
    return InitProducerIdResponse(
        producer_id=response.producer_id,
        producer_epoch=response.producer_epoch,
        ongoing_txn_producer_id=response.ongoing_producer_id,
        ongoing_txn_producer_epoch=response.ongoing_producer_epoch,
    )


def _refused(error: KafkaError, context: RequestContext) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=producer_error(error, knows_fencing=context.api_version >= FIRST_VERSION_WITH_PRODUCER_FENCED),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
    )
