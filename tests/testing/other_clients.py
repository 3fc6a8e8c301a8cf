"""Confluent's clients, as the users of the test kit may have them."""

import time
from typing import Any

import pytest

from barnabas.testing import Broker

confluent = pytest.importorskip("confluent_kafka")


def send(broker: Broker, topic: str, *values: bytes, **message: Any) -> None:
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, **message)
    assert producer.flush(60) == 0


def consumer(broker: Broker, group: str, **settings: Any) -> Any:
    return confluent.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )


def read(client: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        message = client.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value())
    return found
