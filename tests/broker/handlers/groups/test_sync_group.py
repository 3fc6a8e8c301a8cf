"""SyncGroup at every served version."""

from typing import Any

import pytest

from barnabas import errors
from barnabas.protocol.apis import ApiKey
from broker.admin_rig import versions
from broker.handlers.groups.handler_rig import World, join, struct
from broker.handlers.groups.handler_rig import world as world


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_sync(world: World, version: int) -> None:
    first = join(world)
    joined = join(world, member_id=first.member_id)
    assignment = struct(ApiKey.SYNC_GROUP, "SyncGroupRequestAssignment")
    fields: dict[str, Any] = {
        "group_id": "g",
        "generation_id": 1,
        "member_id": joined.member_id,
        "assignments": [assignment(member_id=joined.member_id, assignment=b"mine")],
    }
    if version >= 5:
        assert world.ask(ApiKey.SYNC_GROUP, version, **fields).error_code == errors.InconsistentGroupProtocol.code
        fields |= {"protocol_type": "consumer", "protocol_name": "range"}
    answer = world.ask(ApiKey.SYNC_GROUP, version, **fields)
    assert (answer.error_code, answer.assignment) == (0, b"mine")
    if version >= 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
