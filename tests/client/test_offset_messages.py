"""Requests about offsets and their responses, in every version that carries names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.offset_messages import (
    LATEST,
    NAMES_UNTIL,
    OffsetAndMetadata,
    PartitionOffset,
    by_topic,
    commit_answers,
    commit_request,
    committed_answers,
    committed_request,
    epoch_answers,
    epoch_request,
    offset_answers,
    offset_request,
)
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages import list_offsets, offset_commit, offset_fetch, offset_for_leader_epoch
from barnabas.types import TopicPartition

A0, A2, B1 = TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)


@given(st.lists(st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 9)), unique=True))
def test_partitions_are_grouped_and_none_is_lost(partitions: list[TopicPartition]) -> None:
    grouped = by_topic(partitions)
    found = [TopicPartition(topic, index) for topic, indexes in grouped.items() for index in indexes]
    assert sorted(found) == sorted(partitions)
    assert len(grouped) == len({partition.topic for partition in partitions})


@pytest.mark.parametrize("version", range(2, NAMES_UNTIL + 1))
def test_committed_offsets_are_asked_for_in_every_version(version: int) -> None:
    for partitions, asked in (([A0, B1, A2], {"a": [0, 2], "b": [1]}), (None, None), ([], {})):
        written = encode(committed_request(version, "g", partitions, require_stable=version >= 7), version)
        request, end = decode(offset_fetch.OffsetFetchRequest, version, written)
        group = request.groups[0] if version >= 8 else request
        topics = group.topics and {topic.name: list(topic.partition_indexes) for topic in group.topics}
        assert (group.group_id, end, request.require_stable) == ("g", len(written), version >= 7)
        assert topics == asked if asked else group.topics == (None if asked is None else [])


def test_committed_offsets_are_read_from_both_forms() -> None:
    partitions = [
        {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": 3, "metadata": "note"},
        {"partition_index": 1, "committed_offset": -1},
        {"partition_index": 2, "committed_offset": 7, "error_code": 3},
    ]
    old = offset_fetch.OffsetFetchResponseTopic(
        name="a", partitions=[offset_fetch.OffsetFetchResponsePartition(**fields) for fields in partitions]
    )
    new = offset_fetch.OffsetFetchResponseTopics(
        name="a", partitions=[offset_fetch.OffsetFetchResponsePartitions(**fields) for fields in partitions]
    )
    group = offset_fetch.OffsetFetchResponseGroup(group_id="g", topics=[new], error_code=15)
    expected = {A0: (0, OffsetAndMetadata(5, "note", 3)), TopicPartition("a", 1): (0, None), A2: (3, None)}
    assert committed_answers(offset_fetch.OffsetFetchResponse(topics=[old], error_code=15)) == (15, expected)
    assert committed_answers(offset_fetch.OffsetFetchResponse(groups=[group])) == (15, expected)


def test_a_commit_names_each_partition_once() -> None:
    offsets = {A0: OffsetAndMetadata(1, "x", 4), B1: OffsetAndMetadata(2), A2: OffsetAndMetadata(3)}
    request = commit_request("g", offsets, generation_id=6, member_id="m", group_instance_id="i")
    assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (6, "m", "i")
    assert {
        TopicPartition(topic.name, p.partition_index): (
            p.committed_offset,
            p.committed_metadata,
            p.committed_leader_epoch,
        )
        for topic in request.topics
        for p in topic.partitions
    } == offsets
    answer = offset_commit.OffsetCommitResponsePartition(partition_index=2, error_code=27)
    topic = offset_commit.OffsetCommitResponseTopic(name="a", partitions=[answer])
    assert commit_answers(offset_commit.OffsetCommitResponse(topics=[topic])) == {A2: 27}


def test_offsets_of_the_log_are_asked_for_in_the_leaders_epoch() -> None:
    request = offset_request({A0: LATEST, B1: 5}, read_committed=True, timeout_ms=9, leader_epochs={B1: 3})
    assert (request.isolation_level, request.timeout_ms, request.replica_id) == (1, 9, -1)
    asked = [
        (t.name, p.partition_index, p.timestamp, p.current_leader_epoch) for t in request.topics for p in t.partitions
    ]
    assert asked == [("a", 0, LATEST, -1), ("b", 1, 5, 3)]
    answer = list_offsets.ListOffsetsPartitionResponse(partition_index=1, offset=8, timestamp=6, leader_epoch=2)
    topic = list_offsets.ListOffsetsTopicResponse(name="b", partitions=[answer])
    found = list(offset_answers(list_offsets.ListOffsetsResponse(topics=[topic])))
    assert found == [(B1, 0, PartitionOffset(8, 6, 2))]


def test_ends_of_epochs_are_asked_for_and_read() -> None:
    request = epoch_request({A0: 4, A2: 5}, {A2: 7})
    (topic,) = request.topics
    assert [(p.partition, p.leader_epoch, p.current_leader_epoch) for p in topic.partitions] == [(0, 4, -1), (2, 5, 7)]
    answer = offset_for_leader_epoch.EpochEndOffset(partition=2, leader_epoch=4, end_offset=30, error_code=0)
    result = offset_for_leader_epoch.OffsetForLeaderTopicResult(topic="a", partitions=[answer])
    response = offset_for_leader_epoch.OffsetForLeaderEpochResponse(topics=[result])
    assert list(epoch_answers(response)) == [(A2, 0, (4, 30))]
