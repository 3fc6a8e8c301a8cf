"""Sends end markers of transactions to the leaders on other brokers: the markers of many transactions in one request.

Requests to one broker overtake each other on the way no more than responses do, and markers of one transaction are
independent of each other. Few requests are in flight, so that one that waits for slow replicas does not stop all.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from barnabas.broker.cluster.peer_batches import ITEMS_MAX, PeerBatches, RequestSender
from barnabas.broker.process.failure_log import FailureLog
from barnabas.connection.broker.client_request import Error
from barnabas.coordinator.timers import Scheduler
from barnabas.coordinator.transaction.transaction_marker_channel_manager import EndMarkers
from barnabas.errors import BrokerNotAvailable, KafkaError, NotLeaderOrFollower, UnknownServerError, error_for
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.types import BrokerId, ProducerId, TopicPartition

__all__ = ["TIMEOUT_S", "Outcomes", "RemoteMarkers"]

TIMEOUT_S: Final = 35.0
"""Longer than the other broker waits for its replicas."""
IN_FLIGHT_MAX: Final = 5
_FIRST_VERSION: Final = 2
"""The first version that has the transaction's version, by which the leader checks the producer epoch."""

Outcomes = dict[TopicPartition, KafkaError | None]
_Codes = Mapping[tuple[ProducerId, TopicPartition], int]


class _Markers:
    """End markers of one transaction for partitions of one broker."""

    __slots__ = ("key", "markers", "reply")

    def __init__(self, markers: EndMarkers, reply: Callable[[Outcomes], None]) -> None:
        self.key = markers.producer_id
        self.markers = markers
        self.reply = reply

    @property
    def items(self) -> int:
        return len(self.markers.partitions)

    def fail(self, error: KafkaError) -> None:
        self.reply(dict.fromkeys(self.markers.partitions, error))


class RemoteMarkers:
    """The end markers that this broker's transaction coordinator sends to other brokers. Used on the event loop's
    thread."""

    def __init__(self, peers: Callable[[], RequestSender | None], scheduler: Scheduler, failures: FailureLog) -> None:
        self._batches: PeerBatches[_Markers, _Codes] = PeerBatches(
            peers,
            partial(scheduler.call_later, 0.0),
            failures,
            request=_request,
            results=_codes,
            answered=_on_answer,
            failed=_on_failure,
            in_flight_max=IN_FLIGHT_MAX,
            timeout_s=TIMEOUT_S,
            at_least=_FIRST_VERSION,
        )

    def write(self, node_id: int, markers: EndMarkers, reply: Callable[[Outcomes], None]) -> None:
        """Writes the markers to partitions that a broker leads. Calls `reply` once or several times, with the outcome
        of each partition once. The errors are those of the leader, or NotLeaderOrFollower if it cannot be asked."""
        for first in range(0, len(markers.partitions), ITEMS_MAX):
            part = _Markers(markers._replace(partitions=markers.partitions[first : first + ITEMS_MAX]), reply)
            if not self._batches.add(node_id, part):
                part.fail(NotLeaderOrFollower(f"too many end markers wait for broker {node_id}"))

    def brokers_changed(self, is_active: Callable[[BrokerId], bool]) -> None:
        """Fails the markers for brokers that are not active any more: their partitions get other leaders."""
        self._batches.drop(
            lambda node_id: not is_active(BrokerId(node_id)),
            BrokerNotAvailable("the leader's broker is not active any more"),
        )


def _request(entries: list[_Markers]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(markers=[_marker(entry.markers) for entry in entries])


def _marker(markers: EndMarkers) -> WritableTxnMarker:
    by_topic: dict[str, list[int]] = {}
    for topic, index in markers.partitions:
        by_topic.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=markers.producer_id,
        producer_epoch=markers.producer_epoch,
        transaction_result=markers.commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()],
        coordinator_epoch=markers.coordinator_epoch,
        transaction_version=markers.transaction_version,
    )


def _codes(response: WriteTxnMarkersResponse) -> _Codes:
    return {
        (ProducerId(marker.producer_id), TopicPartition(topic.name, partition.partition_index)): partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }


def _on_answer(node_id: int, entry: _Markers, codes: _Codes) -> None:
    entry.reply(
        {
            partition: _error(node_id, partition, codes.get((entry.key, partition)))
            for partition in entry.markers.partitions
        }
    )


def _on_failure(node_id: int, entry: _Markers, error: Error) -> None:
    entry.fail(NotLeaderOrFollower(f"broker {node_id} could not be asked: {error}"))


def _error(node_id: int, partition: TopicPartition, code: int | None) -> KafkaError | None:
    if code is None:
        return UnknownServerError(f"broker {node_id} has not answered for {partition}")
    return error_for(code, f"broker {node_id} has not written the marker to {partition}") if code else None
