"""Heartbeat at every served version."""

import pytest

from barnabas.protocol.apis import ApiKey
from broker.admin_rig import versions
from broker.handlers.groups.handler_rig import World, stable
from broker.handlers.groups.handler_rig import world as world


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_heartbeat(world: World, version: int) -> None:
    member = stable(world)
    fields = {"group_id": "g", "generation_id": 1, "member_id": member}
    assert world.ask(ApiKey.HEARTBEAT, version, **fields).error_code == 0
    assert world.ask(ApiKey.HEARTBEAT, version, **(fields | {"generation_id": 2})).error_code == 22
    assert world.ask(ApiKey.HEARTBEAT, version, **(fields | {"group_id": ""})).error_code == 24
