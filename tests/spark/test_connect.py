"""Through a server for Spark Connect: its client has no JVM, and the data source is found by the server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker

pytest.importorskip("pyspark")
pytest.importorskip("grpc_status", reason="Spark Connect needs pip install 'pyspark[connect]'")
from .spark_services import connect_server

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"transaction.two.phase.commit.enable": "true"}) as broker:
        yield broker


def test_reads_writes_and_streams(broker: Broker, topic: str, tmp_path: Path) -> None:
    for name in (topic, f"{topic}-copy"):
        broker.create_topic(name, 2)
    script = Path(__file__).with_name("connect_client.py")
    with connect_server(tmp_path / "server") as server:
        words = [server, broker.bootstrap_servers, topic, str(tmp_path / "checkpoint")]
        done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "connect" in found["kind"]
    assert found["written"] == list(range(100))
    assert found["progress"] == [100, 100]
    assert found["copied"] == list(range(300))
    assert found["sql"] == {"n": 300, "first": 0}
