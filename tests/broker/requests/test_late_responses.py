"""Requests that are sent before the response to one that waits for the controller."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from barnabas.broker.requests.late_responses import run_handler
from barnabas.errors import NotController, UnknownTopicOrPartition
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.testing import Broker
from broker.wire import Wire


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Broker(settings={"auto.create.topics.enable": True}) as broker, Wire(broker) as wire:
        yield wire


def test_a_request_finds_what_the_one_before_has_created(wire: Wire) -> None:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    offsets = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="a", partitions=[partition])])
    for round_number in range(20):
        if round_number % 2:
            wire.send(MetadataRequest(topics=[MetadataRequestTopic(name="a")], allow_auto_topic_creation=True), 9)
        else:
            topic = CreatableTopic(name="a", num_partitions=1, replication_factor=1, assignments=[], configs=[])
            wire.send(CreateTopicsRequest(topics=[topic]), 5)
        wire.send(offsets, 5)
        wire.send(DeleteTopicsRequest(topic_names=["a"]), 5)
        wire.send(offsets, 5)
        assert wire.receive().topics[0].error_code == 0
        assert wire.receive().topics[0].partitions[0].error_code == 0
        assert wire.receive().responses[0].error_code == 0
        assert wire.receive().topics[0].partitions[0].error_code == UnknownTopicOrPartition.code


def test_a_handler_runs_at_once_up_to_its_first_wait() -> None:
    loop = asyncio.new_event_loop()
    first, second = loop.create_future(), loop.create_future()
    steps = []

    async def handler(name: str) -> str:
        steps.append(f"{name} begins")
        steps.append(f"{name} {await first}")
        return f"{name} {await second}"

    async def at_once() -> str:
        return "at once"

    async def refused() -> str:
        await first
        raise NotController("no")

    assert run_handler(loop, at_once()) == "at once"
    waiting = [run_handler(loop, handler(name)) for name in "ab"]  # both wait for the same futures
    failing = run_handler(loop, refused())
    assert steps == ["a begins", "b begins"]
    first.set_result(1)
    second.set_result(2)
    assert isinstance(failing, asyncio.Future)
    with pytest.raises(NotController):
        loop.run_until_complete(failing)
    assert [loop.run_until_complete(future) for future in waiting if isinstance(future, asyncio.Future)] == [
        "a 2",
        "b 2",
    ]
    assert steps == ["a begins", "b begins", "a 1", "b 1"]
    loop.close()


def test_a_handler_that_is_done_needs_no_garbage_collection() -> None:
    loop = asyncio.new_event_loop()
    waits = loop.create_future()

    async def handler(*, at_once: bool) -> bool:
        if not at_once:
            await waits
        return at_once

    gc.disable()
    try:
        left = []
        for at_once in (True, False):
            work = handler(at_once=at_once)
            left.append(weakref.ref(work))
            result = run_handler(loop, work)
            del work
        waits.set_result(None)
        assert isinstance(result, asyncio.Future)
        assert loop.run_until_complete(result) is False
        assert [work() for work in left] == [None, None]
    finally:
        gc.enable()
        loop.close()
