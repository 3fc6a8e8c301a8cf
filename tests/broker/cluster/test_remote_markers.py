"""End markers for leaders on other brokers: the requests, and the outcome of each partition."""

import logging

import pytest

from barnabas.broker.cluster import peer_batches, remote_markers
from barnabas.broker.cluster.remote_markers import Outcomes, RemoteMarkers
from barnabas.broker.process.failure_log import FailureLog
from barnabas.clock import SYSTEM_CLOCK
from barnabas.coordinator.transaction.transaction_marker_channel_manager import EndMarkers
from barnabas.errors import (
    ConnectionLost,
    NotLeaderOrFollower,
    TransactionCoordinatorFenced,
    UnknownServerError,
)
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from barnabas.types import ProducerId, TopicPartition
from broker.cluster.fake_peers import FakePeers, Sent
from coordinator.group_rig import VirtualScheduler

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
Codes = dict[int, dict[TopicPartition, int]]


class Rig:
    def __init__(self) -> None:
        self.scheduler = VirtualScheduler()
        self.peers = FakePeers()
        failures = FailureLog(logging.getLogger("test"), SYSTEM_CLOCK)
        self.remote = RemoteMarkers(lambda: self.peers, self.scheduler, failures)
        self.outcomes: dict[int, Outcomes] = {}

    def write(self, producer_id: int, *partitions: TopicPartition, node_id: int = 2) -> None:
        def reply(outcomes: Outcomes) -> None:
            known = self.outcomes.setdefault(producer_id, {})
            assert not known.keys() & outcomes.keys(), "a partition has one outcome"
            known.update(outcomes)

        markers = EndMarkers(ProducerId(producer_id), 4, True, 9, 2, partitions or (T0,))
        self.remote.write(node_id, markers, reply)

    def sent(self) -> Sent:
        self.scheduler.advance(0.0)
        return self.peers.take()

    def kinds(self, producer_id: int) -> dict[TopicPartition, type | None]:
        return {place: error and type(error) for place, error in self.outcomes[producer_id].items()}


def response(codes: Codes) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=place.topic,
                        partitions=[WritableTxnMarkerPartitionResult(partition_index=place.partition, error_code=code)],
                    )
                    for place, code in of_producer.items()
                ],
            )
            for producer_id, of_producer in codes.items()
        ]
    )


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_one_request_has_the_markers_of_many_transactions(rig: Rig) -> None:
    rig.write(1, T0, U0, T1)
    rig.write(2, T0)
    sent = rig.sent()
    assert (sent.node_id, sent.version, sent.asked.at_least) == (2, 2, 2)
    assert [
        (
            (marker.producer_id, marker.producer_epoch, marker.transaction_result),
            (marker.coordinator_epoch, marker.transaction_version),
            {topic.name: list(topic.partition_indexes) for topic in marker.topics},
        )
        for marker in sent.request.markers
    ] == [
        ((1, 4, True), (9, 2), {"t": [0, 1], "u": [0]}),
        ((2, 4, True), (9, 2), {"t": [0]}),
    ]
    sent.answer(response({1: {T0: 0, T1: NotLeaderOrFollower.code, U0: 0}, 2: {T0: TransactionCoordinatorFenced.code}}))
    assert rig.kinds(1) == {T0: None, U0: None, T1: NotLeaderOrFollower}
    assert rig.kinds(2) == {T0: TransactionCoordinatorFenced}


def test_what_is_not_answered_is_not_written(rig: Rig) -> None:
    rig.write(1, T0, T1)
    rig.sent().answer(response({1: {T0: 0}}))
    assert rig.kinds(1) == {T0: None, T1: UnknownServerError}


def test_a_slow_request_does_not_stop_the_next_ones(rig: Rig) -> None:
    rig.write(1)
    slow = rig.sent()
    rig.write(2)
    rig.sent().answer(response({2: {T0: 0}}))
    assert rig.outcomes == {2: {T0: None}}
    slow.answer(response({1: {T0: 0}}))
    assert rig.outcomes[1] == {T0: None}


def test_a_broker_that_cannot_be_asked_is_asked_again(rig: Rig) -> None:
    rig.write(1, T0, T1)
    rig.sent().fail(ConnectionLost("lost"))
    assert rig.kinds(1) == dict.fromkeys((T0, T1), NotLeaderOrFollower)


def test_a_broker_that_is_not_active_any_more(rig: Rig) -> None:
    rig.write(1)
    rig.sent()
    rig.write(2)
    rig.write(3, node_id=3)
    rig.remote.brokers_changed(lambda node_id: node_id == 3)
    assert rig.kinds(1) == rig.kinds(2) == {T0: NotLeaderOrFollower}
    assert 3 not in rig.outcomes


def test_the_partitions_of_a_large_transaction_go_in_parts(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_markers, "ITEMS_MAX", 2)
    places = [TopicPartition("t", index) for index in range(5)]
    rig.write(1, *places)
    sizes = []
    for _ in range(3):
        sent = rig.sent()
        (marker,) = sent.request.markers
        indexes = list(marker.topics[0].partition_indexes)
        sizes.append(len(indexes))
        sent.answer(response({1: {TopicPartition("t", index): 0 for index in indexes}}))
    assert sizes == [2, 2, 1]
    assert rig.outcomes[1] == dict.fromkeys(places)


def test_too_many_markers_are_tried_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_batches, "QUEUED_MAX", 1)
    rig.write(1)
    rig.write(2)
    assert rig.kinds(2) == {T0: NotLeaderOrFollower}
