"""The script of `transaction_script.py` against the handlers, step by step compared with what Kafka 4.4.0 answered."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from barnabas.network.time_slicing import TimeSlicer
from coordinator.group_rig import Rig
from coordinator.handler_connection import HandlerConnection
from coordinator.transaction_rig import TransactionRig
from coordinator.transaction_script import EPOCH_LAST, MAX_TIMEOUT_MS, STORIES, Player

ANSWERS = Path(__file__).with_name("kafka_transaction_answers.txt")

DIFFERENT_ON_PURPOSE = {
    "ending_with_new_epochs: commit it, late": "KAFKA-20785, which 4.4.0 does not have: PRODUCER_FENCED",
    "timing_out: commit v5": "the same",
    "adding: twice in one": "a partition is answered once, however often it stands in the request",
    "listing: describe": "a transactional id is answered once, however often it stands in the request",
}


class HandlerWorld:
    def __init__(self) -> None:
        self.rig = TransactionRig(partitions=50, max_timeout_ms=MAX_TIMEOUT_MS)
        self.loop = asyncio.new_event_loop()
        topics = {name: SimpleNamespace(name=name, partitions=[None] * 4) for name in ("orders", "other")}
        for name in ("__consumer_offsets", "__transaction_state"):
            topics[name] = SimpleNamespace(name=name, partitions=[SimpleNamespace(leader=1)] * 50)
        self.broker: Any = SimpleNamespace(
            cluster=None,
            transactions=self.rig.transactions,
            groups=Rig(partitions=50).groups,
            loop=self.loop,
            time_slicer=TimeSlicer(self.loop),
            image=SimpleNamespace(topics=topics),
            producer_ids=SimpleNamespace(is_empty=False, next=self.rig.new_producer_id),
            advertised_brokers=lambda connection: [(1, "127.0.0.1", 9092, None)],
        )

    def connect(self, client_id: str) -> HandlerConnection:
        return HandlerConnection(self, client_id)

    def sleep(self, seconds: float) -> None:
        self.rig.advance(seconds)

    def topic_id(self, topic: str) -> UUID:
        raise NotImplementedError

    def exhaust(self, transactional_id: str) -> int:
        producer_id, _ = self.rig.producer(transactional_id)
        self.rig.put(transactional_id, producer_epoch=EPOCH_LAST)
        return producer_id


@pytest.fixture
def world() -> Iterator[HandlerWorld]:
    world = HandlerWorld()
    yield world
    world.loop.close()


def test_every_answer_is_kafkas(world: HandlerWorld) -> None:
    player = Player(world)
    for story in STORIES:
        player.play(story)  # type: ignore[arg-type]
    recorded = [line.split("\t", 1) for line in ANSWERS.read_text().splitlines()]
    assert [label for label, _ in player.notes] == [label for label, _ in recorded]
    different = {
        label: f"\n  Kafka: {kafka}\n  ours:  {ours}"
        for (label, ours), (_, kafka) in zip(player.notes, recorded, strict=True)
        if ours != kafka
    }
    unexpected = "".join(f"\n{label}{text}" for label, text in different.items() if label not in DIFFERENT_ON_PURPOSE)
    assert not unexpected, unexpected
    assert set(different) == set(DIFFERENT_ON_PURPOSE), "a difference that is gone needs no reason"
