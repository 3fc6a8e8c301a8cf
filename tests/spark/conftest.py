"""One Spark session and one broker for a module's tests. Without pyspark (extra `spark`) they are left out."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import barnabas
from barnabas.testing import Broker

_numbers = itertools.count()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark")
    from barnabas.spark.sessions import session

    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
    }
    found = session("tests", master="local[2]", settings=settings)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    """A name of this test alone."""
    return f"spark-{next(_numbers)}"


class Writer:
    """Puts numbered records into a topic's partitions."""

    def __init__(self, broker: Broker) -> None:
        self.producer = barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=2)

    def write(self, topic: str, partition: int, numbers: range, **more: Any) -> None:
        for number in numbers:
            self.producer.send(topic, b"%d" % number, partition=partition, **more)
        self.producer.flush()


@pytest.fixture
def writer(broker: Broker) -> Iterator[Writer]:
    writer = Writer(broker)
    yield writer
    writer.producer.close()
