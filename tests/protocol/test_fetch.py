"""Fetch responses that are read and written by hand mean what the codec says they mean."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import fetch
from barnabas.protocol.codec import MalformedMessage, decode, encode
from barnabas.protocol.fetch import PartitionData, encode_fetch_response, from_message, read_fetch_response
from barnabas.protocol.messages import fetch as messages
from barnabas.records.file_slice import FileSlice

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
    *("preferred_read_replica", "leader_id", "leader_epoch"),
)
BEFORE = b"\0\1\2"
VERSIONS = st.integers(messages.FetchResponse.FIRST_VERSION, messages.FetchResponse.LAST_VERSION)


def plain(response: fetch.FetchResponse) -> Any:
    """As values."""
    return (
        response.throttle_time_ms,
        response.error_code,
        response.session_id,
        list(response.node_endpoints),
        [
            (
                topic,
                [
                    (
                        [getattr(each, name) for name in OF_PARTITION],
                        list(each.aborted_transactions or ()),
                        None if not each.records else (each.records.start, each.records.end),
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in response.topics
        ],
    )


def by_codec(data: bytes, version: int) -> Any:
    return plain(from_message(decode(messages.FetchResponse, version, data, len(BEFORE), parts=True)[0]))


@given(RESPONSE, VERSIONS)
def test_reads_what_the_codec_reads(response: messages.FetchResponse, version: int) -> None:
    data = BEFORE + encode(response, version)
    assert plain(read_fetch_response(data, len(BEFORE), version)) == by_codec(data, version)


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
            read_fetch_response(bytes(data), len(BEFORE), version)
    else:
        assert plain(read_fetch_response(bytes(data), len(BEFORE), version)) == expected


def test_the_usual_response_needs_no_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would cost a consumer more than all else that it does for a record."""
    partition = messages.PartitionData(high_watermark=5, records=b"x" * 200)
    topic = messages.FetchableTopicResponse(topic_id=UUID(int=5), topic="t", partitions=[partition])
    response = messages.FetchResponse(session_id=5, responses=[topic])
    monkeypatch.setattr(fetch, "decode", None)
    for version in range(12, 19):
        read = read_fetch_response(encode(response, version), 0, version)
        ((_, (data,)),) = read.topics
        assert bytes(data.records) == b"x" * 200


WRITTEN = st.builds(
    PartitionData,
    partition=st.integers(0, 2**31 - 1),
    error_code=st.sampled_from([0, 0, 1, 6]),
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    aborted_transactions=st.none() | st.lists(st.tuples(INT64, INT64), max_size=2),
    preferred_read_replica=st.integers(-1, 5),
    diverging_epoch=st.none() | st.tuples(st.integers(0, 9), INT64),
)


WRITTEN_RECORDS = st.tuples(WRITTEN, st.none() | st.binary(max_size=300))
WRITTEN_TOPIC = st.tuples(st.text("täø", min_size=1, max_size=4), st.uuids(), st.lists(WRITTEN_RECORDS, max_size=3))
WrittenTopic = tuple[str, UUID, list[tuple[PartitionData, bytes | None]]]


def joined(parts: list[bytes | FileSlice], file: Path) -> bytes:
    """The parts as they leave, with the bytes that stand in the file."""
    data = file.read_bytes()
    return b"".join(part if isinstance(part, bytes) else data[part.position :][: part.size] for part in parts)


@given(
    st.lists(
        st.tuples(st.text("täø", min_size=1, max_size=4), st.uuids(), st.lists(WRITTEN_RECORDS, max_size=3)), max_size=3
    ),
    VERSIONS,
)
def test_what_is_written_is_read_by_hand_and_by_the_codec(
    tmp_path_factory: pytest.TempPathFactory,
    topics: list[tuple[str, UUID, list[tuple[PartitionData, bytes | None]]]],
    version: int,
) -> None:
    file = tmp_path_factory.mktemp("segment") / "0.log"
    segment = bytearray(b"before")
    expected = []
    for name, topic_id, partitions in topics:
        of_topic = []
        for data, records in partitions:
            if records is not None:
                data.records = FileSlice(-1, len(segment), len(records))
                segment += records
            aborted = data.aborted_transactions
            of_topic.append(
                messages.PartitionData(
                    partition_index=data.partition,
                    error_code=data.error_code,
                    high_watermark=data.high_watermark,
                    last_stable_offset=data.last_stable_offset,
                    log_start_offset=data.log_start_offset if version >= 5 else -1,
                    diverging_epoch=messages.EpochEndOffset()
                    if data.diverging_epoch is None
                    else (messages.EpochEndOffset(epoch=data.diverging_epoch[0], end_offset=data.diverging_epoch[1])),
                    aborted_transactions=None
                    if aborted is None
                    else [messages.AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted],
                    preferred_read_replica=data.preferred_read_replica if version >= 11 else -1,
                    records=records or b"",
                )
            )
            if version < 12:
                of_topic[-1].diverging_epoch = messages.EpochEndOffset()
        key = {"topic_id": topic_id} if version >= 13 else {"topic": name}
        expected.append(messages.FetchableTopicResponse(partitions=of_topic, **key))
    file.write_bytes(segment)
    keyed = [(topic_id if version >= 13 else name, [data for data, _ in found]) for name, topic_id, found in topics]
    parts = encode_fetch_response(keyed, version, BEFORE, session_id=5, throttle_time_ms=7)
    written = joined(parts, file)
    message, end = decode(messages.FetchResponse, version, written, len(BEFORE))
    assert end == len(written)
    assert message == messages.FetchResponse(
        throttle_time_ms=7, session_id=5 if version >= 7 else 0, responses=expected
    )
    read = read_fetch_response(written, len(BEFORE), version)
    assert plain(read) == by_codec(written, version)
    diverging = [[each.diverging_epoch for each in partitions] for _, partitions in read.topics]
    assert diverging == [[data.diverging_epoch if version >= 12 else None for data, _ in found] for *_, found in topics]


@pytest.mark.parametrize("version", [16, 17, 18])
@pytest.mark.parametrize("diverging", [None, (3, 40)])
def test_a_response_names_the_leaders_of_partitions_that_have_moved(
    version: int, diverging: tuple[int, int] | None
) -> None:
    moved = PartitionData(1, 6, diverging_epoch=diverging)
    moved.leader_id, moved.leader_epoch = 2, 9
    topic_id = UUID(int=7)
    brokers = [(2, "host", 9092, None), (3, "other", 9093, "rack")]
    (written,) = encode_fetch_response([(topic_id, [PartitionData(0), moved])], version, BEFORE, brokers=brokers)
    assert isinstance(written, bytes)
    message, end = decode(messages.FetchResponse, version, written, len(BEFORE))
    assert end == len(written)
    assert [(n.node_id, n.host, n.port, n.rack) for n in message.node_endpoints] == brokers
    read = read_fetch_response(written, len(BEFORE), version)
    first, second = read.topics[0][1]
    assert (first.leader_id, first.leader_epoch) == (-1, -1)
    assert (second.leader_id, second.leader_epoch, second.diverging_epoch) == (2, 9, diverging)
