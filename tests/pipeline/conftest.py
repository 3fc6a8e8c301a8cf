from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.cli.main import run
from barnabas.testing import Broker
from pipeline.checkpoints import write_checkpoint, write_interrupted_checkpoint


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """With topic orders, of two partitions with fifteen records each."""
    with Broker() as broker:
        broker.create_topic("orders", 2)
        with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(30):
                producer.send("orders", b"x", partition=number % 2)
        yield broker


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The checkpoint of an interrupted query."""
    return write_interrupted_checkpoint(tmp_path / "q")


@pytest.fixture
def project(broker: Broker, tmp_path: Path) -> Path:
    """A project with a checkpoint that the broker fits."""
    directory = tmp_path / "mine"
    assert run(["pipeline", "init", str(directory), "-b", broker.bootstrap_servers]) == 0
    (directory / "pipeline.py").write_text("def start(spark, settings, checkpoints, trigger): ...\n")  # without pyspark
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ids = {"orders": str(admin.describe_topics("orders")["orders"].topic_id)}
    write_checkpoint(directory / "checkpoints" / "copy", {"0": 5, "1": 5}, {"0": 9, "1": 9}, commits=2, ids=ids)
    return directory
