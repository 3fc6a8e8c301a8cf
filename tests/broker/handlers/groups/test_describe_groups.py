"""DescribeGroups at every served version."""

import pytest

from barnabas import errors
from barnabas.protocol.apis import ApiKey
from broker.admin_rig import versions
from broker.handlers.groups.handler_rig import World, stable
from broker.handlers.groups.handler_rig import world as world
from coordinator.group_rig import SUBSCRIPTION


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_describe(world: World, version: int) -> None:
    member = stable(world)
    asked = {"include_authorized_operations": True} if version >= 3 else {}
    group, ghost = world.ask(ApiKey.DESCRIBE_GROUPS, version, groups=["g", "ghost"], **asked).groups
    assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    described = group.members[0]
    assert (described.member_id, described.client_id, described.client_host) == (member, "app", "/10.1.2.3")
    assert (described.member_metadata, described.member_assignment) == (SUBSCRIPTION, b"mine")
    assert group.authorized_operations == (3400 if version >= 3 else -(2**31))
    assert ghost.group_state == "Dead"
    assert ghost.error_code == (errors.GroupIdNotFound.code if version >= 6 else 0)
    assert ghost.error_message == ("Group ghost not found." if version >= 6 else None)
