"""KafkaJS does not try again upon COORDINATOR_LOAD_IN_PROGRESS: a broker that has just come back must not say it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from barnabas.testing import Broker
from broker.loading import Held

from .conftest import Drivers
from .harness.clients import CLIENTS
from .harness.data import numbered

KAFKAJS = next(client for client in CLIENTS if client.name == "kafkajs")


def test_kafkajs_commits_while_the_transactions_are_being_loaded(tmp_path: Path, unique: Callable[[str], str]) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        driver = Drivers(broker.bootstrap_servers, tmp_path).fresh(KAFKAJS)
        try:
            name = unique("transaction")
            driver.call("producer", id="p", transactional_id=name)
            driver.call("begin", id="p")
            driver.call("send", id="p", topic="orders", records=numbered(3, prefix="in"))
            held = Held(broker, lambda running: running.transactions, name)
            driver.send("end", id="p", commit=True)
            broker.wait_for(held.someone_waits, what="the commit at the broker")
            held.go_on()
            driver.answer("end")
        finally:
            driver.stop()
        broker.wait_for(lambda: broker.end_offsets("orders") == [4], what="the end marker")
