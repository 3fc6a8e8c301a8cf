"""A Fetch answer that is read by hand says what the codec reads of it, and is refused where that refuses it."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.fetch import fetch_response
from barnabas.client.fetch.fetch_response import FetchAnswer, answer_of, read_answer
from barnabas.protocol.codec import MalformedMessage, Part, decode, encode
from barnabas.protocol.messages import fetch as messages

INT64 = st.integers(-1, 2**63 - 1)
ABORTED = st.builds(messages.AbortedTransaction, producer_id=INT64, first_offset=INT64)
PARTITION = st.builds(
    messages.PartitionData,
    partition_index=st.integers(0, 2**31 - 1),
    error_code=st.sampled_from([0, 0, 0, 1, 6]),
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    current_leader=st.sampled_from([messages.LeaderIdAndEpoch()] * 3 + [messages.LeaderIdAndEpoch(leader_id=7)]),
    aborted_transactions=st.none() | st.just([]) | st.lists(ABORTED, max_size=2),
    preferred_read_replica=st.integers(-1, 5),
    records=st.none() | st.binary(max_size=300),
)
TOPIC = st.builds(
    messages.FetchableTopicResponse,
    topic_id=st.uuids(),
    topic=st.text("täø", min_size=1, max_size=4),
    partitions=st.lists(PARTITION, max_size=3),
)
NODE = st.builds(messages.NodeEndpoint, node_id=st.integers(0, 9), host=st.just("h"), port=st.just(9092))
RESPONSE = st.builds(
    messages.FetchResponse,
    throttle_time_ms=st.sampled_from([0, 7]),
    error_code=st.sampled_from([0, 0, 70]),
    session_id=st.integers(0, 2**31 - 1),
    responses=st.lists(TOPIC, max_size=3),
    node_endpoints=st.just([]) | st.lists(NODE, max_size=1),
)
OF_PARTITION = (
    *("partition", "error_code", "high_watermark", "last_stable_offset", "log_start_offset"),
    *("preferred_replica", "aborted", "leader", "leader_epoch"),
)
BEFORE = b"\0\1\2"
VERSIONS = st.integers(messages.FetchResponse.FIRST_VERSION, messages.FetchResponse.LAST_VERSION)


def plain(answer: FetchAnswer) -> Any:
    """As values."""
    return (
        answer.throttle_time_ms,
        answer.error_code,
        answer.session_id,
        answer.brokers,
        [
            (topic.name, topic.topic_id, [[getattr(each, name) for name in OF_PARTITION] for each in topic.partitions])
            for topic in answer.topics
        ],
        [
            (each.records.start, each.records.end) if isinstance(each.records, Part) and each.records else None
            for topic in answer.topics
            for each in topic.partitions
        ],
    )


def by_codec(data: bytes, version: int) -> Any:
    return plain(answer_of(decode(messages.FetchResponse, version, data, len(BEFORE), parts=True)[0]))


@given(RESPONSE, VERSIONS)
def test_it_says_what_the_codec_reads(response: messages.FetchResponse, version: int) -> None:
    data = BEFORE + encode(response, version)
    assert plain(read_answer(data, len(BEFORE), version)) == by_codec(data, version)


@given(RESPONSE, st.integers(12, 18), st.data())
def test_what_is_cut_off_or_changed_is_refused_as_by_the_codec(
    response: messages.FetchResponse, version: int, draw: st.DataObject
) -> None:
    data = bytearray(BEFORE + encode(response, version))
    if draw.draw(st.booleans()):
        del data[draw.draw(st.integers(len(BEFORE), len(data) - 1)) :]
    else:
        data[draw.draw(st.integers(len(BEFORE), len(data) - 1))] = draw.draw(st.integers(0, 255))
    try:
        expected = by_codec(bytes(data), version)
    except MalformedMessage:
        with pytest.raises(MalformedMessage):
            read_answer(bytes(data), len(BEFORE), version)
    else:
        assert plain(read_answer(bytes(data), len(BEFORE), version)) == expected


def test_the_usual_answer_needs_no_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would cost a consumer more than all else that it does for a record."""
    partition = messages.PartitionData(high_watermark=5, records=b"x" * 200)
    topic = messages.FetchableTopicResponse(topic_id=UUID(int=5), topic="t", partitions=[partition])
    response = messages.FetchResponse(session_id=5, responses=[topic])
    monkeypatch.setattr(fetch_response, "decode", None)
    for version in range(12, 19):
        answer = read_answer(encode(response, version), 0, version)
        assert bytes(answer.topics[0].partitions[0].records or b"") == b"x" * 200
