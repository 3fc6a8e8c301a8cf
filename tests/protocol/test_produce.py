"""Produce requests read by hand mean what the codec says they mean, and the short way means what the long way does."""

import contextlib
import random
from uuid import UUID

import pytest

from barnabas.protocol.codec import MalformedMessage, decode, encode
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.produce import (
    PartitionResult,
    encode_produce_response,
    read_produce_request,
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
    body = encode_produce_response([(topic, [PartitionResult(3, 0, 1000, -1, 5)])], version)
    header = b"\0" if version >= 9 else b""
    assert response == (len(body) + len(header) + 4).to_bytes(4, "big") + (77).to_bytes(4, "big") + header + body


@pytest.mark.parametrize("version", VERSIONS)
def test_response_is_what_the_codec_reads(version):
    topic = read_produce_request(memoryview(encode(SHAPES[0], version)), 0, version).topics[0]
    results = [
        PartitionResult(0, 0, 12, 34, 5),
        PartitionResult(1, 87, record_errors=[(3, "no key"), (9, None)], error_message="refused" * 5_000),
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
