"""Every block of docs/spark.md, on real sessions. Addresses and directories are replaced by those of the test."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing import Broker
from code_blocks import Block, blocks_of, environment_in

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

BLOCKS = blocks_of("docs/spark.md")
CONNECT = "sc://spark-connect:15002"
PROGRAMS = [block for block in BLOCKS if block.language == "python" and CONNECT not in block.text]
COMMANDS = {block.section: block.commands for block in BLOCKS if block.language in ("sh", "console")}

Shell = Callable[[str], str]


@pytest.fixture(scope="module")
def broker() -> Any:
    """A broker with the topics that the page speaks of."""
    with Broker(settings={"transaction.two.phase.commit.enable": "true"}) as broker:
        broker.create_topics(["orders", "orders.v1", "flights", "orders-checked", "totals"])
        for number in range(3):
            add_order(broker, number)
            broker.produce("flights", json.dumps({"carrier": "UA" if number else "AA"}))
        for value in ('{"id": 1}', '{"id": 2}', '{"id": 3}', '{"id": 4}', "no JSON"):
            broker.produce("orders.v1", value)
        yield broker


def add_order(broker: Broker, number: int) -> None:
    order = {"id": number, "customer": "ann", "at": "2013-01-01T05:15:00Z", "lines": [], "total": 12.5}
    broker.produce("orders", json.dumps(order), key="ann")


@pytest.fixture
def shell(broker: Broker, tmp_path: Path) -> Shell:
    """Runs a command of the page in the test's directory, and returns what it prints."""
    environment = environment_in(tmp_path, broker.bootstrap_servers)

    def run(command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command.replace("localhost:9092", broker.bootstrap_servers)],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def test_the_programs_run_one_after_the_other(spark: Any, broker: Broker, tmp_path: Path) -> None:
    names: dict[str, Any] = {"spark": spark, "servers": broker.bootstrap_servers}
    ran: list[Block] = []
    replaced = {
        "localhost:9092": broker.bootstrap_servers,
        "port=9404": "port=0",
        "/archive/broker-1": str(broker.data_dir),
        "1000000": "1",
        "/data/checkpoints": str(tmp_path),
        "spark://spark-master:7077": "local[2]",  # test_standalone.py has a cluster
    }

    def run(section: str) -> None:
        for block in PROGRAMS:
            if block.section == section:
                text = block.text
                for old, new in replaced.items():
                    text = text.replace(old, new)
                exec(compile(text, f"docs/spark.md:{block.line}", "exec"), names)  # noqa: S102
                ran.append(block)

    run("Topics in Spark")
    run("Reading")
    assert names["orders"].isStreaming
    run("Values with types")
    assert names["good"].columns == ["id", "customer", "at", "lines", "offset"]
    assert names["bad"].columns == ["value", "topic", "partition", "offset"]
    run("Log directories without a broker")
    assert names["lost"].count() == 2

    run("Writing")
    query = names["query"]
    query.processAllAvailable()  # where it begins is settled
    add_order(broker, 3)
    query.processAllAvailable()
    query.stop()
    (row,) = broker.records("orders-checked")
    assert (row.key, json.loads(row.value or b"")["id"]) == (b"ann", 3)

    run("Exactly once")
    rows = spark.createDataFrame([("a", "1"), ("b", "2")], "key string, value string")
    for _ in range(2):
        names["write"](rows, 0)
    reader = spark.read.format("barnabas").option("bootstrap.servers", broker.bootstrap_servers)
    totals = reader.option("subscribe", "totals").option("isolationLevel", "read_committed").load()
    assert totals.count() == 2, "a version is written once"

    refreshed = broker.produce("totals", "3", headers={"generation": "1"})
    run("Full refresh")
    assert broker.committed("billing") == {("totals", 0): refreshed.offset}
    run("More machines")
    assert ran == PROGRAMS


def test_topics_are_asked_in_sql(shell: Shell, tmp_path: Path) -> None:
    flights, corrupt, to_file = COMMANDS["SQL over topics"]
    assert "UA" in shell(flights)
    assert json.loads(shell(corrupt))["offset"] == 4
    shell(to_file)
    assert len((tmp_path / "orders.csv").read_text().splitlines()) > 3


def test_a_pipeline_is_made_run_and_looked_after(broker: Broker, shell: Shell) -> None:
    for name in ("dead-letters", "orders-dead-letters", "orders-copy", "orders-good"):
        broker.create_topic(name)
    for command in COMMANDS["Pipelines"]:
        until_ctrl_c = " run " in command
        shell(command.partition("#")[0] + (" --once --master 'local[2]'" if until_ctrl_c else ""))


def test_a_declarative_pipeline_is_made_and_run(shell: Shell, tmp_path: Path) -> None:
    pytest.importorskip("grpc_status", reason="needs pip install 'barnabas[spark-pipelines]'")
    pytest.importorskip("yaml")
    init, once = COMMANDS["Declarative pipelines"]
    shell(init)
    shell(f"{once} --master 'local[2]'")
    assert list((tmp_path / "shop" / "warehouse").iterdir())


def test_open_transactions_of_a_query_are_listed(shell: Shell) -> None:
    (listed,) = COMMANDS["What a query has left open"]
    shell(listed)


def test_a_client_of_spark_connect_reads(broker: Broker, tmp_path: Path) -> None:
    """The command beside the program is the one that `connect_server` starts."""
    pytest.importorskip("grpc_status", reason="needs pip install 'pyspark[connect]'")
    from . import spark_services

    (command,) = COMMANDS["More machines"]
    assert all(f'"{word}"' in Path(spark_services.__file__).read_text() for word in command.split())
    (block,) = [block for block in BLOCKS if CONNECT in block.text]
    program = f"from pyspark.sql import SparkSession\nservers = {broker.bootstrap_servers!r}\n{block.text}"
    with spark_services.connect_server(tmp_path / "server") as server:
        text = program.replace(CONNECT, server)
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_each_block_is_run() -> None:
    assert {block.section for block in BLOCKS if block not in PROGRAMS} == COMMANDS.keys()
    assert COMMANDS.keys() == {
        "SQL over topics",
        "More machines",
        "Pipelines",
        "Declarative pipelines",
        "What a query has left open",
    }
