"""`barnabas transactions`, against a broker that lets hanging transactions be written, as brokers did before KIP-890.

With BARNABAS_TEST_BROKER: any Kafka with transaction.partition.verification.enable=false.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas import Admin
from barnabas.cli.transactions import hanging_transactions
from barnabas.client.admin.topics import NewTopic
from barnabas.errors import error_for
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.types import TopicPartition
from broker.wire import Wire
from cli.conftest import run_barnabas

confluent_kafka = pytest.importorskip("confluent_kafka")

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def transactional() -> Iterator[str]:
    """host:port of a broker."""
    external = os.environ.get("BARNABAS_TEST_BROKER")
    if external:
        yield external
        return
    from barnabas.testing import Broker

    settings = {"transaction.partition.verification.enable": False, "transaction.state.log.num.partitions": 3}
    with Broker(settings=settings) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(transactional: str, name: str) -> str:
    with Admin(bootstrap_servers=transactional) as admin:
        admin.create_topics(NewTopic(name, 3, 1))
        admin.list_offsets({(name, index): "latest" for index in range(3)})  # waits until there are leaders
    return name


@pytest.fixture
def ask(transactional: str) -> Ask:
    """`barnabas transactions ... --json`, decoded."""

    def run(*arguments: str) -> Any:
        done = run_barnabas("transactions", *arguments, "--json", environment={"BARNABAS_BOOTSTRAP": transactional})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def text(transactional: str) -> Callable[..., tuple[int, str]]:
    """`barnabas transactions ...`: exit code, and what was printed, wherever."""

    def run(*arguments: str) -> tuple[int, str]:
        done = run_barnabas("transactions", *arguments, environment={"BARNABAS_BOOTSTRAP": transactional})
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture
def begun(transactional: str, topic: str, name: str) -> Any:
    """A producer whose transaction is open in partitions 0 and 2."""
    producer = confluent_kafka.Producer({"bootstrap.servers": transactional, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in (0, 2):
        producer.produce(topic, b"v", partition=partition)
    producer.flush(60)
    return producer


def hang(bootstrap: str, topic: str, partition: int, producer_id: int, *, epoch: int = 3) -> int:
    """Write within a transaction that no coordinator knows; the offset of it."""
    record = Record(0, time.time_ns() // 1_000_000, None, b"v", ())
    batch = build_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])]
    request = ProduceRequest(transactional_id="nobody", acks=-1, timeout_ms=5000, topic_data=data)

    host, port = bootstrap.split(":")
    deadline = time.monotonic() + 60
    with Wire((host, int(port))) as wire:
        while True:
            answer = wire.ask(request, 9).responses[0].partition_responses[0]
            if not answer.error_code or not error_for(answer.error_code).retriable or time.monotonic() > deadline:
                break
            time.sleep(0.02)
    if answer.error_code:
        pytest.skip(f"the broker lets no transaction hang (error {answer.error_code})")
    return int(answer.base_offset)


# --- list and describe ----------------------------------------------------------------------------------------------


def test_an_open_transaction_and_its_end(ask: Ask, text: Ask, topic: str, name: str, begun: Any) -> None:
    (listed,) = [entry for entry in ask("list") if entry["transactional_id"] == name]
    assert listed["state"] == "Ongoing"
    described = ask("describe", name)
    assert described["partitions"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 2}]
    assert (described["state"], described["producer_id"]) == ("Ongoing", listed["producer_id"])
    assert (described["coordinator"], described["timeout_ms"]) == (listed["coordinator"], 60_000)
    assert 0 <= described["duration_ms"] < 60_000
    code, shown = text("describe", name)
    assert code == 0
    assert f"transactional id {name}, state Ongoing, coordinator {listed['coordinator']}" in shown
    assert f"{topic}          0" in shown
    (producer,) = ask("describe-producers", "-t", topic, "-p", "2")
    assert producer["producer_id"] == listed["producer_id"]
    assert producer["current_transaction_start_offset"] == 0
    begun.commit_transaction(30)
    described = ask("describe", name)
    assert (described["state"], described["duration_ms"], described["partitions"]) == ("CompleteCommit", None, [])
    (producer,) = ask("describe-producers", "-t", topic, "-p", "2")
    assert producer["current_transaction_start_offset"] is None
    assert producer["coordinator_epoch"] is not None
    assert "begun" not in text("describe", name)[1]


def test_the_filters_of_the_list(ask: Ask, text: Ask, name: str, begun: Any) -> None:
    (ours,) = ask("list", "--transactional-id-pattern", f"{name[:-1]}.")
    assert ours["transactional_id"] == name
    assert ask("list", "--transactional-id-pattern", name[:-1]) == []
    assert ours in ask("list", "--state", "Ongoing", "--state", "Empty")
    assert ours not in ask("list", "--state", "Empty")
    assert ask("list", "--producer-id", str(ours["producer_id"]), "--producer-id", "123456789") == [ours]
    assert ours in ask("list", "--duration-filter", "0")
    assert ours not in ask("list", "--duration-filter", "3600000")
    begun.abort_transaction(30)
    assert ask("list", "--producer-id", str(ours["producer_id"])) == [ours | {"state": "CompleteAbort"}]
    code, shown = text("list", "--producer-id", str(ours["producer_id"]))
    assert (code, shown.split()[-4:]) == (
        0,
        [name, str(ours["coordinator"]), str(ours["producer_id"]), "CompleteAbort"],
    )


# --- hanging transactions -------------------------------------------------------------------------------------------


def test_what_hangs_is_found_and_aborted(ask: Ask, text: Ask, transactional: str, topic: str) -> None:
    now = ("--max-transaction-timeout", "0")
    offsets = [hang(transactional, topic, 1, 900_001), hang(transactional, topic, 2, 900_002)]
    assert ask("find-hanging", "-t", topic) == [], "they may yet be ended by their coordinator, for all we know"
    found = ask("find-hanging", "-t", topic, *now)
    assert [(entry["partition"], entry["producer_id"], entry["start_offset"]) for entry in found] == [
        (1, 900_001, offsets[0]),
        (2, 900_002, offsets[1]),
    ]
    assert {(entry["producer_epoch"], entry["coordinator_epoch"], entry["transactional_id"]) for entry in found} == {
        (3, None, None)
    }
    assert {entry["partition"] for entry in ask("find-hanging", *now) if entry["topic"] == topic} == {1, 2}
    node = str(_node(transactional))
    assert ask("find-hanging", "--broker-id", node, "-t", topic, "-p", "1", *now)[0]["producer_id"] == 900_001
    code, shown = text("find-hanging", "-t", topic, *now)
    assert code == 0
    assert "transactions abort -t TOPIC" in shown

    code, shown = text("abort", "-t", topic, "-p", "1", "--start-offset", str(offsets[0]))
    assert (code, shown) == (0, f"aborted the transaction of producer 900001/3 in {topic}-1\n")
    by_producer = ("--producer-id", "900002", "--epoch", "3", "--coordinator-epoch", "-1")
    assert ask("abort", "-t", topic, "-p", "2", *by_producer) == {
        "topic": topic, "partition": 2, "start_offset": None, "producer_id": 900_002, "producer_epoch": 3,
        "coordinator_epoch": -1,
    }  # fmt: skip
    assert text("find-hanging", "-t", topic, *now) == (0, "no transaction hangs in 3 partitions\n")
    (producer,) = ask("describe-producers", "-t", topic, "-p", "1", "--broker-id", node)
    assert (producer["current_transaction_start_offset"], producer["coordinator_epoch"]) == (None, 0)
    with Admin(bootstrap_servers=transactional) as admin:
        ends = admin.list_offsets({(topic, 1): "latest"}, isolation="read_committed")
    assert ends[TopicPartition(topic, 1)].offset == offsets[0] + 2, "nobody stops in front of it any more"


def _node(bootstrap: str) -> int:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return min(admin.describe_cluster().brokers)


def test_what_a_coordinator_will_end_does_not_hang(ask: Ask, transactional: str, topic: str, begun: Any) -> None:
    hang(transactional, topic, 0, 900_003)
    found = ask("find-hanging", "-t", topic, "--max-transaction-timeout", "0")
    assert [(entry["partition"], entry["producer_id"]) for entry in found] == [(0, 900_003)]
    begun.abort_transaction(30)


def test_more_partitions_than_one_request_takes(transactional: str, topic: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(hanging_transactions, "PARTITIONS_AT_ONCE", 2)
    hang(transactional, topic, 2, 900_004)
    later_ms = time.time_ns() // 1_000_000 + 1000
    partitions = [TopicPartition(topic, index) for index in range(3)]
    with Admin(bootstrap_servers=transactional) as admin:
        found = hanging_transactions.find_hanging_transactions(admin, partitions, now_ms=later_ms, max_timeout_ms=0)
    assert [(each.partition, each.producer.producer_id) for each in found] == [(partitions[2], 900_004)]


# --- bad input ------------------------------------------------------------------------------------------------------


def test_an_abort_that_fits_nothing(text: Ask, transactional: str, topic: str) -> None:
    where = ("abort", "-t", topic, "-p", "1")
    code, shown = text(*where, "--start-offset", "7")
    assert (code, shown) == (1, f"barnabas: no transaction begins at offset 7 of {topic}-1; none is open there\n")
    offset = hang(transactional, topic, 1, 900_005)
    code, shown = text(*where, "--start-offset", str(offset + 1))
    assert code == 1
    assert f"open ones begin at {offset}" in shown
    code, shown = text(*where, "--producer-id", "900005", "--epoch", "2", "--coordinator-epoch", "0")
    assert code == 1
    assert f"{topic}-1 knows producer 900005 in a newer epoch" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("describe", "no-such-id"), 1, "transactional id 'no-such-id' is not known"),
        (("describe-producers", "-t", "no-such-topic", "-p", "0"), 1, "topic 'no-such-topic' does not exist"),
        (("find-hanging", "-t", "no-such-topic"), 1, "topic 'no-such-topic' does not exist"),
        (("find-hanging", "-p", "1"), 2, "--partition needs the one --topic"),
        (("find-hanging", "--broker-id", "99"), 1, "broker 99 is not in the cluster"),
        (("list", "--state", "Nonsense"), 2, "never in state Nonsense, but in Empty, Ongoing"),
        (("list", "--transactional-id-pattern", "("), 1, "'(' is no regular expression"),
        (("abort", "-t", "t", "-p", "0"), 2, "give either --start-offset, or all of"),
        (("abort", "-t", "t", "-p", "0", "--producer-id", "1"), 2, "give either --start-offset, or all of"),
        (("abort", "-t", "t", "-p", "0", "--start-offset", "1", "--epoch", "1"), 2, "give either"),
    ],
)
def test_bad_input_is_one_line(text: Ask, arguments: tuple[str, ...], code: int, words: str) -> None:
    ended, shown = text(*arguments)
    assert words in shown
    assert (ended, shown.count("\n")) == (code, 1)


def test_a_partition_that_is_not_there(text: Ask, topic: str) -> None:
    assert f"topic '{topic}' has partitions 0 to 2, not 9" in text("find-hanging", "-t", topic, "-p", "9")[1]
