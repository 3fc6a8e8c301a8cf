"""The clients: how each is started, what it needs, and what it cannot do by its own design.

A lack listed here is the library's, not the broker's: each was seen against Apache Kafka.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers import KAFKA_VERSION
from jvm import JVM

from .broker import KAFKA_LIBS

HERE = Path(__file__).parents[1]
PROGRAMS = HERE / "clients"
BUILD = HERE.parents[1] / "build/interop"


@dataclass(frozen=True)
class Client:
    """`missing()` says in one line why the client cannot run here, or gives None."""

    name: str
    command: list[str]
    missing: Callable[[], str | None]
    lacks: frozenset[str] = frozenset()
    env: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def _python(name: str, module: str, program: str, lacks: set[str] | None = None) -> Client:
    def missing() -> str | None:
        return None if importlib.util.find_spec(module) else f"{name} is not installed: pip install {name}"

    return Client(name, [sys.executable, str(PROGRAMS / "python" / program)], missing, frozenset(lacks or ()))


def _built(what: str, needs: list[tuple[str, Path]]) -> Callable[[], str | None]:
    def missing() -> str | None:
        for program, path in needs:
            if shutil.which(program) is None:
                return f"{what} needs {program}, which is not installed"
            if not path.exists():
                return f"{what} is not built ({path.name} is missing): make interop-clients"
        return None

    return missing


def _java(name: str, libs: Path, classes: str, program: str, lacks: set[str] | None = None) -> Client:
    folder = BUILD / classes
    command = [*JVM, "-Xmx256m", "-cp", f"{folder}:{libs}/*", program]
    return Client(name, command, _built(name, [("java", folder / f"{program}.class")]), frozenset(lacks or ()))


def _kcat_missing() -> str | None:
    return None if shutil.which("kcat") else "kcat is not installed: apt-get install kcat"


NEW_JAVA = f"java-{KAFKA_VERSION}"
OLD_JAVA_LACKS = {"alter_offsets", "max_timestamp"}

KCAT = Client(
    "kcat",
    [sys.executable, str(PROGRAMS / "python" / "kcat_client.py")],
    _kcat_missing,
    frozenset(
        {
            *("timestamps", "admin", "commit", "pause", "error_codes"),
            *("max_timestamp", "offsets", "large_requests"),
        }
    ),
)

CLIENTS = [
    KCAT,
    _python("confluent-kafka", "confluent_kafka", "confluent_client.py", {"delete_offsets"}),
    _python("kafka-python", "kafka", "kafka_python_client.py", {"null_headers"}),
    _python(
        "aiokafka",
        "aiokafka",
        "aiokafka_client.py",
        {
            *("alter_config", "alter_offsets", "delete_offsets", "delete_group", "max_timestamp"),
            *("describe_members", "record_errors", "large_requests"),
        },
    ),
    _java("java-2.4.1", BUILD / "kafka-2.4.1", "classes-2.4.1", "InteropClient", OLD_JAVA_LACKS),
    _java(NEW_JAVA, KAFKA_LIBS, f"classes-{KAFKA_VERSION}", "InteropClient"),
    Client("franz-go", [str(BUILD / "franz-go")], _built("franz-go", [("true", BUILD / "franz-go")])),
    Client(
        "kafkajs",
        ["node", str(PROGRAMS / "node/kafkajs_client.js")],
        _built("kafkajs", [("node", BUILD / "node/node_modules/kafkajs")]),
        frozenset(
            {
                *("max_timestamp", "delete_offsets", "instance", "header_order", "null_headers"),
                *("offset_reset", "roundrobin", "incremental_configs", "delete_records"),
            }
        ),
        {"NODE_PATH": str(BUILD / "node/node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
    ),
    _python("barnabas", "barnabas", "barnabas_client.py"),
]

KAFKA_TOOLS = _java("kafka-tools", KAFKA_LIBS, f"classes-{KAFKA_VERSION}", "KafkaTools")


NO_TRANSACTIONS = {"kcat": "kcat has no command for transactions"}
LEAVES_OPEN = {
    "confluent-kafka": "librdkafka's close leaves an open transaction to its timeout",
    "kafka-python": "kafka-python's close leaves an open transaction to its timeout",
    "aiokafka": "aiokafka's stop leaves an open transaction to its timeout",
    "franz-go": "kgo's Close leaves an open transaction to its timeout",
    "kafkajs": "KafkaJS' disconnect leaves an open transaction to its timeout",
}
"""What closing a producer in the middle of a transaction means for it; the others abort it."""


def clients_without(*lacks: str) -> list[Client]:
    """The clients that can do all of these."""
    return [client for client in CLIENTS if not client.lacks & set(lacks)]


def chosen(client: Client) -> bool:
    """BARNABAS_TEST_CLIENTS=java-2.4.1,kcat limits a run to some clients."""
    wanted = os.environ.get("BARNABAS_TEST_CLIENTS")
    return not wanted or client.name in wanted.split(",")
