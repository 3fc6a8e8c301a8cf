"""OffsetFetch at every served version: of one group, of several, of everything."""

from importlib import import_module
from uuid import UUID

import pytest

from barnabas import errors
from barnabas.protocol.apis import ApiKey
from broker.admin_rig import versions
from broker.handlers.groups.handler_rig import GHOST_ID, ORDERS_ID, World, commit, struct
from broker.handlers.groups.handler_rig import world as world


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_fetch(world: World, version: int) -> None:
    commit(world, 9, {0: 10, 1: 20})
    module = import_module("barnabas.protocol.messages.offset_fetch")
    if version < 8:
        topic = module.OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 2])
        answer = world.ask(ApiKey.OFFSET_FETCH, version, group_id="g", topics=[topic])
    else:
        by_id = version >= 10
        topics = [
            module.OffsetFetchRequestTopics(
                name="" if by_id else "orders", topic_id=ORDERS_ID if by_id else UUID(int=0), partition_indexes=[0, 2]
            )
        ]
        if by_id:
            topics.append(module.OffsetFetchRequestTopics(topic_id=GHOST_ID, partition_indexes=[0]))
        groups = [
            module.OffsetFetchRequestGroup(group_id="g", topics=topics),
            module.OffsetFetchRequestGroup(group_id="h", topics=None),
        ]
        answer = world.ask(ApiKey.OFFSET_FETCH, version, groups=groups)
        assert [group.group_id for group in answer.groups] == ["g", "h"]
        assert answer.groups[1].topics == []
        answer = answer.groups[0]
        if by_id:
            assert answer.topics[1].topic_id == GHOST_ID
            assert answer.topics[1].partitions[0].error_code == errors.UnknownTopicId.code
            assert answer.topics[0].topic_id == ORDERS_ID
    found = answer.topics[0].partitions
    assert [(one.partition_index, one.committed_offset, one.metadata) for one in found] == [(0, 10, "m"), (2, -1, "")]


@pytest.mark.parametrize("version", range(2, 11))
def test_fetch_everything(world: World, version: int) -> None:
    commit(world, 9, {0: 10, 1: 20})
    if version < 8:
        answer = world.ask(ApiKey.OFFSET_FETCH, version, group_id="g", topics=None)
    else:
        group = struct(ApiKey.OFFSET_FETCH, "OffsetFetchRequestGroup")(group_id="g", topics=None)
        answer = world.ask(ApiKey.OFFSET_FETCH, version, groups=[group]).groups[0]
    assert [one.committed_offset for one in answer.topics[0].partitions] == [10, 20]
    if version >= 10:
        assert answer.topics[0].topic_id == ORDERS_ID


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_fetch_from_the_wrong_broker(world: World, version: int) -> None:
    world.groups.on_resigned(world.groups.partition_for("g"))
    module = import_module("barnabas.protocol.messages.offset_fetch")
    if version >= 8:
        group = module.OffsetFetchRequestGroup(group_id="g", topics=[])
        assert world.ask(ApiKey.OFFSET_FETCH, version, groups=[group]).groups[0].error_code == 16
        return
    topic = module.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
    answer = world.ask(ApiKey.OFFSET_FETCH, version, group_id="g", topics=[topic])
    if version == 1:
        assert (answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].committed_offset) == (16, -1)
    else:
        assert (answer.error_code, answer.topics) == (16, [])
