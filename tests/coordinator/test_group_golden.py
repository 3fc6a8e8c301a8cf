"""The script of `group_script.py` against the handlers, step by step compared with what Apache Kafka 4.4.0 answered."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from coordinator.group_rig import Rig
from coordinator.group_script import GROUP_MAX_SIZE, OFFSET_METADATA_MAX_BYTES, STORIES, Player
from coordinator.handler_connection import HandlerConnection

ANSWERS = Path(__file__).with_name("kafka_group_answers.txt")

DIFFERENT_ON_PURPOSE = {
    "finding: unknown kind v3": "the message names the key type",
    "finding: unknown kind v4": "the message names the key type",
    "simple_group: fetch twice the same": "a partition is answered once, however often it stands in the request",
    "refused_at_birth: describe": "a refused member leaves no group behind",
}


class HandlerWorld:
    def __init__(self) -> None:
        self.rig = Rig(partitions=50, max_size=GROUP_MAX_SIZE, offset_metadata_max_bytes=OFFSET_METADATA_MAX_BYTES)
        self.rig.groups._new_id = lambda: str(uuid4())
        self.loop = asyncio.new_event_loop()
        topics = {
            name: SimpleNamespace(name=name, topic_id=uuid4(), partitions=[None] * 4) for name in ("orders", "other")
        }
        ids = {topic.topic_id: topic for topic in topics.values()}
        offsets = SimpleNamespace(name=OFFSETS_TOPIC, topic_id=uuid4(), partitions=[SimpleNamespace(leader=1)] * 50)
        topics[OFFSETS_TOPIC] = offsets
        self.broker: Any = SimpleNamespace(
            cluster=None,
            groups=self.rig.groups,
            loop=self.loop,
            image=SimpleNamespace(topics=topics, topic_by_id=ids.get),
            advertised_brokers=lambda connection: [(1, "127.0.0.1", 9092, None)],
        )

    def connect(self, client_id: str) -> HandlerConnection:
        return HandlerConnection(self, client_id)

    def sleep(self, seconds: float) -> None:
        self.rig.advance(seconds)

    def topic_id(self, topic: str) -> UUID:
        found: UUID = self.broker.image.topics[topic].topic_id
        return found


@pytest.fixture
def world() -> Iterator[HandlerWorld]:
    world = HandlerWorld()
    yield world
    world.loop.close()


OUR_OWN_FIELD = ", rebalances=None"
"""Kafka's answers were recorded without it, and other clients than ours are not sent it."""


def test_every_answer_is_kafkas(world: HandlerWorld) -> None:
    player = Player(world)
    for story in STORIES:
        player.play(story)
    recorded = [line.split("\t", 1) for line in ANSWERS.read_text().splitlines()]
    assert [label for label, _ in player.notes] == [label for label, _ in recorded]
    different = {
        label: f"\n  Kafka: {kafka}\n  ours:  {ours}"
        for (label, answer), (_, kafka) in zip(player.notes, recorded, strict=True)
        for ours in (answer.replace(OUR_OWN_FIELD, ""),)
        if ours != kafka
    }
    unexpected = "".join(f"\n{label}{text}" for label, text in different.items() if label not in DIFFERENT_ON_PURPOSE)
    assert not unexpected, unexpected
    assert set(different) == set(DIFFERENT_ON_PURPOSE), "a difference that is gone needs no reason"
