"""WriteTxnMarkers v1-v2: writes the end markers that a transaction coordinator, or `kafka-transactions.sh abort`,
sends.

A producer that has several markers in one request gets one result, as in Kafka. v1 lacks the transaction's version: the
rules of the first version apply to its markers.
"""

from collections.abc import Callable
from functools import partial

from barnabas.broker.coordinators.transaction_markers import Outcomes, write_markers
from barnabas.broker.requests.duplicates import once
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.coordinator.responses import each
from barnabas.coordinator.transaction.transaction_marker_channel_manager import EndMarkers
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.types import ProducerId, TopicPartition


def handle(
    broker: BrokerServices, request: WriteTxnMarkersRequest, context: RequestContext
) -> MaybeFuture[WriteTxnMarkersResponse]:
    markers = once(map(_marker, request.markers), lambda marker: (*marker[:-1], *marker.partitions))
    if not markers:
        return WriteTxnMarkersResponse()

    def start(reply: Callable[[WriteTxnMarkersResponse], None]) -> None:
        def finish(outcomes: list[Outcomes]) -> None:
            results: dict[int, Outcomes] = {}
            for marker, of_marker in zip(markers, outcomes, strict=True):
                results.setdefault(marker.producer_id, {}).update(of_marker)
            reply(_response(results))

        each(markers, partial(write_markers, broker), finish, broker.time_slicer.call_soon)

    return answer(broker.loop, start)


def _marker(writable: WritableTxnMarker) -> EndMarkers:
    return EndMarkers(
        ProducerId(writable.producer_id),
        writable.producer_epoch,
        writable.transaction_result,
        writable.coordinator_epoch,
        writable.transaction_version,
        [TopicPartition(topic.name, index) for topic in writable.topics for index in topic.partition_indexes],
    )


def _response(results: dict[int, Outcomes]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(outcomes))
            for producer_id, outcomes in results.items()
        ]
    )


def _topics(outcomes: Outcomes) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (topic, index), error in outcomes.items():
        result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=0 if error is None else error.code)
        topics.setdefault(topic, []).append(result)
    return [WritableTxnMarkerTopicResult(name=name, partitions=partitions) for name, partitions in topics.items()]
