"""WriteTxnMarkers: an answer for each producer and partition."""

import pytest

from barnabas.broker.server import Broker
from barnabas.errors import InvalidProducerEpoch, UnknownTopicOrPartition
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from broker.admin_rig import ask
from broker.marker_rig import begin
from broker.marker_rig import broker as broker


@pytest.mark.parametrize("version", [1, 2])
def test_the_handler_answers_by_producer(broker: Broker, version: int) -> None:
    begin(broker, 7, epoch=1)
    begin(broker, 8, epoch=1, index=1)

    def topics(name: str, *indexes: int) -> list[WritableTxnMarkerTopic]:
        return [WritableTxnMarkerTopic(name=name, partition_indexes=indexes)]

    markers = [
        WritableTxnMarker(
            producer_id=7, producer_epoch=2, transaction_result=True, topics=topics("t", 0), transaction_version=2
        ),
        WritableTxnMarker(
            producer_id=8, producer_epoch=1, transaction_result=False, topics=topics("t", 1, 2), transaction_version=2
        ),
        WritableTxnMarker(producer_id=7, producer_epoch=2, transaction_result=True, topics=topics("gone", 0)),
    ]
    if version < 2:
        for marker in markers:
            marker.transaction_version = 0
    answer = ask(broker, WriteTxnMarkersRequest(markers=markers), version)
    late = 0 if version < 2 else InvalidProducerEpoch.code
    assert {
        result.producer_id: {
            (topic.name, partition.partition_index): partition.error_code
            for topic in result.topics
            for partition in topic.partitions
        }
        for result in answer.markers
    } == {7: {("t", 0): 0, ("gone", 0): UnknownTopicOrPartition.code}, 8: {("t", 1): late, ("t", 2): 0}}


def test_no_markers(broker: Broker) -> None:
    assert ask(broker, WriteTxnMarkersRequest()).markers == []
