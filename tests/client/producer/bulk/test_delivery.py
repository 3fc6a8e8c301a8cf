"""The future of a bulk call: where its records stand, and which rows failed."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.producer.bulk.send import bulk_of_lists
from barnabas.errors import InvalidRecord, RecordsFailed, RecordsPurged, TopicAuthorizationFailed
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.records.compiled.bulk_rows import murmur2
from simulation.producer import SimulatedProducer


def test_a_delivery_says_where_the_records_stand() -> None:
    producing = SimulatedProducer(partitions=2, batch_size=300)
    producing.send(b"first", partition=1)
    delivery = producing.send_many([bytes(100)] * 10, partition=1)
    assert not delivery.done()
    heard: list[Any] = []
    delivery.add_done_callback(heard.append)
    assert delivery.result() == (("t", 1, 1, 10),)
    producing.run(lambda: bool(heard))
    assert heard == [delivery]
    assert delivery.exception() is None
    assert producing.send_many([]).result() == ()


def test_without_acknowledgements_no_offset_is_known() -> None:
    producing = SimulatedProducer(acks="0", batch_size=300)
    assert producing.send_many([bytes(100)] * 5).result() == (("t", 0, -1, 5),)


def test_which_rows_failed() -> None:
    producing = SimulatedProducer(partitions=2, batch_size=300)
    keys = [b"%d" % number for number in range(8)]
    where = [(murmur2(key) & 0x7FFFFFFF) % 2 for key in keys]
    producing.cluster.produce_errors = [29]
    delivery = producing.send_many([bytes(50)] * 8, keys=keys)
    producing.run(delivery.done)
    failure = delivery.exception()
    assert isinstance(failure, RecordsFailed)
    (part,) = failure.failed
    assert isinstance(part.error, TopicAuthorizationFailed)
    assert failure.delivery is delivery
    lost = [row for row in range(8) if where[row] == part.partition][: len(part.rows)]
    assert list(part.rows) == lost
    assert sum(sent.record_count for sent in failure.sent) == 8 - len(lost)
    with pytest.raises(RecordsFailed, match=rf"{len(lost)} of 8 records for t failed: .* t-{part.partition}"):
        delivery.result()


def test_neighbours_that_failed_alike_are_one_range() -> None:
    producing = SimulatedProducer(partitions=1, batch_size=300)
    delivery = producing.send_many([bytes(100)] * 10)
    producing.kafka_producer.sender.purge(RecordsPurged("purged"), in_flight=True)
    failure = delivery.exception()
    assert failure is not None
    assert [(part.partition, part.rows) for part in failure.failed] == [(0, range(10))]


def test_records_that_the_broker_refuses_by_name() -> None:
    producing = SimulatedProducer(partitions=1)

    def refuse(received: Any) -> Any:
        named = [BatchIndexAndErrorMessage(batch_index=2, batch_index_error_message="no key")]
        answer = PartitionProduceResponse(index=0, error_code=87, base_offset=-1, record_errors=named)
        topic_id = received.request.topic_data[0].topic_id
        return ProduceResponse(responses=[TopicProduceResponse(topic_id=topic_id, partition_responses=[answer])])

    producing.send(b"of somebody else")
    producing.cluster.handlers[0] = refuse
    failure = producing.send_many([b"a", b"b", b"c"]).exception()
    assert failure is not None
    assert [part.rows for part in failure.failed] == [range(1), range(1, 2), range(2, 3)]
    assert all(isinstance(part.error, InvalidRecord) for part in failure.failed)
    assert "no key" in str(failure.failed[1].error)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(2, 60), st.booleans(), st.sampled_from([200, 400]))
def test_batches_that_are_split(partitions: int, count: int, keyed: bool, limit: int) -> None:
    producing = SimulatedProducer(partitions=partitions, batch_size=900)
    for partition in range(partitions):
        producing.cluster.log("t", partition).batch_size_max = limit
    values = [b"%03d" % number + bytes(50) for number in range(count)]
    delivery = producing.send_many(values, keys=[b"%d" % number for number in range(count)] if keyed else None)
    producing.flush()
    found = [
        v for part in delivery.result() for v in producing.values(part.partition)[part.offset :][: part.record_count]
    ]
    assert sorted(found) == values


def test_the_rest_is_given_up() -> None:
    producing = SimulatedProducer(partitions=1, batch_size=300, buffer_memory=1000)
    bulk = bulk_of_lists(producing.kafka_producer, "t", [bytes(100)] * 50, None, None, None, None)
    while not bulk.take():
        pass
    taken = bulk.taken
    failure = bulk.give_up(RecordsPurged("no time"))
    assert 0 < taken < 50
    assert [(part.partition, part.rows) for part in failure.failed] == [(-1, range(taken, 50))]
    assert bulk.is_over
    assert not bulk.delivery.done()
    producing.flush()
    final = bulk.delivery.exception()
    assert final is not None
    assert final.sent == (("t", 0, 0, taken),)
