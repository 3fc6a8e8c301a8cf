"""Requests as simulated brokers receive them, and the frames of responses."""

from typing import Any

from barnabas.broker.fetch_sessions import FetchPartition, FetchSession
from barnabas.protocol.apis import ApiKey, message_classes, request_header_version, response_header_version
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages import (
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_offsets,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
)
from barnabas.protocol.primitives import read_uvarint


class ReceivedRequest:
    """A request as a broker received it."""

    def __init__(self, node_id: int, api_key: int, version: int, correlation_id: int, request: Any) -> None:
        self.node_id = node_id
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.request = request
        self.received_at = 0.0
        self.link: Any = None
        """The connection that it came on; None for `Cluster.call`."""
        self.fault: Any = None
        self.fetched: tuple[FetchSession | None, list[FetchPartition]] = (None, [])
        """Of a Fetch: its session, and the partitions that it is about."""


def read_request(node_id: int, frame: bytes) -> ReceivedRequest:
    api_key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
    correlation_id = int.from_bytes(frame[4:8], "big")
    position = 10 + int.from_bytes(frame[8:10], "big")
    if request_header_version(api_key, version) >= 2:
        count, position = read_uvarint(frame, position)
        assert count == 0
    request, end = decode(message_classes(api_key)[0], version, frame, position)
    assert end == len(frame), f"{len(frame) - end} bytes follow the request {request}"
    return ReceivedRequest(node_id, api_key, version, correlation_id, request)


def frame_response(received: ReceivedRequest, response: Any, version: int | None = None) -> bytes:
    version = received.version if version is None else version
    head = received.correlation_id.to_bytes(4, "big")
    if response_header_version(received.api_key, version):
        head += b"\0"
    body = head + encode(response, version)
    return len(body).to_bytes(4, "big") + body


_WHOLE: dict[int, Any] = {
    ApiKey.JOIN_GROUP: join_group.JoinGroupResponse,
    ApiKey.SYNC_GROUP: sync_group.SyncGroupResponse,
    ApiKey.HEARTBEAT: heartbeat.HeartbeatResponse,
    ApiKey.LEAVE_GROUP: leave_group.LeaveGroupResponse,
}
_BY_PARTITION: dict[int, tuple[Any, Any, Any]] = {
    ApiKey.OFFSET_COMMIT: (
        offset_commit.OffsetCommitResponse,
        offset_commit.OffsetCommitResponseTopic,
        offset_commit.OffsetCommitResponsePartition,
    ),
    ApiKey.LIST_OFFSETS: (
        list_offsets.ListOffsetsResponse,
        list_offsets.ListOffsetsTopicResponse,
        list_offsets.ListOffsetsPartitionResponse,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        offset_for_leader_epoch.OffsetForLeaderEpochResponse,
        offset_for_leader_epoch.OffsetForLeaderTopicResult,
        offset_for_leader_epoch.EpochEndOffset,
    ),
}
"""The classes of response, topic and partition."""


def refusal(received: ReceivedRequest, code: int) -> Any:
    """Returns the response to a request all of whose parts fail with this error."""
    request = received.request
    if received.api_key in _WHOLE:
        return _WHOLE[received.api_key](error_code=code)
    if received.api_key == ApiKey.FIND_COORDINATOR:
        found = [find_coordinator.Coordinator(key=key, error_code=code) for key in request.coordinator_keys]
        return find_coordinator.FindCoordinatorResponse(coordinators=found)
    if received.api_key == ApiKey.OFFSET_FETCH:
        groups = [
            offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups
        ]
        return offset_fetch.OffsetFetchResponse(groups=groups)
    response_class, topic_class, partition_class = _BY_PARTITION[received.api_key]
    topics = []
    for asked in request.topics:
        topic = topic_class(partitions=[_partition(partition_class, p, code) for p in asked.partitions])
        for name in {"name", "topic"} & set(topic.__slots__):
            setattr(topic, name, getattr(asked, name))
        topics.append(topic)
    return response_class(topics=topics)


def _partition(partition_class: Any, asked: Any, code: int) -> Any:
    answer = partition_class(error_code=code)
    attribute = "partition_index" if "partition_index" in answer.__slots__ else "partition"
    setattr(answer, attribute, asked.partition_index if hasattr(asked, "partition_index") else asked.partition)
    return answer
