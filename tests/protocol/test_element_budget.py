"""The most elements that a request may have, whatever its size: what bounds its memory and the time it takes."""

import struct
import tracemalloc

import pytest

from barnabas.protocol.codec import (
    ARRAY_ELEMENTS_MAX,
    MalformedMessage,
    decode,
    encode,
)
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.protocol.primitives import REQUEST_ELEMENTS_MAX, TooManyElements, skip_tags, uvarint
from barnabas.protocol.produce import read_produce_request


def offset_fetch(topics: int, partitions: int) -> bytes:
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=[7] * partitions)
    return encode(OffsetFetchRequest(group_id="g", topics=[topic] * topics), 7)


def test_a_request_at_the_limit_is_read() -> None:
    topics = 1000
    data = offset_fetch(topics, REQUEST_ELEMENTS_MAX // topics - 1)
    request, end = decode(OffsetFetchRequest, 7, data)
    assert end == len(data)
    assert request.topics is not None
    assert sum(len(topic.partition_indexes) + 1 for topic in request.topics) == REQUEST_ELEMENTS_MAX


@pytest.mark.parametrize(
    ("topics", "partitions"),
    [(1001, REQUEST_ELEMENTS_MAX // 1000 - 1), (1, REQUEST_ELEMENTS_MAX), (REQUEST_ELEMENTS_MAX + 1, 0)],
)
def test_elements_of_all_arrays_count_together(topics: int, partitions: int) -> None:
    data = offset_fetch(topics, partitions)
    with pytest.raises(TooManyElements):
        decode(OffsetFetchRequest, 7, data)


def test_tagged_fields_count() -> None:
    tags = 300_000
    data = encode(OffsetFetchRequest(group_id="g", topics=[]), 7)[:-1] + uvarint(tags) + b"\x7f\x00" * tags
    with pytest.raises(TooManyElements):
        decode(OffsetFetchRequest, 7, data)
    with pytest.raises(TooManyElements):
        skip_tags(uvarint(tags) + b"\x7f\x00" * tags, 0)


def test_refused_before_anything_is_made_of_it() -> None:
    """Apart from two copies of the body, of which one is gone at once."""
    data = b"\x02g\x00\x00\x00\x00\x01\x00" + uvarint(900_001) + b"\x01\x01\x00" * 4_000_000
    with pytest.raises(MalformedMessage):
        decode(OffsetCommitRequest, 8, b"")  # compiles the reader
    tracemalloc.start()
    try:
        with pytest.raises(TooManyElements):
            decode(OffsetCommitRequest, 8, memoryview(data))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(data) + 100_000


def test_responses_may_be_larger() -> None:
    brokers = [MetadataResponseBroker(node_id=1, host="h", port=1)] * (REQUEST_ELEMENTS_MAX + 1)
    data = encode(MetadataResponse(brokers=brokers, topics=[]), 0)
    assert len(decode(MetadataResponse, 0, data)[0].brokers) == REQUEST_ELEMENTS_MAX + 1
    assert len(brokers) <= ARRAY_ELEMENTS_MAX


@pytest.mark.parametrize("tagged", [False, True])
def test_produce_counts_as_well(tagged: bool) -> None:
    partition = struct.pack(">i", 1) + b"\x00" + (b"\x02\x7f\x00\x7e\x00" if tagged else b"\x00")
    count = REQUEST_ELEMENTS_MAX // (3 if tagged else 1)

    def request(partitions: int) -> memoryview:
        topic = b"\x02t" + uvarint(partitions + 1) + partition * partitions + b"\x00"
        return memoryview(b"\x00" + struct.pack(">hi", 1, 1000) + b"\x02" + topic + b"\x00")

    read = read_produce_request(request(count - 1), 0, 9)
    assert len(read.topics[0].partitions) == count - 1
    with pytest.raises(TooManyElements):
        read_produce_request(request(count + 1), 0, 9)


def test_produce_before_tagged_fields_counts_as_well() -> None:
    def request(partitions: int) -> memoryview:
        head = b"\xff\xff" + struct.pack(">hii", 1, 1000, 1) + b"\x00\x01t" + struct.pack(">i", partitions)
        return memoryview(head + struct.pack(">ii", 1, -1) * partitions)

    assert (
        len(read_produce_request(request(REQUEST_ELEMENTS_MAX - 1), 0, 3).topics[0].partitions)
        == REQUEST_ELEMENTS_MAX - 1
    )
    with pytest.raises(TooManyElements):
        read_produce_request(request(REQUEST_ELEMENTS_MAX), 0, 3)
