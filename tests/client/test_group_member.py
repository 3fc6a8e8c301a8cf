import threading
from collections.abc import Iterator

import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.group_member import GroupMember
from barnabas.errors import GroupIdNotFound, NonEmptyGroup, NotCoordinator, UnknownTopicOrPartition
from barnabas.testing import Broker
from barnabas.types import TopicPartition


@pytest.fixture
def topic(cluster: Cluster, name: str) -> str:
    Admin(cluster).create_topics([NewTopic(name, 4)])
    return name


@pytest.fixture
def other(broker: Broker) -> Iterator[Cluster]:
    """A second client's connections."""
    with Cluster(broker.bootstrap_servers, timeout_s=10) as cluster:
        yield cluster


def make(cluster: Cluster, group_id: str, **settings: int | str) -> GroupMember:
    return GroupMember(cluster, group_id, [group_id], heartbeat_interval_ms=10, **settings)  # type: ignore[arg-type]


def partitions(*numbers: int, topic: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def join_both(first: GroupMember, second: GroupMember) -> None:
    """Both members in one generation: the first notices the second by its heartbeats."""
    thread = threading.Thread(target=second.keep)
    thread.start()
    while thread.is_alive():
        first.keep()
    thread.join()
    while first.generation_id != second.generation_id:
        first.keep()
        second.keep()


def test_a_member_alone_gets_everything(cluster: Cluster, topic: str) -> None:
    member = make(cluster, topic)
    assert member.keep() == partitions(0, 1, 2, 3, topic=topic)
    assert member.keep() is None
    assert member.committed() == {}
    assert member.commit({TopicPartition(topic, 1): 5})
    assert member.committed() == {TopicPartition(topic, 1): 5}
    member.leave()
    assert Admin(cluster).describe_group(topic).state == "Empty"


def test_two_members_share_and_the_last_one_takes_over(cluster: Cluster, other: Cluster, topic: str) -> None:
    first, second = make(cluster, topic), make(other, topic)
    first.keep()
    join_both(first, second)
    assert sorted(first.assignment + second.assignment) == sorted(partitions(0, 1, 2, 3, topic=topic))
    assert len(first.assignment) == len(second.assignment) == 2
    described = Admin(cluster).describe_group(topic)
    assert (described.state, described.protocol, len(described.members)) == ("Stable", "range", 2)
    assert {member.assignment for member in described.members} == {first.assignment, second.assignment}
    second.leave()
    committed = []
    while first.keep(lambda: committed.append(first.generation_id)) is None:
        pass
    assert first.assignment == partitions(0, 1, 2, 3, topic=topic)
    assert committed == [second.generation_id if second.generation_id >= 0 else first.generation_id - 1]
    first.leave()


def test_who_was_left_behind_may_not_commit(cluster: Cluster, other: Cluster, topic: str) -> None:
    first, second = make(cluster, topic), make(other, topic)
    first.keep()
    old = first.generation_id
    join_both(first, second)
    first.generation_id = old
    assert not first.commit({TopicPartition(topic, 0): 1})
    assert Admin(cluster).committed_offsets(topic) == {}
    for member in (first, second):
        member.leave()


def test_a_lost_coordinator_is_found_again(broker: Broker, cluster: Cluster, topic: str) -> None:
    broker.faults.error("JOIN_GROUP", NotCoordinator)
    broker.faults.disconnect("SYNC_GROUP")
    member = make(cluster, topic)
    assert member.keep() == partitions(0, 1, 2, 3, topic=topic)
    broker.faults.disconnect("OFFSET_COMMIT")
    assert member.commit({TopicPartition(topic, 0): 3})
    broker.faults.disconnect("HEARTBEAT")
    for _ in range(3):
        assert member.keep() is None
    member.leave()


def test_an_unknown_topic_is_told_before_the_group_is_troubled(cluster: Cluster, name: str) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        make(cluster, name).keep()
    with pytest.raises(GroupIdNotFound):
        Admin(cluster).describe_group(name)


def test_a_group_with_members_is_not_reset_from_outside(cluster: Cluster, other: Cluster, topic: str) -> None:
    member = make(cluster, topic)
    member.keep()
    admin = Admin(other)
    errors = admin.alter_offsets(topic, {TopicPartition(topic, 0): 1})
    assert "stop its consumers first" in str(errors[TopicPartition(topic, 0)])
    assert isinstance(admin.delete_groups([topic])[topic], NonEmptyGroup)
    member.leave()
    assert admin.alter_offsets(topic, {TopicPartition(topic, 0): 1}) == {TopicPartition(topic, 0): None}
    assert admin.delete_groups([topic]) == {topic: None}


def test_a_static_member_keeps_its_partitions_over_a_restart(cluster: Cluster, other: Cluster, topic: str) -> None:
    first = make(cluster, topic, group_instance_id="a")
    first.keep()
    generation = first.generation_id
    first.leave()
    again = make(other, topic, group_instance_id="a")
    assert again.keep() == partitions(0, 1, 2, 3, topic=topic)
    assert again.generation_id == generation
