"""FindCoordinator of groups at every served version."""

from types import SimpleNamespace

import pytest

from barnabas import errors
from barnabas.protocol.apis import ApiKey
from broker.admin_rig import versions
from broker.handlers.groups.handler_rig import World
from broker.handlers.groups.handler_rig import world as world


class TestFindCoordinator:
    @pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
    def test_a_group(self, world: World, version: int) -> None:
        if version < 4:
            found = world.ask(ApiKey.FIND_COORDINATOR, version, key="g")
            assert (found.error_code, found.node_id, found.host, found.port) == (0, 3, "here.example", 9092)
            assert found.error_message == ("NONE" if version >= 1 else "")
        else:
            found = world.ask(ApiKey.FIND_COORDINATOR, version, coordinator_keys=["g", "h"])
            assert [(one.key, one.error_code, one.node_id) for one in found.coordinators] == [("g", 0, 3), ("h", 0, 3)]
        assert world.created == ["__consumer_offsets"]

    def test_key_types_that_do_not_exist(self, world: World) -> None:
        found = world.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["x"], key_type=9)
        assert found.coordinators[0].error_code == errors.InvalidRequest.code
        assert world.created == []

    def test_no_keys_create_nothing(self, world: World) -> None:
        assert world.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=[]).coordinators == []
        assert world.created == []

    def test_the_topic_cannot_be_created(self, world: World) -> None:
        world.refusal = errors.PolicyViolation("no more topics")
        found = world.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["x"]).coordinators[0]
        assert found.error_code == errors.CoordinatorNotAvailable.code
        assert "no more topics" in found.error_message

    def test_no_live_leader(self, world: World) -> None:
        world.topics["__consumer_offsets"] = SimpleNamespace(
            name="__consumer_offsets", partitions=[SimpleNamespace(leader=-1)] * 5
        )
        found = world.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["x"])
        assert found.coordinators[0].error_code == errors.CoordinatorNotAvailable.code
