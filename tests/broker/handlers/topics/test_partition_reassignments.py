"""AlterPartitionReassignments and ListPartitionReassignments, over the wire's messages."""

import pytest

from barnabas.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from broker.admin_rig import ask, versions
from broker.handlers.lone_controller import LoneController
from broker.handlers.lone_controller import lone_controller as lone_controller

Target = list[int] | None


@pytest.fixture
def two_brokers(lone_controller: LoneController) -> LoneController:
    lone_controller.create("a", [1], [1], [1])
    lone_controller.create("b", [1])
    return lone_controller


def request(
    targets: dict[tuple[str, int], Target], *, may_change_factor: bool = True
) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change_factor,
        topics=[
            ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)])
            for (name, index), replicas in targets.items()
        ],
    )


def alter(
    broker: LoneController,
    targets: dict[tuple[str, int], Target],
    version: int | None = None,
    *,
    may_change_factor: bool = True,
) -> dict[tuple[str, int], int]:
    answer = ask(broker, request(targets, may_change_factor=may_change_factor), version)
    assert (answer.error_code, answer.error_message) == (0, None)
    for topic in answer.responses:
        for partition in topic.partitions:
            assert (partition.error_message is None) == (partition.error_code == 0)
    return {
        (topic.name, each.partition_index): each.error_code for topic in answer.responses for each in topic.partitions
    }


def listed(broker: LoneController, asked: dict[str, list[int]] | None) -> dict[tuple[str, int], tuple[list[int], ...]]:
    topics = None
    if asked is not None:
        topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=ids) for name, ids in asked.items()]
    answer = ask(broker, ListPartitionReassignmentsRequest(topics=topics))
    assert (answer.error_code, answer.error_message) == (0, None)
    return {
        (topic.name, each.partition_index): (
            *(list(each.replicas), list(each.adding_replicas), list(each.removing_replicas)),
        )
        for topic in answer.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS))
def test_reassignments_begin_are_listed_and_are_cancelled(two_brokers: LoneController, version: int) -> None:
    assert listed(two_brokers, None) == {}
    targets: dict[tuple[str, int], Target] = {
        ("a", 0): [2],
        ("a", 2): [1, 2],
        ("b", 0): [1],
        ("a", 7): [1],
        ("c", 0): [1],
    }
    missing = UnknownTopicOrPartition.code
    assert alter(two_brokers, targets, version) == {
        **dict.fromkeys((("a", 0), ("a", 2), ("b", 0)), 0),
        **dict.fromkeys((("a", 7), ("c", 0)), missing),
    }
    begun = {("a", 0): ([2, 1], [2], [1]), ("a", 2): ([1, 2], [2], [])}
    assert listed(two_brokers, None) == begun
    assert listed(two_brokers, {"a": [2, 1, 9], "c": [0]}) == {("a", 2): begun["a", 2]}
    assert listed(two_brokers, {}) == {}
    assert alter(two_brokers, {("a", 0): None, ("b", 0): None}, version) == {
        ("a", 0): 0,
        ("b", 0): NoReassignmentInProgress.code,
    }
    assert listed(two_brokers, None) == {("a", 2): begun["a", 2]}


def test_what_is_refused(two_brokers: LoneController) -> None:
    assert alter(two_brokers, {("a", 0): [1, 2], ("a", 1): [2]}, may_change_factor=False) == {
        ("a", 0): InvalidReplicationFactor.code,
        ("a", 1): 0,
    }
    assert alter(two_brokers, {("a", 0): [3], ("a", 2): []}) == {
        ("a", 0): InvalidReplicaAssignment.code,
        ("a", 2): InvalidReplicaAssignment.code,
    }


def test_one_request_cannot_move_without_end(two_brokers: LoneController) -> None:
    answer = ask(two_brokers, request({("a", index): [1] for index in range(10_001)}))
    assert answer.error_code == PolicyViolation.code
    assert not answer.responses
