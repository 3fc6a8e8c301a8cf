"""What the tests of administrators share: both of them, against a broker of ours."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.testing import Broker


class Awaited:
    """The asyncio front with the synchronous one's manners, on a loop of its own."""

    def __init__(self, **settings: object) -> None:
        self._runner = asyncio.Runner()
        self._admin = barnabas.aio.Admin(**settings)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await getattr(self._admin, name)(*args, **kwargs)

        return lambda *args, **kwargs: self._runner.run(call(*args, **kwargs))

    def close(self) -> None:
        self._runner.run(self._admin.close())
        self._runner.close()


@pytest.fixture(params=[barnabas.Admin, Awaited], ids=["sync", "aio"])
def admin(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Any]:
    admin = request.param(bootstrap_servers=broker.bootstrap_servers, default_api_timeout_ms=60_000)
    yield admin
    admin.close()


def write(broker: Broker, topic: str, *values: bytes) -> None:
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False) as producer:
        for value in values:
            producer.send(topic, value)
