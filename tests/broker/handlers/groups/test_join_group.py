"""JoinGroup at every served version."""

import asyncio
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas import errors
from barnabas.protocol.apis import ApiKey, message_classes
from broker.admin_rig import versions
from broker.handlers.groups.handler_rig import World, join, stable, struct
from broker.handlers.groups.handler_rig import world as world
from coordinator.group_rig import SUBSCRIPTION


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join(world: World, version: int) -> None:
    first = join(world, version)
    if version >= 4:
        assert first.error_code == errors.MemberIdRequired.code
        assert first.protocol_name == (None if version >= 7 else "")
        first = join(world, version, member_id=first.member_id)
    assert (first.error_code, first.generation_id, first.leader) == (0, 1, first.member_id)
    assert (first.protocol_name, first.members[0].metadata) == ("range", SUBSCRIPTION)
    assert first.member_id.startswith("app-")
    shard = world.groups.runtime.peek(world.groups.partition_for("g"))
    assert shard is not None
    member = shard.groups["g"].members[first.member_id]
    assert member.client_host == "/10.1.2.3"
    assert member.rebalance_timeout_ms == (20_000 if version >= 1 else 10_000)


def test_answers_that_wait_are_futures(world: World) -> None:
    stable(world)
    context = SimpleNamespace(
        api_key=11, api_version=9, client_id="b", connection=SimpleNamespace(client_software="", peer_host="10.0.0.1")
    )
    handler = import_module("barnabas.broker.handlers.groups.join_group")
    request_class = message_classes(ApiKey.JOIN_GROUP)[0]
    protocol = struct(ApiKey.JOIN_GROUP, "JoinGroupRequestProtocol")
    fields: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "consumer",
        "protocols": [protocol(name="range", metadata=SUBSCRIPTION)],
    }
    first = handler.handle(world, request_class(**fields), context)
    waiting = handler.handle(world, request_class(**fields, member_id=first.member_id), context)
    assert isinstance(waiting, asyncio.Future)
    assert not waiting.done()
    world.rig.advance(30)
    assert waiting.result().error_code == 0
