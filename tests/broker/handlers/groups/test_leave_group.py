"""LeaveGroup at every served version."""

import pytest

from barnabas.protocol.apis import ApiKey
from broker.admin_rig import versions
from broker.handlers.groups.handler_rig import World, stable, struct
from broker.handlers.groups.handler_rig import world as world


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave(world: World, version: int) -> None:
    member = stable(world)
    if version < 3:
        assert world.ask(ApiKey.LEAVE_GROUP, version, group_id="g", member_id="ghost").error_code == 25
        assert world.ask(ApiKey.LEAVE_GROUP, version, group_id="g", member_id=member).error_code == 0
        return
    identity = struct(ApiKey.LEAVE_GROUP, "MemberIdentity")
    answer = world.ask(
        ApiKey.LEAVE_GROUP, version, group_id="g", members=[identity(member_id=member), identity(member_id="ghost")]
    )
    assert answer.error_code == 0
    assert [(one.member_id, one.error_code) for one in answer.members] == [(member, 0), ("ghost", 25)]
