"""Batches on their way to simulated brokers: order, retries, sequences, expiry."""

import itertools
from typing import Any

import pytest

from barnabas.errors import (
    ClusterAuthorizationFailed,
    InvalidRecord,
    MessageTooLarge,
    OperationTimedOut,
    OutOfOrderSequenceNumber,
    RecordsPurged,
    TopicAuthorizationFailed,
    UsageError,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.types import TopicPartition
from simulation.producer import SimulatedProducer


def numbers(*values: int) -> list[bytes]:
    return [b"%d" % value for value in values]


def send_all(producing: SimulatedProducer, *values: int, **more: Any) -> list[Any]:
    """One batch each."""
    handles = []
    for value in values:
        handles.append(producing.send(b"%d" % value, **more))
        producing.kafka_producer.appender.close_batch(producing.kafka_producer.appender.topics["t"], handles[-1]._batch)
    return handles


# --- one batch --------------------------------------------------------------------------------------------------------


def test_a_record_and_its_place() -> None:
    producing = SimulatedProducer()
    first, second = producing.send(b"a"), producing.send(b"b", timestamp=77)
    assert (first.done(), first.offset) == (False, -1)
    assert first.result() == ("t", 0, 0, first.timestamp)
    assert second.result() == ("t", 0, 1, 77)
    assert producing.values() == [b"a", b"b"]
    header = producing.cluster.log("t", 0).headers[0]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1001, 0, 0)


def test_a_batch_lingers_for_company() -> None:
    producing = SimulatedProducer(linger_ms=100)
    started = producing.cluster.now
    handle = producing.send(b"a")
    producing.run(lambda: handle.done(), seconds=10)
    assert producing.cluster.now - started == pytest.approx(0.1, abs=0.01)


def test_a_full_batch_does_not_linger() -> None:
    producing = SimulatedProducer(linger_ms=1000, batch_size=200)
    handles = [producing.send(b"x" * 60) for _ in range(5)]
    started = producing.cluster.now
    assert producing.run(lambda: handles[0].done(), seconds=10)
    assert producing.cluster.now - started < 0.01
    assert not handles[-1].done()


def test_flush_does_not_wait_for_linger() -> None:
    producing = SimulatedProducer(linger_ms=60_000)
    started = producing.cluster.now
    producing.send(b"a")
    producing.flush()
    assert producing.cluster.now - started < 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs_and_levels(codec: str) -> None:
    level = {} if codec in ("none", "snappy") else {f"compression_{codec}_level": 2}
    producing = SimulatedProducer(compression_type=codec, **level)
    for index in range(100):
        producing.send(b"value" * 10 + b"%d" % index, key=b"k", headers={"h": "text", "n": None})
    producing.flush()
    assert producing.values()[99] == b"value" * 10 + b"99"
    (header,) = producing.cluster.log("t", 0).headers
    assert header.compression_type == ["none", "gzip", "snappy", "lz4", "zstd"].index(codec)
    assert producing.kafka_producer.appender.used_bytes == 0


@pytest.mark.parametrize("newest", [3, 7, 8, 9, 11, 12])
def test_every_version_of_produce(newest: int) -> None:
    producing = SimulatedProducer()
    producing.cluster.versions[0] = (0, newest)
    producing.cluster.network_client.reset(RecordsPurged("so that versions are asked for again"))
    assert producing.send(b"a", headers=[("h", b"v")]).result().offset == 0
    assert [received.version for received in producing.cluster.requests if received.api_key == 0] == [newest]


@pytest.mark.parametrize(("acks", "offset"), [("0", -1), ("1", 0), ("all", 0)])
def test_acks(acks: str, offset: int) -> None:
    producing = SimulatedProducer(acks=acks)
    assert producing.send(b"a").result().offset == offset
    producing.run(lambda: producing.values() == [b"a"], seconds=5)
    header = producing.cluster.log("t", 0).headers[0]
    assert (header.producer_id >= 0) == (acks == "all")


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


def test_records_that_can_never_be_sent() -> None:
    producing = SimulatedProducer(max_request_size=1000)
    with pytest.raises(MessageTooLarge, match=r"max\.request\.size.* 1000"):
        producing.send(b"x" * 2000)
    with pytest.raises(TypeError, match="value is bytes or None, not str; encode it, or set value_serializer"):
        producing.send("text")
    with pytest.raises(UsageError, match="timestamp=-5"):
        producing.send(b"a", timestamp=-5)
    assert producing.kafka_producer.appender.used_bytes == 0


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


# --- partitions -------------------------------------------------------------------------------------------------------


def test_keys_go_where_java_sends_them() -> None:
    producing = SimulatedProducer(partitions=7)
    hashes = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107, b"": 275646681}  # from Kafka's UtilsTest
    for key, number in hashes.items():
        assert producing.send(b"v", key=key).partition == (number & 0x7FFFFFFF) % 7


def test_records_without_a_key_fill_one_partition_after_the_other() -> None:
    producing = SimulatedProducer(partitions=4, batch_size=1000, linger_ms=1000)
    where = [producing.send(b"x" * 50).partition for _ in range(400)]
    changes = sum(one != other for one, other in itertools.pairwise(where))
    assert set(where) == {0, 1, 2, 3}
    assert 10 < changes < 60


def test_a_slow_leader_gets_fewer_records() -> None:
    producing = SimulatedProducer(nodes=2, partitions=2, batch_size=300, linger_ms=1000)
    producing.send(b"a", partition=0)
    producing.flush()
    counts = {0: 0, 1: 0}
    for _ in range(2000):
        counts[producing.send(b"x" * 50).partition] += 1
        producing.cluster.turn()
        for link in [link for link in producing.cluster.links.values() if link.pending and link.node_id == 1]:
            producing.cluster.answer(link)
    assert counts[0] > 2 * counts[1]


def test_round_robin() -> None:
    producing = SimulatedProducer(partitions=3, partitioner_class="round_robin")
    where = [producing.send(b"v").partition for _ in range(6)]
    assert sorted(where[:3]) == [0, 1, 2]
    assert where[:3] == where[3:]


def test_new_partitions_are_used_once_they_are_known() -> None:
    producing = SimulatedProducer()
    assert producing.send(b"v", partition=1) is None
    producing.cluster.topics["t"][1] = 1
    producing.cluster.result(producing.cluster.network_client.refresh_metadata())
    assert producing.send(b"v", partition=1).result().partition == 1


def test_forgotten_topics_leave_the_metadata() -> None:
    producing = SimulatedProducer(metadata_max_idle_ms=10_000)
    producing.send(b"v").result()
    producing.run(seconds=9)
    assert "t" in producing.kafka_producer.appender.topics
    producing.run(seconds=25)
    assert "t" not in producing.kafka_producer.appender.topics
    assert producing.cluster.network_client.metadata.topics == []


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_is_bounded_and_given_back() -> None:
    producing = SimulatedProducer(buffer_memory=2000, linger_ms=10_000)
    taken = [handle for handle in (producing.send(b"x" * 100) for _ in range(50)) if handle is not None]
    assert 10 < len(taken) < 20
    assert producing.kafka_producer.appender.exhausted
    assert producing.run(lambda: taken[-1].done(), seconds=1), "who waits for memory does not wait for linger"
    assert producing.kafka_producer.appender.used_bytes == 0
    assert producing.send(b"x" * 100) is not None


# --- retries ----------------------------------------------------------------------------------------------------------

RETRIABLE = [2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 56, 72, 74, 75, 78, 89, 100, 103]


@pytest.mark.parametrize("code", RETRIABLE)
def test_every_retriable_error_is_tried_again(code: int) -> None:
    producing = SimulatedProducer()
    producing.cluster.produce_errors = [code, code]
    handle = producing.send(b"a")
    assert handle.result().offset == 0
    producing.cluster.produce_errors_after_write = [code]
    assert producing.send(b"b").result().offset == 1
    assert producing.values() == [b"a", b"b"]


def test_batches_in_flight_keep_their_order_when_the_first_fails() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    producing.cluster.produce_errors = [6]
    handles = send_all(producing, *range(8))
    producing.flush()
    assert producing.values() == [b"first", *numbers(*range(8))]
    assert [handle.offset for handle in handles] == list(range(1, 9))


def test_no_more_than_five_requests_fly() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    send_all(producing, *range(20))
    producing.cluster.turn()
    assert sum(len(link.pending) for link in producing.cluster.links.values()) == 5
    producing.flush()


def test_the_second_batch_of_an_id_waits_for_the_first() -> None:
    producing = SimulatedProducer()
    send_all(producing, 1, 2, 3)
    producing.run(
        lambda: any(link.pending[0].api_key == 0 for link in producing.cluster.links.values() if link.pending)
    )
    assert sum(len(link.pending) for link in producing.cluster.links.values()) == 1
    producing.flush()
    assert producing.values() == numbers(1, 2, 3)


def test_a_lost_connection_doubles_nothing() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    handles = send_all(producing, 1, 2, 3)
    producing.cluster.turn()
    (link,) = (link for link in producing.cluster.links.values() if link.pending)
    producing.cluster.handle(link)
    producing.cluster.handle(link)  # written, and the answers are lost
    producing.cluster.cut(link)
    producing.flush()
    assert producing.values() == [b"first", *numbers(1, 2, 3)]
    assert [handle.offset for handle in handles] == [1, 2, 3]


def test_a_leader_that_moved_is_followed() -> None:
    producing = SimulatedProducer(nodes=2)
    producing.send(b"a").result()
    producing.cluster.move_leader(TopicPartition("t", 0), 2)
    assert producing.send(b"b").result().offset == 1


def test_the_answer_names_the_new_leader() -> None:
    producing = SimulatedProducer(nodes=2)
    producing.send(b"a").result()
    produce = producing.cluster.handlers[0]

    def moved(received: Any) -> Any:
        if received.node_id == 2:
            return produce(received)
        answer = PartitionProduceResponse(
            error_code=6, base_offset=-1, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
        )
        return ProduceResponse(
            responses=[TopicProduceResponse(topic_id=producing.cluster.topic_id("t"), partition_responses=[answer])],
            node_endpoints=[NodeEndpoint(node_id=2, host="n2", port=9092)],
        )

    producing.cluster.handlers[0] = moved
    producing.cluster.handlers[3] = lambda received: pytest.fail("metadata was asked for")
    producing.cluster.topics["t"][0] = 2
    handle = producing.send(b"b")
    producing.cluster.network_client.metadata.update_requested = False
    while not handle.done():
        producing.cluster.turn()
        producing.cluster.network_client.metadata.update_requested = False
        for link in [link for link in producing.cluster.links.values() if link.pending]:
            producing.cluster.answer(link)
        producing.cluster.advance(0.01)
    assert handle.offset == 1


def test_a_record_fails_when_its_time_is_over_and_says_why() -> None:
    producing = SimulatedProducer(delivery_timeout_ms=40_000)
    producing.cluster.topics["t"][0] = -1
    producing.cluster.result(producing.cluster.network_client.refresh_metadata())
    started = producing.cluster.now
    handle = producing.send(b"a")
    with pytest.raises(OperationTimedOut, match=r"1 records for t-0 .* delivery.timeout.ms \(40000\)"):
        handle.result()
    assert producing.cluster.now - started == pytest.approx(40, abs=0.1)
    producing.cluster.topics["t"][0] = 1
    assert producing.send(b"b").result().offset == 0


def test_a_record_in_flight_fails_in_time_too() -> None:
    producing = SimulatedProducer(delivery_timeout_ms=31_000, request_timeout_ms=30_000)
    producing.send(b"first").result()
    producing.cluster.produce_errors = [7] * 1000
    handle = producing.send(b"a")
    with pytest.raises(OperationTimedOut, match="REQUEST_TIMED_OUT") as raised:
        handle.result()
    assert raised.value.attempts


def test_retries_are_bounded_where_the_caller_says_so() -> None:
    producing = SimulatedProducer(retries=2, acks="1")
    producing.cluster.produce_errors = [19] * 10
    with pytest.raises(Exception, match="NOT_ENOUGH_REPLICAS"):
        producing.send(b"a").result()
    assert len(producing.cluster.produce_errors) == 7


def test_without_an_id_nothing_is_sent() -> None:
    producing = SimulatedProducer()
    producing.cluster.handlers[22] = lambda received: InitProducerIdResponse(error_code=ClusterAuthorizationFailed.code)
    with pytest.raises(ClusterAuthorizationFailed):
        producing.send(b"a").result()
    assert producing.cluster.count(0) == 0


# --- what is too large ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_batch_that_is_too_large_is_sent_in_parts(codec: str) -> None:
    producing = SimulatedProducer(compression_type=codec)
    producing.send(b"first").result()
    producing.cluster.log("t", 0).batch_size_max = 200
    heard: list[int] = []
    handles = [
        producing.send(b"%03d" % index, on_delivery=lambda error, metadata: heard.append(metadata.offset))
        for index in range(50)
    ]
    after = send_all(producing, 50)
    producing.flush()
    assert producing.values()[1:] == [b"%03d" % index for index in range(50)] + [b"50"]
    assert [handle.offset for handle in (*handles, *after)] == list(range(1, 52))
    assert handles[17].result().offset == 18
    assert heard == list(range(1, 51))
    assert producing.kafka_producer.appender.used_bytes == 0


def test_a_single_record_that_is_too_large_fails_alone() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    producing.cluster.log("t", 0).batch_size_max = 200
    good, bad, after = send_all(producing, 1)[0], producing.send(b"x" * 500), None
    producing.kafka_producer.appender.close_batch(producing.kafka_producer.appender.topics["t"], bad._batch)
    after = send_all(producing, 2, 3)
    producing.flush()
    with pytest.raises(MessageTooLarge):
        bad.result()
    assert good.result().offset == 1
    assert [handle.result().offset for handle in after] == [2, 3]
    assert producing.values() == [b"first", *numbers(1, 2, 3)]


# --- gaps -------------------------------------------------------------------------------------------------------------


def test_what_follows_a_refused_batch_is_written_under_the_next_epoch() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    producing.cluster.produce_errors = [87]
    bad, *good = send_all(producing, 0, 1, 2, 3)
    producing.flush()
    with pytest.raises(InvalidRecord):
        bad.result()
    assert producing.values() == [b"first", *numbers(1, 2, 3)]
    assert [handle.result().offset for handle in good] == [1, 2, 3]
    assert [header.producer_epoch for header in producing.cluster.log("t", 0).headers] == [0, 1, 1, 1]
    assert [header.base_sequence for header in producing.cluster.log("t", 0).headers] == [0, 0, 1, 2]


def test_a_new_epoch_does_not_renumber_what_may_be_written_elsewhere() -> None:
    """Partition 1 has a batch whose fate is unknown while partition 0 leaves a gap behind."""
    producing = SimulatedProducer(partitions=2)
    for partition in (0, 1):
        producing.send(b"first", partition=partition).result()
    unknown = send_all(producing, 7, partition=1)[0]
    producing.cluster.produce_errors_after_write = [7]
    producing.run(lambda: not producing.cluster.produce_errors_after_write)
    producing.cluster.produce_errors = [87]
    send_all(producing, 0, 1, partition=0)
    producing.flush()
    assert unknown.result().offset == 1
    assert producing.values(1) == [b"first", b"7"]
    assert producing.values(0) == [b"first", b"1"]
    producing.send(b"8", partition=1).result()
    assert producing.values(1) == [b"first", b"7", b"8"]


def test_a_batch_that_was_given_up_may_be_written_after_all() -> None:
    producing = SimulatedProducer(delivery_timeout_ms=31_000, request_timeout_ms=30_000, linger_ms=0)
    producing.send(b"first").result()
    producing.cluster.produce_errors_after_write = [7] * 1000
    lost = producing.send(b"lost")
    with pytest.raises(OperationTimedOut):
        lost.result()
    producing.cluster.produce_errors_after_write = []
    producing.send(b"next").result()
    assert producing.values() == [b"first", b"lost", b"next"]


def test_a_refusal_of_a_repeat_does_not_tell_that_the_first_try_was_not_written() -> None:
    """Both batches are written and their answers lost; the first is given up, the second is refused once on its way to
    being recognised. Numbering it anew would write it twice."""
    producing = SimulatedProducer(delivery_timeout_ms=40_000, request_timeout_ms=30_000, linger_ms=0)
    producing.send(b"first").result()
    lost = producing.send(b"lost")
    producing.cluster.turn()
    (link,) = (link for link in producing.cluster.links.values() if link.pending)
    producing.cluster.advance(20)
    kept = producing.send(b"kept")
    producing.cluster.turn()
    producing.cluster.handle(link)
    producing.cluster.handle(link)
    producing.cluster.cut(link)
    producing.cluster.produce_errors = [6] * 1000
    with pytest.raises(OperationTimedOut):
        lost.result()
    producing.cluster.produce_errors = [6]
    assert kept.result().offset == 2
    assert producing.values() == [b"first", b"lost", b"kept"]


def test_epochs_that_are_used_up_give_way_to_a_new_id() -> None:
    producing = SimulatedProducer()
    producing.cluster.first_producer_epoch = 32766
    producing.send(b"first").result()
    producing.cluster.produce_errors = [87]
    send_all(producing, 0, 1, 2)
    producing.cluster.first_producer_epoch = 0
    producing.flush()
    assert producing.values() == [b"first", *numbers(1, 2)]
    assert [header.producer_id for header in producing.cluster.log("t", 0).headers] == [1001, 1002, 1002]


def test_a_broker_that_lost_what_it_acknowledged_is_noticed() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    producing.send(b"second").result()
    _, kept = producing.cluster.log("t", 0).producers[1001]
    kept.pop()
    with pytest.raises(OutOfOrderSequenceNumber):
        producing.send(b"third").result()
    assert producing.send(b"fourth").result().offset == 2


def test_a_broker_that_forgot_the_producer_gets_a_new_epoch() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    producing.cluster.produce_errors = [59]
    assert producing.send(b"second").result().offset == 1
    assert producing.values() == [b"first", b"second"]


def test_sequences_go_round() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    state = next(iter(producing.kafka_producer.accumulator.partitions.values()))
    state.next_sequence = 2**31 - 2
    producing.cluster.log("t", 0).producers[1001][1][-1] = (2**31 - 3, 2**31 - 3, 0)
    for value in (b"a", b"b", b"c", b"d"):
        producing.send(value).result()
    assert [h.base_sequence for h in producing.cluster.log("t", 0).headers[1:]] == [2**31 - 2, 2**31 - 1, 0, 1]


# --- purge ------------------------------------------------------------------------------------------------------------


def test_purge_gives_up_what_waits() -> None:
    producing = SimulatedProducer(linger_ms=60_000)
    producing.send(b"first")
    producing.flush()
    handle = producing.send(b"a")
    assert producing.kafka_producer.sender.purge(RecordsPurged("purged"), in_flight=True) == 1
    with pytest.raises(RecordsPurged):
        handle.result()
    assert producing.kafka_producer.appender.used_bytes == 0
    producing.send(b"b")
    producing.flush()
    assert producing.values() == [b"first", b"b"]


def test_purge_leaves_what_is_in_flight_where_it_is() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    flying = send_all(producing, *range(5))
    waiting = send_all(producing, 5, 6)
    producing.cluster.turn()
    assert producing.kafka_producer.sender.purge(RecordsPurged("purged"), in_flight=False) == 2
    producing.flush()
    assert [handle.result().offset for handle in flying] == [1, 2, 3, 4, 5]
    assert all(isinstance(handle.exception(), RecordsPurged) for handle in waiting)
    producing.send(b"after").result()
    assert producing.values() == [b"first", *numbers(*range(5)), b"after"]
