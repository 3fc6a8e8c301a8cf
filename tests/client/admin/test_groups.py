"""Consumer groups, by both administrators."""

from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.client.admin.groups import MemberToRemove
from barnabas.client.admin.topics import NewTopic
from barnabas.errors import GroupIdNotFound, ItemsFailed, NonEmptyGroup, UnknownMemberId
from barnabas.testing import Broker
from barnabas.types import TopicPartition


def test_groups(admin: Any, name: str) -> None:
    admin.create_topics(NewTopic(name, partitions=2))
    with pytest.raises(ItemsFailed) as caught:
        admin.describe_groups(name)
    assert caught.value.only(GroupIdNotFound)
    admin.alter_group_offsets(name, {(name, 0): 4, (name, 1): 5})
    assert name in {group.group_id for group in admin.list_groups()}
    assert admin.describe_groups([name])[name].state == "Empty"
    assert {where.partition: o.offset for where, o in admin.list_group_offsets(name).items()} == {0: 4, 1: 5}
    admin.delete_group_offsets(name, [(name, 0)])
    assert list(admin.list_group_offsets(name, [(name, 0), (name, 1)])) == [TopicPartition(name, 1)]
    assert admin.remove_members(name) == []
    with pytest.raises(ItemsFailed) as caught:
        admin.remove_members(name, [MemberToRemove("nobody")])
    assert caught.value.only(UnknownMemberId)
    admin.delete_groups(name)
    assert name not in {group.group_id for group in admin.list_groups()}


def test_live_members_are_removed(admin: Any, broker: Broker, name: str) -> None:
    admin.create_topics(NewTopic(name, partitions=2))
    with barnabas.Consumer(name, bootstrap_servers=broker.bootstrap_servers, group_id=name) as consumer:
        while not consumer.assignment():
            consumer.poll(0.05)
        _check_removal(admin, name, consumer.group_metadata().member_id)


def _check_removal(admin: Any, name: str, member_id: str) -> None:
    description = admin.describe_groups(name)[name]
    assert [m.member_id for m in description.members] == [member_id]
    with pytest.raises(ItemsFailed) as caught:
        admin.delete_groups(name)
    assert caught.value.only(NonEmptyGroup)
    with pytest.raises(ItemsFailed) as caught:
        admin.alter_group_offsets(name, {(name, 0): 1})
    assert caught.value.only(UnknownMemberId)
    assert admin.remove_members(name) == [MemberToRemove(member_id)]
    assert admin.describe_groups(name)[name].state == "Empty"
