"""The group handlers, through encode and decode at every served version."""

import asyncio
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from barnabas import errors
from barnabas.broker.handlers import HANDLER_MODULES
from barnabas.protocol.apis import SERVED, ApiKey, message_classes
from barnabas.protocol.codec import decode, encode
from coordinator.group_rig import SUBSCRIPTION, Rig

ORDERS_ID = UUID(int=77)
GHOST_ID = UUID(int=78)


class World:
    """Handlers on a rig: what a client would read after decoding."""

    def __init__(self, **config: Any) -> None:
        self.rig = Rig(partitions=5, **config)
        self.loop = asyncio.new_event_loop()
        self.created: list[str] = []
        orders = SimpleNamespace(name="orders", topic_id=ORDERS_ID, partitions=[None] * 4)
        self.topics: dict[str, Any] = {"orders": orders}
        self.image = SimpleNamespace(
            topics=self.topics, topic_by_id=lambda wanted: orders if wanted == ORDERS_ID else None
        )
        self.groups = self.rig.groups
        self.controller = SimpleNamespace(ensure_internal_topic=self.ensure_internal_topic)

    def ensure_internal_topic(self, name: str) -> Any:
        assert name == "__consumer_offsets"
        if "__consumer_offsets" not in self.topics:
            self.created.append("__consumer_offsets")
            self.topics["__consumer_offsets"] = SimpleNamespace(partitions=[SimpleNamespace(leader=3)] * 5)
        return self.topics["__consumer_offsets"]

    def advertised_brokers(self, connection: Any) -> list[tuple[int, str, int, str | None]]:
        return [(3, "here.example", 9092, None), (4, "there.example", 9092, None)]

    def ask(self, api: ApiKey, version: int, *, client: str = "app", **fields: Any) -> Any:
        request_class, response_class = message_classes(api)
        request, _ = decode(request_class, version, encode(request_class(**fields), version))
        connection = SimpleNamespace(client_software="", peer_host="10.1.2.3", local_host="127.0.0.1", local_port=9092)
        context = SimpleNamespace(api_key=api, api_version=version, client_id=client, connection=connection)
        answer = import_module(HANDLER_MODULES[api.name.lower()]).handle(self, request, context)
        if isinstance(answer, asyncio.Future):
            self.rig.advance(0.01)
            answer = answer.result()
        return decode(response_class, version, encode(answer, version))[0]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.loop.close()


def versions(api: ApiKey) -> range:
    return range(SERVED[api].first, SERVED[api].last + 1)


def struct(api: ApiKey, name: str) -> Any:
    module = import_module(message_classes(api)[0].__module__)
    return getattr(module, name)


def join(world: World, version: int = 9, **fields: Any) -> Any:
    protocol = struct(ApiKey.JOIN_GROUP, "JoinGroupRequestProtocol")
    return world.ask(
        ApiKey.JOIN_GROUP,
        version,
        **{
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 20_000 if version >= 1 else -1,
            "protocol_type": "consumer",
            "protocols": [protocol(name="range", metadata=SUBSCRIPTION)],
        }
        | fields,
    )


def stable(world: World, version: int = 9) -> str:
    first = join(world, version)
    joined = join(world, version, member_id=first.member_id) if first.error_code else first
    assignment = struct(ApiKey.SYNC_GROUP, "SyncGroupRequestAssignment")
    world.ask(
        ApiKey.SYNC_GROUP,
        3,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[assignment(member_id=joined.member_id, assignment=b"mine")],
    )
    return str(joined.member_id)


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

    def test_the_topic_cannot_be_created(self, world: World) -> None:
        world.controller.ensure_internal_topic = lambda name: errors.PolicyViolation("no more topics")
        found = world.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["x"]).coordinators[0]
        assert found.error_code == errors.CoordinatorNotAvailable.code
        assert "no more topics" in found.error_message

    def test_no_live_leader(self, world: World) -> None:
        world.topics["__consumer_offsets"] = SimpleNamespace(partitions=[SimpleNamespace(leader=-1)] * 5)
        found = world.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["x"])
        assert found.coordinators[0].error_code == errors.CoordinatorNotAvailable.code


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


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_heartbeat(world: World, version: int) -> None:
    member = stable(world)
    fields = {"group_id": "g", "generation_id": 1, "member_id": member}
    assert world.ask(ApiKey.HEARTBEAT, version, **fields).error_code == 0
    assert world.ask(ApiKey.HEARTBEAT, version, **(fields | {"generation_id": 2})).error_code == 22
    assert world.ask(ApiKey.HEARTBEAT, version, **(fields | {"group_id": ""})).error_code == 24


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


def commit(world: World, version: int, offsets: dict[int, int], topic: str = "orders", **fields: Any) -> Any:
    module = import_module("barnabas.protocol.messages.offset_commit")
    by_id = version >= 10
    ids = {"orders": ORDERS_ID}
    wanted = module.OffsetCommitRequestTopic(
        name="" if by_id else topic,
        topic_id=ids.get(topic, GHOST_ID) if by_id else UUID(int=0),
        partitions=[
            module.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="m")
            for index, offset in offsets.items()
        ],
    )
    return world.ask(ApiKey.OFFSET_COMMIT, version, **({"group_id": "g", "topics": [wanted]} | fields))


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
    assert len(codes) == 10
    assert [group.group_id for group in world.ask(ApiKey.LIST_GROUPS, 0).groups] == ["g"]
    assert world.rig.fetch_everything("simple-3") == {}


def test_offset_delete(world: World) -> None:
    commit(world, 9, {0: 10, 1: 20})
    module = import_module("barnabas.protocol.messages.offset_delete")

    def partitions(*indexes: int) -> list[Any]:
        return [module.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]

    topics = [
        module.OffsetDeleteRequestTopic(name="orders", partitions=partitions(0, 9)),
        module.OffsetDeleteRequestTopic(name="ghost", partitions=partitions(0)),
    ]
    answer = world.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
    codes = {(topic.name, one.partition_index): one.error_code for topic in answer.topics for one in topic.partitions}
    assert codes == {("orders", 0): 0, ("orders", 9): 3, ("ghost", 0): 3}
    assert world.rig.fetch_everything() == {("orders", 1): 20}


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
