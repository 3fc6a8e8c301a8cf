"""DeleteGroups at every served version."""

import pytest

from barnabas import errors
from barnabas.protocol.apis import ApiKey
from broker.admin_rig import versions
from broker.handlers.groups.handler_rig import World, commit, stable
from broker.handlers.groups.handler_rig import world as world


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_delete(world: World, version: int) -> None:
    stable(world)
    for index in range(10):
        commit(world, 9, {0: 1}, group_id=f"simple-{index}")
    names = ["g", "ghost", "", *(f"simple-{index}" for index in range(10))]
    results = world.ask(ApiKey.DELETE_GROUPS, version, groups_names=names).results
    codes = {result.group_id: result.error_code for result in results}
    assert codes.pop("g") == errors.NonEmptyGroup.code
    assert codes.pop("ghost") == errors.GroupIdNotFound.code
    assert codes.pop("") == errors.GroupIdNotFound.code
    assert set(codes.values()) == {0}
    reasons = {result.group_id: result.error_message for result in results}
    assert bool(reasons["g"]) == bool(reasons["ghost"]) == (version >= 3)
    assert reasons["simple-3"] is None
    assert len(codes) == 10
    assert [group.group_id for group in world.ask(ApiKey.LIST_GROUPS, 0).groups] == ["g"]
    assert world.rig.fetch_everything("simple-3") == {}
