"""A controller that knows of two brokers, of which one never came, as handlers see it."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.controller.controller import Controller, TopicRequest
from barnabas.metadata.image import MetadataImage
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.registry import BrokerRegistration

T = TypeVar("T")


class LoneController:
    def __init__(self, directory: Path) -> None:
        self.registry = EmbeddedRegistry(directory / "registry.db", is_running=bool)
        self._controller = Controller(self.registry, BrokerConfig())
        self._controller.start(BrokerRegistration(1, {uuid.UUID(int=1): str(directory)}, (), process="this one"))
        self.registry.announce_brokers([2])
        self._controller.refresh()
        self.controller = self

    @property
    def image(self) -> MetadataImage:
        return self._controller.image

    async def call(self, action: Callable[[Controller], T]) -> T:
        return action(self._controller)

    def create(self, name: str, *replicas: list[int]) -> None:
        """Creates a topic with these replicas of each partition."""
        self._controller.create_topics([TopicRequest(name, assignments=list(enumerate(replicas)))])


@pytest.fixture
def lone_controller(tmp_path: Path) -> Iterator[LoneController]:
    broker = LoneController(tmp_path)
    yield broker
    broker.registry.close()
