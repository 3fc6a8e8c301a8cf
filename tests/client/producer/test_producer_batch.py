"""The handles of the records in a batch, and their callbacks."""

from typing import Any

import pytest

from barnabas.errors import InvalidRecord, TopicAuthorizationFailed
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from simulation.producer import SimulatedProducer


def test_a_record_and_its_place() -> None:
    producing = SimulatedProducer()
    first, second = producing.send(b"a"), producing.send(b"b", timestamp=77)
    assert (first.done(), first.offset) == (False, -1)
    assert first.result() == ("t", 0, 0, first.timestamp)
    assert second.result() == ("t", 0, 1, 77)
    assert producing.values() == [b"a", b"b"]
    header = producing.cluster.log("t", 0).headers[0]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1001, 0, 0)


def test_callbacks_come_in_order_and_hear_of_failures() -> None:
    producing = SimulatedProducer(batch_size=100)
    heard: list[Any] = []
    for index in range(5):
        producing.send(b"%d" % index, on_delivery=lambda error, metadata: heard.append((error, metadata.offset)))
    producing.flush()
    assert heard == [(None, index) for index in range(5)]
    producing.cluster.produce_errors = [29]
    handle = producing.send(b"a", on_delivery=lambda error, metadata: heard.append(error))
    late: list[Any] = []
    handle.add_done_callback(late.append)
    producing.flush()
    assert isinstance(heard[-1], TopicAuthorizationFailed)
    assert late == [handle]
    handle.add_done_callback(late.append)
    producing.run(seconds=0)
    assert late == [handle, handle]
    with pytest.raises(TopicAuthorizationFailed, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
        handle.result()


def test_broker_names_the_records_it_refuses() -> None:
    producing = SimulatedProducer()
    refused = PartitionProduceResponse(
        error_code=InvalidRecord.code,
        record_errors=[BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")],
    )
    producing.cluster.handlers[0] = lambda received: ProduceResponse(
        responses=[TopicProduceResponse(topic_id=producing.cluster.topic_id("t"), partition_responses=[refused])]
    )
    good, bad = producing.send(b"a"), producing.send(b"b")
    with pytest.raises(InvalidRecord, match="other records of the batch were refused"):
        good.result()
    with pytest.raises(InvalidRecord, match="t-0: no key"):
        bad.result()
