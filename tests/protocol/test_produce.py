"""Produce requests read by hand mean what the codec says they mean, and the short way means what the long way does."""

import contextlib
import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import produce
from barnabas.protocol.codec import MalformedMessage, decode, encode
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.protocol.produce import (
    PartitionResponse,
    ProduceRequestWriter,
    encode_produce_response,
    encode_with_leaders,
    read_produce_request,
    read_produce_response,
    read_single_partition,
)

VERSIONS = range(3, 14)
TOPIC_ID = UUID(int=0x1234567890ABCDEF << 32)


def request(topics, *, acks=-1, transactional_id=None) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1500,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=TOPIC_ID,
                partition_data=[PartitionProduceData(index=index, records=records) for index, records in partitions],
            )
            for name, partitions in topics
        ],
    )


SHAPES = [
    request([("orders", [(3, b"r" * 100)])]),
    request([("orders", [(3, b"")])]),
    request([("orders", [(3, None)])]),
    request([("x" * 249, [(0, b"r")])], acks=1),
    request([("orders", [(0, b"a"), (1, b"b" * 300)])], acks=0),
    request([("a", [(0, b"a")]), ("b", [(7, b"b")])]),
    request([]),
    request([("a", [])]),
    request([("orders", [(3, b"rr")])], transactional_id="tx"),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("message", SHAPES, ids=range(len(SHAPES)))
def test_reads_what_the_codec_wrote(message, version):
    frame = memoryview(b"head" + encode(message, version))
    read = read_produce_request(frame, 4, version)
    assert (read.transactional_id, read.acks, read.timeout_ms) == (message.transactional_id, message.acks, 1500)
    assert [
        (
            topic.name,
            topic.topic_id,
            [(index, None if data is None else bytes(data)) for index, data in topic.partitions],
        )
        for topic in read.topics
    ] == [
        (
            "" if version >= 13 else topic.name,
            TOPIC_ID if version >= 13 else None,
            [(part.index, part.records) for part in topic.partition_data],
        )
        for topic in message.topic_data
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("message", SHAPES, ids=range(len(SHAPES)))
def test_short_way_agrees_with_the_long_way_or_leaves_it_alone(message, version):
    frame = memoryview(b"head" + encode(message, version))
    for _ in range(2):  # once to remember, once to remember by
        found = read_single_partition(frame, 4, version)
        if found is None:
            continue
        single, records = found
        long = read_produce_request(frame, 4, version)
        assert (single.acks, single.timeout_ms) == (long.acks, long.timeout_ms)
        (topic,) = long.topics
        ((index, data),) = topic.partitions
        assert (single.topic.name, single.topic.topic_id, single.partition) == (topic.name, topic.topic_id, index)
        assert bytes(records) == bytes(data)


@pytest.mark.parametrize("version", range(5, 14))
def test_short_way_is_taken_for_one_partition(version):
    frame = memoryview(encode(SHAPES[0], version))
    single, records = read_single_partition(frame, 0, version)
    assert bytes(records) == b"r" * 100
    response = single.response(77, 1000, -1, 5)
    topic = read_produce_request(frame, 0, version).topics[0]
    body = encode_produce_response([(topic, [PartitionResponse(3, 0, 1000, -1, 5)])], version)
    header = b"\0" if version >= 9 else b""
    assert response == (len(body) + len(header) + 4).to_bytes(4, "big") + (77).to_bytes(4, "big") + header + body


@pytest.mark.parametrize("version", VERSIONS)
def test_response_is_what_the_codec_reads(version):
    topic = read_produce_request(memoryview(encode(SHAPES[0], version)), 0, version).topics[0]
    results = [
        PartitionResponse(0, 0, 12, 34, 5),
        PartitionResponse(1, 87, record_errors=[(3, "no key"), (9, None)], error_message="refused" * 5_000),
    ]
    message, _ = decode(ProduceResponse, version, encode_produce_response([(topic, results)], version))
    first, second = message.responses[0].partition_responses
    assert (first.index, first.error_code, first.base_offset, first.log_append_time_ms) == (0, 0, 12, 34)
    assert (second.index, second.error_code) == (1, 87)
    if version >= 8:
        assert [(e.batch_index, e.batch_index_error_message) for e in second.record_errors] == [
            (3, "no key"),
            (9, None),
        ]
        assert second.error_message == ("refused" * 5_000)[:32_767]


@pytest.mark.parametrize("version", VERSIONS)
def test_damage_is_malformed_or_a_request(version):
    rng = random.Random(version)
    for message in SHAPES:
        data = encode(message, version)
        for cut in range(len(data)):
            with pytest.raises(MalformedMessage):
                read_produce_request(memoryview(data[:cut]), 0, version)
            with contextlib.suppress(MalformedMessage):
                assert read_single_partition(memoryview(data[:cut]), 0, version) is None
        for _ in range(200):
            damaged = bytearray(data)
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            view = memoryview(bytes(damaged))
            try:
                found = read_single_partition(view, 0, version)
                long = read_produce_request(view, 0, version)
            except MalformedMessage:
                continue
            if found is not None:
                assert bytes(found[1]) == bytes(long.topics[0].partitions[0][1])


INT64 = st.integers(-1, 2**63 - 1)
NAMES = st.text("täø", min_size=1, max_size=4)
BATCHES = st.lists(st.tuples(st.integers(0, 99), st.just(b"h" * 61), st.binary(max_size=200)), min_size=1, max_size=3)


@given(
    st.lists(st.tuples(NAMES, st.binary(min_size=16, max_size=16), BATCHES), min_size=1, max_size=3),
    st.sampled_from(VERSIONS),
    st.none() | NAMES,
)
def test_a_written_request_is_read_by_hand_and_by_the_codec(topics, version, transactional_id):
    writer = ProduceRequestWriter(-1, 1500)
    for _ in range(2):  # the second one finds what stands in front of a single batch
        data = b"".join(writer.write(version, topics, transactional_id))
    expected = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1500,
        topic_data=[
            TopicProduceData(
                **({"topic_id": UUID(bytes=topic_id)} if version >= 13 else {"name": name}),
                partition_data=[PartitionProduceData(index=i, records=head + rest) for i, head, rest in batches],
            )
            for name, topic_id, batches in topics
        ],
    )
    assert decode(ProduceRequest, version, data) == (expected, len(data))
    read = read_produce_request(memoryview(data), 0, version)
    assert (read.transactional_id, read.acks, read.timeout_ms) == (transactional_id, -1, 1500)
    assert [
        (topic.topic_id.bytes if version >= 13 else topic.name, [(i, bytes(part)) for i, part in topic.partitions])
        for topic in read.topics
    ] == [
        (topic_id if version >= 13 else name, [(index, head + rest) for index, head, rest in batches])
        for name, topic_id, batches in topics
    ]


ERRORS = st.builds(
    BatchIndexAndErrorMessage, batch_index=st.integers(0, 9), batch_index_error_message=st.none() | NAMES
)
LEADERS = st.builds(LeaderIdAndEpoch, leader_id=st.integers(-1, 3), leader_epoch=st.integers(-1, 3))
PARTITION_RESPONSES = st.builds(
    PartitionProduceResponse,
    index=st.integers(0, 99),
    error_code=st.sampled_from([0, 0, 6, 87]),
    base_offset=INT64,
    log_append_time_ms=INT64,
    log_start_offset=INT64,
    record_errors=st.just([]) | st.lists(ERRORS, max_size=2),
    error_message=st.none() | NAMES,
    current_leader=st.none() | LEADERS,
)
RESPONSES = st.builds(
    ProduceResponse,
    responses=st.lists(
        st.builds(
            TopicProduceResponse,
            name=NAMES,
            topic_id=st.uuids(),
            partition_responses=st.lists(PARTITION_RESPONSES, max_size=3),
        ),
        max_size=3,
    ),
    throttle_time_ms=st.sampled_from([0, 7]),
    node_endpoints=st.just([]) | st.lists(st.builds(NodeEndpoint, node_id=st.integers(0, 9)), max_size=1),
)


def values(message, version):
    """What `read_produce_response` returns for a message of the codec's."""
    return (
        [
            (
                topic.topic_id.bytes if version >= 13 else topic.name,
                [
                    (
                        each.index,
                        each.error_code,
                        each.base_offset,
                        each.log_append_time_ms,
                        each.log_start_offset,
                        tuple((error.batch_index, error.batch_index_error_message) for error in each.record_errors),
                        each.error_message,
                        each.current_leader.leader_id,
                        each.current_leader.leader_epoch,
                    )
                    for each in topic.partition_responses
                ],
            )
            for topic in message.responses
        ],
        message.throttle_time_ms,
        list(message.node_endpoints),
    )


def read_values(data, position, version):
    read = read_produce_response(data, position, version)
    return read.topics, read.throttle_time_ms, list(read.node_endpoints)


@given(RESPONSES, st.sampled_from(VERSIONS))
def test_reads_the_response_that_the_codec_reads(response, version):
    data = b"head" + encode(response, version)
    assert read_values(data, 4, version) == values(decode(ProduceResponse, version, data, 4)[0], version)


@given(RESPONSES, st.sampled_from(VERSIONS), st.data())
def test_a_damaged_response_is_refused_as_by_the_codec(response, version, draw):
    data = bytearray(encode(response, version))
    if draw.draw(st.booleans()):
        del data[draw.draw(st.integers(0, len(data) - 1)) :]
    else:
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    try:
        expected = values(decode(ProduceResponse, version, bytes(data))[0], version)
    except MalformedMessage:
        with pytest.raises(MalformedMessage):
            read_produce_response(bytes(data), 0, version)
    else:
        assert read_values(bytes(data), 0, version) == expected


@given(
    st.lists(
        st.tuples(
            NAMES,
            st.uuids(),
            st.lists(
                st.builds(
                    PartitionResponse,
                    st.integers(0, 99),
                    st.sampled_from([0, 0, 6]),
                    INT64,
                    INT64,
                    INT64,
                    st.just(()) | st.lists(st.tuples(st.integers(0, 9), st.none() | NAMES), max_size=2).map(tuple),
                    st.none() | NAMES,
                    st.just(-1),
                    st.just(-1),
                ),
                max_size=3,
            ),
        ),
        max_size=3,
    ),
    st.sampled_from(VERSIONS),
)
def test_a_written_response_is_read_by_hand_and_by_the_codec(topics, version):
    parts = [(produce.TopicProduceData(name, topic_id, []), results) for name, topic_id, results in topics]
    data = encode_produce_response(parts, version, 7)
    message, end = decode(ProduceResponse, version, data)
    assert end == len(data)
    read = read_produce_response(data, 0, version)
    assert (read.topics, read.throttle_time_ms, list(read.node_endpoints)) == values(message, version)
    left_out = {"log_start_offset": -1} if version < 5 else {}
    if version < 8:
        left_out |= {"record_errors": (), "error_message": None}
    assert read.topics == [
        (topic_id.bytes if version >= 13 else name, [result._replace(**left_out) for result in results])
        for name, topic_id, results in topics
    ]
    assert read.throttle_time_ms == 7


def test_the_usual_response_needs_no_codec(monkeypatch):
    monkeypatch.setattr(produce, "decode", None)
    for version in range(9, 14):
        topic = produce.TopicProduceData("orders", TOPIC_ID, [])
        data = encode_produce_response([(topic, [PartitionResponse(3, 0, 1000, -1, 5)])], version)
        key = TOPIC_ID.bytes if version >= 13 else "orders"
        assert read_values(data, 0, version) == ([(key, [PartitionResponse(3, 0, 1000, -1, 5)])], 0, [])


@pytest.mark.parametrize("version", range(10, 14))
def test_a_response_names_the_leaders_of_partitions_that_have_moved(version):
    topic_id = UUID(int=7)
    topic = produce.TopicProduceData("t" if version < 13 else "", topic_id if version >= 13 else None, [])
    results = [
        PartitionResponse(0, 0, 1000, -1, 5),
        PartitionResponse(3, 6, error_message="moved", leader_id=2, leader_epoch=9),
        PartitionResponse(4, 87, record_errors=((1, "bad"),), error_message="refused"),
    ]
    data = encode_with_leaders([(topic, results)], version, [(2, "host", 9092, "rack")])
    response = read_produce_response(data, 0, version)
    assert response.topics == [(topic_id.bytes if version >= 13 else "t", results)]
    assert [(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints] == [(2, "host", 9092, "rack")]
