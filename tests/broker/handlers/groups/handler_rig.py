"""Group handlers on a coordinator with a virtual clock, through encode and decode."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from barnabas.broker.handlers import HANDLER_MODULES
from barnabas.connection.flow import result_of
from barnabas.errors import KafkaError
from barnabas.protocol.apis import ApiKey, message_classes
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
        self.cluster = None
        orders = SimpleNamespace(name="orders", topic_id=ORDERS_ID, partitions=[None] * 4)
        self.topics: dict[str, Any] = {"orders": orders}
        self.image = SimpleNamespace(
            topics=self.topics, topic_by_id=lambda wanted: orders if wanted == ORDERS_ID else None
        )
        self.groups = self.rig.groups
        self.refusal: KafkaError | None = None
        """The error of topics that cannot be created."""

    async def auto_create_topics(self, names: Iterable[str]) -> dict[str, KafkaError]:
        for name in names:
            if self.refusal is not None:
                return {name: self.refusal}
            self.created.append(name)
            self.topics[name] = SimpleNamespace(name=name, partitions=[SimpleNamespace(leader=3)] * 5)
        return {}

    def advertised_brokers(self, connection: Any) -> list[tuple[int, str, int, str | None]]:
        return [(3, "here.example", 9092, None), (4, "there.example", 9092, None)]

    def ask(self, api: ApiKey, version: int, *, client: str = "app", **fields: Any) -> Any:
        request_class, response_class = message_classes(api)
        request, _ = decode(request_class, version, encode(request_class(**fields), version))
        connection = SimpleNamespace(client_software="", peer_host="10.1.2.3", local_host="127.0.0.1", local_port=9092)
        context = SimpleNamespace(api_key=api, api_version=version, client_id=client, connection=connection)
        answer = import_module(HANDLER_MODULES[api.name.lower()]).handle(self, request, context)
        if isinstance(answer, Coroutine):
            answer = result_of(answer)
        if isinstance(answer, asyncio.Future):
            self.rig.advance(0.01)
            answer = answer.result()
        return decode(response_class, version, encode(answer, version))[0]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.loop.close()


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
