"""ListTransactions v0-v2: the transactional ids that this broker coordinates; v1 filters by duration, v2 by pattern.

Where we differ from Kafka: patterns are those that can be matched in bounded time (see `coordinator/bounded_regex.py`).
"""

from collections.abc import Callable

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.bounded_regex import Pattern
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.coordinator.transaction.transaction_metadata import TransactionMetadata
from barnabas.coordinator.transaction.transaction_metadata import TransactionState as State
from barnabas.errors import KafkaError
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

_STATES = {state.kafka_name: state for state in State}


def handle(
    broker: BrokerServices, request: ListTransactionsRequest, context: RequestContext
) -> MaybeFuture[ListTransactionsResponse]:
    try:
        wanted = _filter(request)
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in _STATES]

    def answered(response: list[tuple[str, TransactionMetadata]] | KafkaError) -> ListTransactionsResponse:
        if isinstance(response, KafkaError):
            return ListTransactionsResponse(error_code=response.code)
        return ListTransactionsResponse(
            unknown_state_filters=unknown,
            transaction_states=[
                TransactionState(
                    transactional_id=transactional_id,
                    producer_id=metadata.producer_id,
                    transaction_state=metadata.state.kafka_name,
                )
                for transactional_id, metadata in response
            ],
        )

    def start(reply: Callable[[ListTransactionsResponse], None]) -> None:
        broker.transactions.list_transactions(wanted, reply=lambda response: reply(answered(response)))

    return answer(broker.loop, start)


def _filter(request: ListTransactionsRequest) -> Callable[[str, TransactionMetadata, int], bool]:
    """Raises InvalidRegularExpression."""
    producer_ids = frozenset(request.producer_id_filters)
    states = frozenset(_STATES.get(name) for name in request.state_filters)
    duration_ms = request.duration_filter
    pattern = Pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None

    def wanted(transactional_id: str, metadata: TransactionMetadata, now_ms: int) -> bool:
        return (
            (not producer_ids or metadata.producer_id in producer_ids)
            and (not states or metadata.state in states)
            # A transactional id without transaction began at -1: as in Kafka, that was long ago.
            and (duration_ms < 0 or now_ms - metadata.start_timestamp_ms > duration_ms)
            and (pattern is None or pattern.matches(transactional_id))
        )

    return wanted
