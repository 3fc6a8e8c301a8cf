"""A broker whose topics and groups are those of one file of tests, and a topic in it."""

import json
from collections.abc import Iterator

import pytest

from barnabas.testing import Broker
from cli.conftest import Run


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Of a broker whose topics and groups are these tests' alone."""
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(in_process: Run, name: str) -> str:
    """Two partitions; three records at 1, 2 and 3 seconds after 1970 in the first one."""
    in_process("topics", "create", name, "-p", "2")
    lines = "".join(json.dumps({"value": "x", "timestamp": 1000 * n}) + "\n" for n in (1, 2, 3))
    assert in_process("produce", name, "--from-json", "-p", "0", input=lines).returncode == 0
    return name
