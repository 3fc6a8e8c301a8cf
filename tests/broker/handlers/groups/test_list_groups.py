"""ListGroups at every served version: all groups, by state, by type."""

import pytest

from barnabas.protocol.apis import ApiKey
from broker.admin_rig import versions
from broker.handlers.groups.handler_rig import World, commit, stable
from broker.handlers.groups.handler_rig import world as world


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_list(world: World, version: int) -> None:
    stable(world)
    commit(world, 9, {0: 1}, group_id="simple")
    listed = {group.group_id: group for group in world.ask(ApiKey.LIST_GROUPS, version).groups}
    assert {name: group.protocol_type for name, group in listed.items()} == {"g": "consumer", "simple": ""}
    if version >= 4:
        assert listed["g"].group_state == "Stable"
        only = world.ask(ApiKey.LIST_GROUPS, version, states_filter=["empty"]).groups
        assert [group.group_id for group in only] == ["simple"]
    if version >= 5:
        assert listed["g"].group_type == "classic"
        assert world.ask(ApiKey.LIST_GROUPS, version, types_filter=["consumer"]).groups == []
        assert len(world.ask(ApiKey.LIST_GROUPS, version, types_filter=["Classic"]).groups) == 2
