"""One Spark session and one broker for a module's tests. Without pyspark (extra `spark`) they are left out."""

import itertools
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.pipeline.project import DELTA
from barnabas.testing import Broker
from jvm import QUICK_OPTIONS

_numbers = itertools.count()


def connector_jars() -> list[str]:
    """Of Spark's own Kafka connector, where it was fetched (`make spark-connector`) and is for this pyspark."""
    minor = version("pyspark").rpartition(".")[0]
    found = Path(__file__).parents[2].glob(f"build/spark-connector/{minor}.*/*.jar")
    return sorted(str(jar) for jar in found)


def has_delta() -> bool:
    """Returns whether Delta's jars were fetched for this pyspark (`make spark-connector`)."""
    return any("/delta-spark" in jar for jar in connector_jars())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever starts a session is marked: that takes too long for every change."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


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
        "spark.driver.extraJavaOptions": QUICK_OPTIONS,
    }
    if jars := connector_jars():
        settings["spark.jars"] = ",".join(jars)  # here and not in one module: all sessions share the JVM of the first
    if has_delta():
        settings |= {name: text for name, text in DELTA.items() if name != "spark.jars.packages"}
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
