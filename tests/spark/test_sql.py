"""`barnabas sql`: topics as tables."""

import csv
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import barnabas
from barnabas.errors import UsageError
from barnabas.pipeline.errors import PipelineFailed
from barnabas.testing import Broker

pytest.importorskip("pyspark")

from barnabas.cli.pipeline.sql_output import print_rows
from barnabas.pipeline.sql_tables import Tables, readable_errors

TOPICS = ("orders", "my.topic-1", "Raw", "empty")


@pytest.fixture(scope="module")
def topics(broker: Broker) -> Broker:
    for topic in TOPICS:
        broker.create_topic(topic)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(5):
            value = {"id": number, "amount": number + 0.5, "buyer": {"name": "Käfer"}, "tags": ["a", None]}
            producer.send("orders", json.dumps(value).encode(), key=b"k%d" % number)
        producer.send("orders", b"oops")
        producer.send("my.topic-1", b"hello")
        producer.send("Raw", b"\xff\x00")
    return broker


@pytest.fixture
def ask(spark: Any, topics: Broker, capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    def answer(query: str, form: str = "json", most: int = 0, **options: str) -> str:
        source = {"kafka.bootstrap.servers": topics.bootstrap_servers, "valueFormat": "auto", "keyFormat": "string"}
        tables = Tables(spark, TOPICS, {**source, **options})
        for topic in TOPICS:
            spark.catalog.dropTempView(topic)
        capsys.readouterr()
        with readable_errors(tables):
            print_rows(tables.frame_of(query), most, form)
        return capsys.readouterr().out

    logging.disable(logging.CRITICAL)  # as the command does
    yield answer
    logging.disable(logging.NOTSET)


def test_fields_of_json(ask: Any) -> None:
    rows = [json.loads(line) for line in ask("SELECT * FROM orders ORDER BY offset").splitlines()]
    assert rows[1]["value"] == {"amount": 1.5, "buyer": {"name": "Käfer"}, "id": 1, "tags": ["a", None]}
    assert (rows[1]["key"], rows[1]["topic"], rows[1]["_corrupt"]) == ("k1", "orders", None)
    assert (rows[5]["value"], rows[5]["_corrupt"]) == (None, "oops")
    total = ask("WITH good AS (SELECT value.* FROM orders WHERE _corrupt IS NULL) SELECT sum(amount) total FROM good")
    assert json.loads(total) == {"total": 12.5}


def test_texts_and_bytes(ask: Any) -> None:
    assert ask("SELECT value FROM `my.topic-1`") == '{"value":"hello"}\n'
    assert ask("SELECT value FROM raw") == '{"value":"/wA="}\n'
    assert json.loads(ask("SELECT value FROM orders WHERE offset = 5", valueFormat="string")) == {"value": "oops"}


def test_forms(ask: Any) -> None:
    query = "SELECT offset, value.buyer.name, value.tags, value.buyer, offset FROM orders ORDER BY offset"
    rows = list(csv.reader(io.StringIO(ask(query, "csv", most=2))))
    assert rows[0] == ["offset", "name", "tags", "buyer", "offset"]
    assert rows[1:] == [[str(n), "Käfer", '["a", null]', '{"name": "Käfer"}', str(n)] for n in range(2)]
    shown = ask("SELECT offset, value.id FROM orders WHERE offset > 3 ORDER BY offset", "table")
    assert [line.split() for line in shown.splitlines()] == [["OFFSET", "ID"], ["4", "4"], ["5", "NULL"]]
    assert ask("SELECT 1 a, 2 a") == '{"a":1,"a_2":2}\n'


def test_what_is_wrong_is_named(ask: Any) -> None:
    with pytest.raises(UsageError, match=r"there is no topic 'ordrs' at .*; did you mean orders\?"):
        ask("SELECT * FROM ordrs")
    with pytest.raises(UsageError, match=r"names with dots or dashes stand in backquotes: `my\.topic-1`"):
        ask("SELECT * FROM my.topic-1")
    with pytest.raises(UsageError, match=r"amount is a field of the values of orders: write value\.amount"):
        ask("SELECT amount FROM orders")
    with pytest.raises(UsageError, match="Syntax error at or near 'orders'") as caught:
        ask("SELECT * form orders")
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="topic empty has no records to find the schema in"):
        ask("SELECT * FROM empty", valueFormat="json")
    with pytest.raises(PipelineFailed, match="bad luck") as failed:
        ask("SELECT raise_error('bad luck') FROM orders")
    assert "\n" not in str(failed.value)
    with pytest.raises(PipelineFailed, match="orders-0, offset 5: the value is no json of the schema"):
        ask("SELECT * FROM orders", mode="FAILFAST")


@pytest.mark.spark
def test_the_command(topics: Broker) -> None:
    """As typed: nothing of Spark's is heard."""
    command = [sys.executable, "-m", "barnabas", "sql", "--bootstrap", topics.bootstrap_servers]
    done = subprocess.run(
        [*command, "SELECT count(*) AS n FROM orders"], capture_output=True, text=True, timeout=300, env=os.environ
    )
    assert (done.returncode, done.stdout) == (0, "N\n6\n"), done.stderr
    assert done.stderr.startswith("1 row in ")
    assert len(done.stderr.splitlines()) == 1
    done = subprocess.run([*command, "SELECT 1 FROM ordrs"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert done.stderr.startswith("barnabas: there is no topic 'ordrs' at")
    assert len(done.stderr.splitlines()) == 1
