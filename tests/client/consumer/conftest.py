"""What the tests of consumers share: settings, a topic with records, both fronts."""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.testing import Broker

RECORDS = 200
"""The records of the fixture `topic`."""


@pytest.fixture
def settings(broker: Broker, name: str) -> dict[str, Any]:
    """Settings of a consumer in a group of this test alone."""
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "auto_offset_reset": "earliest",
        "group_id": f"{name}-group",
        "heartbeat_interval_ms": 300,
    }


class Awaited:
    """The asyncio front with the synchronous one's manners, on a loop of its own."""

    def __init__(self, *topics: Any, **settings: Any) -> None:
        self._runner = asyncio.Runner()
        self._consumer = barnabas.aio.Consumer(*topics, **settings)

    def _run(self, call: Callable[[], Any]) -> Any:
        async def awaited() -> Any:
            result = call()
            return await result if inspect.isawaitable(result) else result

        return self._runner.run(awaited())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self._run(lambda: getattr(self._consumer, name)(*args, **kwargs))

    def _iterate(self, iterator: AsyncIterator[Any]) -> Iterator[Any]:
        with contextlib.suppress(StopAsyncIteration):
            while True:
                yield self._run(lambda: anext(iterator))

    def __iter__(self) -> Iterator[Any]:
        return self._iterate(aiter(self._consumer))

    def batches(self) -> Iterator[Any]:
        return self._iterate(self._consumer.batches())

    def arrow(self) -> Iterator[Any]:
        return self._iterate(self._consumer.arrow())

    def close(self) -> None:
        self._run(self._consumer.close)

    def end(self) -> None:
        self._runner.close()


@pytest.fixture(params=["sync", "aio"])
def front(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "sync":
        yield barnabas.Consumer
        return
    with contextlib.ExitStack() as loops:

        def make(*topics: Any, **settings: Any) -> Awaited:
            consumer = Awaited(*topics, **settings)
            loops.callback(consumer.end)
            return consumer

        yield make


@pytest.fixture
def topic(broker: Broker, name: str) -> str:
    """Two partitions of a hundred records each."""
    broker.create_topic(name, partitions=2)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(100):
            for partition in (0, 1):
                producer.send(name, b"%d" % number, key=b"k", partition=partition, timestamp=1000 + number)
    return name


def read_all(consumer: barnabas.Consumer) -> None:
    count = 0
    while count < RECORDS:
        count += len(consumer.poll(60))
    assert count == RECORDS, "records came twice"


@pytest.fixture
def alone(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a consumer without a group."""
    return {**settings, "group_id": None}


def poll_all(consumer: Any, count: int = RECORDS) -> list[Any]:
    records: list[Any] = []
    while len(records) < count:
        records += consumer.poll(60)
    return records
