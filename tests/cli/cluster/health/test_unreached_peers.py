"""`barnabas cluster doctor` about a broker that tells the others an address at which nobody listens."""

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from barnabas.broker.cluster import member
from barnabas.testing import Broker
from barnabas.testing.ports import ReservedPort
from broker.cluster.clusters import wait_for
from cli.conftest import Run


@pytest.fixture
def ports() -> Iterator[list[int]]:
    """Those of clients and of brokers, for broker 1 and 2, and one where nobody listens."""
    with ExitStack() as undo:
        reserved = [ReservedPort() for _ in range(5)]
        for port in reserved:
            undo.callback(port.release)
        yield [port.number for port in reserved]


@pytest.fixture
def bootstrap(ports: list[int]) -> str:
    return f"127.0.0.1:{ports[0]}"


def broker_that_tells(directory: Path, node_id: int, clients: int, brokers: int, told: int) -> Broker:
    """Returns a broker, not started, that listens for others at the port `brokers`."""
    names = "PLAINTEXT://127.0.0.1:{},BROKERS://127.0.0.1:{}"
    settings = {
        "node.id": node_id,
        "registry.file": str(directory / "registry.db"),
        "listeners": names.format(clients, brokers),
        "advertised.listeners": names.format(clients, told),
        "inter.broker.listener.name": "BROKERS",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
    }
    return Broker(data_dir=directory / str(node_id), settings=settings)


def test_an_address_for_brokers_where_nobody_listens_is_named(
    tmp_path: Path,
    ports: list[int],
    in_process: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(member, "WAITING_S", 0.5)
    caplog.set_level(logging.WARNING, "barnabas.broker")
    nobody = ports[4]
    with (
        broker_that_tells(tmp_path, 1, ports[0], ports[1], ports[1]),
        broker_that_tells(tmp_path, 2, ports[2], ports[3], nobody),
    ):
        waiting = wait_for(
            lambda: [each.getMessage() for each in caplog.records if "clients are not accepted" in each.getMessage()]
        )
        done = in_process("cluster", "doctor", "--json", "--timeout", "2")
    (line,) = waiting
    assert line == (
        "clients are not accepted yet: this broker waits for the controller, broker 1, to send it metadata, "
        f"which has to reach it at 127.0.0.1:{nobody}, the BROKERS entry of advertised.listeners"
    )
    assert done.returncode == 1
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"] if check["status"] != "ok"}
    assert (checks["peers"]["status"], checks["peers"]["target"]) == ("failed", "broker 1")
    assert checks["peers"]["detail"] == f"cannot reach broker 2 at 127.0.0.1:{nobody} (connection refused)"
    assert checks["peers"]["hint"].startswith("set the BROKERS entry of advertised.listeners of broker 2 ")
    assert checks["advertised"]["detail"].endswith("timed out")
    assert "advertised.listeners" not in checks["advertised"]["hint"]
