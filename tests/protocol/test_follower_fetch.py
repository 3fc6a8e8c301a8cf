"""A follower's Fetch request by hand and by the codec: the same bytes, the same values, the same errors."""

import contextlib
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import follower_fetch
from barnabas.protocol.codec import MalformedMessage, decode, encode
from barnabas.protocol.follower_fetch import FollowerFetchRequest, encode_follower_fetch, read_follower_fetch
from barnabas.protocol.messages import fetch as messages

INT32 = st.integers(-1, 2**31 - 1)
INT64 = st.integers(-1, 2**63 - 1)
IDS = st.sampled_from([UUID(int=each).bytes for each in (1, 2, 2**127)])
REQUEST = st.builds(
    FollowerFetchRequest,
    INT32, INT64, INT32, INT32, INT32, INT32, INT32,
    st.lists(st.tuples(IDS, INT32, INT32, INT64, INT32, INT64, INT32), max_size=200),
    st.lists(st.tuples(IDS, INT32), max_size=200),
)  # fmt: skip
FIELDS = ("replica_id", "replica_epoch", "max_wait_ms", "min_bytes", "max_bytes", "session_id", "session_epoch")
VERSIONS = st.integers(15, 18)


def plain(request: FollowerFetchRequest) -> Any:
    return (
        [getattr(request, name) for name in FIELDS],
        sorted(request.partitions),
        sorted(request.forgotten),
    )


def message_of(request: FollowerFetchRequest) -> messages.FetchRequest:
    topics: dict[bytes, list[messages.FetchPartition]] = {}
    for topic_id, number, leader_epoch, offset, last_epoch, start, max_bytes in request.partitions:
        topics.setdefault(topic_id, []).append(
            messages.FetchPartition(
                partition=number,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                log_start_offset=start,
                partition_max_bytes=max_bytes,
            )
        )
    forgotten: dict[bytes, list[int]] = {}
    for topic_id, number in request.forgotten:
        forgotten.setdefault(topic_id, []).append(number)
    return messages.FetchRequest(
        replica_state=messages.ReplicaState(replica_id=request.replica_id, replica_epoch=request.replica_epoch),
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=[messages.FetchTopic(topic_id=UUID(bytes=key), partitions=each) for key, each in topics.items()],
        forgotten_topics_data=[
            messages.ForgottenTopic(topic_id=UUID(bytes=key), partitions=numbers) for key, numbers in forgotten.items()
        ],
    )


@given(REQUEST, VERSIONS)
def test_what_is_written_is_read_by_hand_and_by_the_codec(request: FollowerFetchRequest, version: int) -> None:
    body = bytes(encode_follower_fetch(request))
    message, end = decode(messages.FetchRequest, version, body)
    assert end == len(body)
    assert message == message_of(request)
    assert plain(read_follower_fetch(body, version)) == plain(request)


@given(REQUEST, VERSIONS, st.text(max_size=200), st.none() | st.text(max_size=5), st.integers(0, 2**62))
def test_what_another_release_adds_is_read_by_the_codec(
    request: FollowerFetchRequest, version: int, rack: str, cluster_id: str | None, high_watermark: int
) -> None:
    message = message_of(request)
    message.rack_id = rack
    message.cluster_id = cluster_id
    for topic in message.topics:
        topic.partitions[0].high_watermark = high_watermark
    assert plain(read_follower_fetch(encode(message, version), version)) == plain(request)


@given(REQUEST, VERSIONS, st.data())
def test_what_is_cut_off_or_changed_is_read_or_refused(
    request: FollowerFetchRequest, version: int, data: st.DataObject
) -> None:
    body = bytes(encode_follower_fetch(request))
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    with pytest.raises(MalformedMessage):
        read_follower_fetch(cut, version)
    position = data.draw(st.integers(0, len(body) - 1))
    changed = body[:position] + bytes([data.draw(st.integers(0, 255))]) + body[position + 1 :]
    with contextlib.suppress(MalformedMessage):
        read_follower_fetch(changed, version)


def test_the_usual_request_needs_no_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    request = FollowerFetchRequest(2, 7, 500, 1, 1000, 5, 6, [(bytes(16), 0, 1, 2, 3, 4, 5)], [(bytes(16), 1)])
    body = bytes(encode_follower_fetch(request))
    monkeypatch.setattr(follower_fetch, "decode", None)
    assert plain(read_follower_fetch(body, 18)) == plain(request)
