"""What one client produces, every client reads, byte for byte, in every compression."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .conftest import Drivers
from .harness.clients import CLIENTS, Client
from .harness.data import CODECS, awkward_records, essences

RECORDS = awkward_records()
TAKE_TIMEOUT_MS = 60_000
SESSION = time.time_ns() // 1_000_000


class Produced:
    """One topic for each client and codec, filled when first wanted."""

    def __init__(self, drivers: Drivers) -> None:
        self._drivers = drivers
        self._topics: dict[str, dict[str, str]] = {}

    def topics(self, client: Client) -> dict[str, str]:
        if client.name not in self._topics:
            driver = self._drivers(client)
            topics = {codec: f"matrix.{SESSION}.{client.name}.{codec}" for codec in CODECS}
            for codec, topic in topics.items():
                sent = [without_what(client, each) for each in RECORDS]
                driver.call("produce", topic=topic, records=sent, compression=codec)
            self._topics[client.name] = topics
        return self._topics[client.name]


def without_what(client: Client, record: dict[str, Any]) -> dict[str, Any]:
    """The record as far as this library can express it."""
    expressed = dict(record)
    if "timestamps" in client.lacks:
        expressed.pop("t")
    if "null_headers" in client.lacks:
        expressed["h"] = [pair for pair in record.get("h", []) if pair[1] is not None]
    return expressed


@pytest.fixture(scope="session")
def produced(drivers: Drivers) -> Produced:
    return Produced(drivers)


@pytest.mark.parametrize("consumer", CLIENTS, ids=str)
@pytest.mark.parametrize("producer", CLIENTS, ids=str)
def test_every_consumer_reads_what_every_producer_wrote(
    producer: Client, consumer: Client, produced: Produced, drivers: Drivers
) -> None:
    reader = drivers(consumer)
    topics = produced.topics(producer)
    name = reader.new_id()
    reader.call("open", id=name, assign=[[topic, 0, 0] for topic in topics.values()], fetch_wait_ms=100)
    wanted = len(RECORDS) * len(topics)
    records = reader.call("take", id=name, count=wanted, timeout_ms=TAKE_TIMEOUT_MS)["records"]
    reader.call("close", id=name)

    sent = [without_what(producer, each) for each in RECORDS]
    for codec, topic in topics.items():
        received = [each for each in records if each["topic"] == topic]
        assert [each["o"] for each in received] == list(range(len(RECORDS))), codec
        assert comparable(received, producer, consumer) == comparable(sent, producer, consumer), codec
        if "timestamps" not in producer.lacks:
            assert [each["t"] for each in received] == [each["t"] for each in sent], codec


def comparable(records: list[dict[str, Any]], *clients: Client) -> list[dict[str, Any]]:
    found = essences(records)
    if any("header_order" in client.lacks for client in clients):
        for each in found:
            each["h"] = sorted(each["h"], key=lambda pair: pair[0])
    return found
