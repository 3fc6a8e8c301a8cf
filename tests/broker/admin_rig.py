"""A whole broker without clients: requests go through the codec to their handler and come back the same way."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.handlers import HANDLER_MODULES
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.server import Broker
from barnabas.config.broker import BrokerConfig
from barnabas.connection.flow import result_of
from barnabas.protocol.apis import SERVED, ApiKey
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.schema import Request
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.records.validation import validate_produce

CONNECTION = SimpleNamespace(
    peer_host="127.0.0.1",
    peer_port=50_000,
    local_host="10.0.0.9",
    local_port=9092,
    listener_name="PLAINTEXT",
    client_software="test 1",
)


def ask(broker: Any, request: Request, version: int | None = None) -> Any:
    """The answer, as a client of this version reads it. Without a version the newest that is served."""
    api_key = ApiKey(request.API_KEY)
    version = SERVED[api_key].last if version is None else version
    context = RequestContext(api_key, version, 1, b"test", CONNECTION)  # type: ignore[arg-type]
    received, _ = decode(type(request), version, bytes(encode(request, version)))
    response = import_module(HANDLER_MODULES[api_key.name.lower()]).handle(broker, received, context)
    if isinstance(response, Coroutine):
        response = result_of(response)
    answered, end = decode(type(response), version, bytes(encode(response, version)))
    assert end == len(encode(response, version))
    return answered


def versions(api_key: ApiKey) -> range:
    served = SERVED[api_key]
    return range(served.first, served.last + 1)


def create(broker: Broker, name: str, partitions: int = 1, **configs: str) -> None:
    """A topic, or an assertion; dots in names of settings written as underscores."""
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
    (result,) = ask(broker, CreateTopicsRequest(topics=[topic])).topics
    assert result.error_code == 0, result.error_message


def produce(broker: Broker, topic: str, partition: int, *, producer_id: int = -1, base_sequence: int = -1) -> int:
    """Two records; returns the size of their batch."""
    records = [Record(offset, 1_000 + offset, None, b"value", ()) for offset in (0, 1)]
    epoch = 3 if producer_id >= 0 else -1
    batch = build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence)
    found = broker.replica_manager.leader_of(topic, partition)
    found.append_as_leader(validate_produce(batch, found.append_policy, broker.clock.wall_ms()), 1)
    return len(batch)


@contextmanager
def running_broker(directory: Path, **settings: object) -> Iterator[Broker]:
    """Started, on a loop that nobody runs: handlers are plain calls."""
    loop = asyncio.new_event_loop()
    chosen = {name.replace("_", "."): value for name, value in settings.items()}
    config = {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0", **chosen}
    broker = Broker(BrokerConfig.of(config), loop, inline=True)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
        loop.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A running broker of the test alone."""
    with running_broker(tmp_path) as broker:
        yield broker
