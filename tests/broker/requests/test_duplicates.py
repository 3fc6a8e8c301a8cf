"""What a request names twice is answered once."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.requests import sliced_responses as sliced_responses
from barnabas.broker.requests.duplicates import once, partitions_once, topics_once
from barnabas.controller.requests import ResourceType
from barnabas.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.schema import Request
from barnabas.testing import Broker
from broker.sent_requests import topic_id
from broker.wire import Wire

TOPIC = ResourceType.TOPIC


def test_the_first_of_several_with_one_key_counts() -> None:
    assert once(["a", "bb", "c", "dd"], len) == ["a", "bb"]
    assert partitions_once([("t", [1, 0, 1]), ("u", [0]), ("t", [0, 2])]) == {"t": [1, 0, 2], "u": [0]}


def test_what_a_request_says_last_of_a_partition_counts() -> None:
    def topic(name: str, *partitions: tuple[int, str]) -> Any:
        return SimpleNamespace(
            name=name, partitions=[SimpleNamespace(partition_index=index, value=value) for index, value in partitions]
        )

    topics = [topic("t", (0, "a"), (1, "b")), topic("u"), topic("t", (0, "c"))]
    found = topics_once(topics, lambda topic: topic.name)
    assert [(t.name, [(p.partition_index, p.value) for p in t.partitions]) for t in found] == [
        ("t", [(0, "c"), (1, "b")]),
        ("u", []),
    ]


TWICE: dict[str, tuple[Callable[[Broker], Request], int, Callable[[Any], int]]] = {
    "DescribeConfigs": (
        lambda _: DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=None)] * 9
        ),
        4,
        lambda response: len(response.results),
    ),
    "DescribeConfigs of an unknown type": (
        lambda _: DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=99, resource_name="t")] * 9),
        4,
        lambda response: len(response.results),
    ),
    "DescribeProducers": (
        lambda _: DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0] * 9)] * 9),
        0,
        lambda response: sum(len(topic.partitions) for topic in response.topics),
    ),
    "DescribeGroups": (lambda _: DescribeGroupsRequest(groups=["g"] * 9), 5, lambda response: len(response.groups)),
    "DescribeTransactions": (
        lambda _: DescribeTransactionsRequest(transactional_ids=["x"] * 9),
        0,
        lambda response: len(response.transaction_states),
    ),
    "FindCoordinator": (
        lambda _: FindCoordinatorRequest(coordinator_keys=["g"] * 9),
        4,
        lambda response: len(response.coordinators),
    ),
    "OffsetFetch of one group": (
        lambda _: OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0] * 9)] * 9
        ),
        7,
        lambda response: sum(len(topic.partitions) for topic in response.topics),
    ),
    "OffsetFetch of all topics": (
        lambda _: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)] * 9),
        8,
        lambda response: len(response.groups),
    ),
    "OffsetFetch by id": (
        lambda broker: OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[OffsetFetchRequestTopics(topic_id=topic_id(broker, "t"), partition_indexes=[0] * 9)] * 9,
                )
            ]
        ),
        10,
        lambda response: sum(len(topic.partitions) for topic in response.groups[0].topics),
    ),
    "OffsetForLeaderEpoch": (
        lambda _: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=0)] * 9)] * 9
        ),
        4,
        lambda response: sum(len(topic.partitions) for topic in response.topics),
    ),
    "DeleteRecords": (
        lambda _: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0)] * 9)] * 9
        ),
        2,
        lambda response: sum(len(topic.partitions) for topic in response.topics),
    ),
    "ElectLeaders": (
        lambda _: ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0] * 9)] * 9),
        2,
        lambda response: sum(len(topic.partition_result) for topic in response.replica_election_results),
    ),
    "OffsetCommit": (
        lambda _: OffsetCommitRequest(
            group_id="g",
            topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()] * 9)] * 9,
        ),
        8,
        lambda response: sum(len(topic.partitions) for topic in response.topics),
    ),
    "OffsetDelete": (
        lambda _: OffsetDeleteRequest(
            group_id="g",
            topics=[OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition()] * 9)] * 9,
        ),
        0,
        lambda response: sum(len(topic.partitions) for topic in response.topics),
    ),
    "TxnOffsetCommit": (
        lambda _: TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            topics=[TxnOffsetCommitRequestTopic(name="gone", partitions=[TxnOffsetCommitRequestPartition()] * 9)] * 9,
        ),
        3,
        lambda response: sum(len(topic.partitions) for topic in response.topics),
    ),
    "LeaveGroup": (
        lambda _: LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")] * 9),
        4,
        lambda response: len(response.members),
    ),
    "WriteTxnMarkers": (
        lambda _: WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(producer_id=5, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0] * 9)])
            ]
            * 9
        ),
        1,
        lambda response: len(response.markers) * len(response.markers[0].topics[0].partitions),
    ),
}


@pytest.mark.parametrize("api", TWICE)
def test_what_is_named_several_times_is_answered_once(api: str, broker: Broker, wire: Wire) -> None:
    broker.create_topic("t")
    wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    wire.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
    partitions = [OffsetCommitRequestPartition(committed_offset=1)]
    commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])
    wire.ask(commit, 8)
    request, version, count = TWICE[api]
    assert count(wire.ask(request(broker), version)) == 1


def test_a_marker_is_written_once(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t")
    marker = WritableTxnMarker(
        producer_id=5, transaction_result=True, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
    )
    wire.ask(WriteTxnMarkersRequest(markers=[marker] * 9), 1)
    assert broker.end_offsets("t") == [1]
