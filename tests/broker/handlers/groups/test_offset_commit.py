"""OffsetCommit at every served version: by name, by id, of what does not exist."""

from uuid import UUID

import pytest

from barnabas import errors
from barnabas.protocol.apis import ApiKey
from broker.admin_rig import versions
from broker.handlers.groups.handler_rig import GHOST_ID, ORDERS_ID, World, commit
from broker.handlers.groups.handler_rig import world as world


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_commit(world: World, version: int) -> None:
    answer = commit(world, version, {0: 10, 9: 11})
    assert len(answer.topics) == 1
    codes = {one.partition_index: one.error_code for one in answer.topics[0].partitions}
    assert codes == {0: 0, 9: errors.UnknownTopicOrPartition.code}
    assert answer.topics[0].topic_id == (ORDERS_ID if version >= 10 else UUID(int=0))
    unknown = commit(world, version, {0: 1}, topic="ghost")
    expected = errors.UnknownTopicId.code if version >= 10 else errors.UnknownTopicOrPartition.code
    assert unknown.topics[0].partitions[0].error_code == expected
    assert unknown.topics[0].topic_id == (GHOST_ID if version >= 10 else UUID(int=0))
