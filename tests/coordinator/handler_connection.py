"""Requests to the handlers as message classes, each encoded and decoded as on the wire."""

import asyncio
from collections.abc import Coroutine
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Protocol

from barnabas.broker.handlers import HANDLER_MODULES
from barnabas.connection.flow import result_of
from barnabas.protocol.apis import ApiKey, message_classes
from barnabas.protocol.codec import decode, encode

__all__ = ["HandlerConnection", "HandlerWorld"]


class HandlerWorld(Protocol):
    """`broker` is what handlers are given, `sleep` lets time pass."""

    broker: Any

    def sleep(self, seconds: float) -> None: ...


class HandlerConnection:
    def __init__(self, world: HandlerWorld, client_id: str) -> None:
        self._world = world
        self._client_id = client_id
        self._answer: Any = None
        self._last = (ApiKey.API_VERSIONS, 0)

    def send(self, api: ApiKey, version: int, fields: dict[str, Any]) -> None:
        request_class = message_classes(api)[0]
        request, _ = decode(request_class, version, encode(request_class(**fields), version))
        connection = SimpleNamespace(client_software="", peer_host="127.0.0.1")
        context = SimpleNamespace(
            api_key=api, api_version=version, client_id=self._client_id, connection=connection, is_broker=False
        )
        self._last = (api, version)
        handler = import_module(HANDLER_MODULES[api.name.lower()])
        self._answer = handler.handle(self._world.broker, request, context)

    def receive(self) -> Any:
        answer = self._answer
        if isinstance(answer, Coroutine):
            answer = result_of(answer)
        if isinstance(answer, asyncio.Future):
            for _ in range(300):
                if answer.done():
                    break
                self._world.sleep(0.1)
            answer = answer.result()
        api, version = self._last
        return decode(message_classes(api)[1], version, encode(answer, version))[0]
