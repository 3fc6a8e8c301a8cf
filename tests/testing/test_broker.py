"""The test kit's broker: its life, its helpers, from any thread."""

import socket
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.controller.controller import Controller
from barnabas.errors import (
    InvalidConfig,
    InvalidTopic,
    OperationTimedOut,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    UsageError,
)
from barnabas.registry.registry import BrokerRegistration, RegistryUnreachable
from barnabas.testing import Broker, BrokerDied
from broker.sent_requests import batch, fetch, produce
from broker.wire import Wire, on_loop, server_of
from stopwatch import Stopwatch
from testing.other_clients import consumer, read, send

confluent = pytest.importorskip("confluent_kafka")


# --- life -----------------------------------------------------------------------------------------------------------


def test_a_real_client_produces_and_consumes(broker: Broker) -> None:
    send(broker, "t", b"a", b"b", key=b"k")
    client = consumer(broker, "g")
    client.subscribe(["t"])
    assert read(client, 2) == [b"a", b"b"]
    client.close()


def test_ready_means_that_a_produce_succeeds_at_once() -> None:
    for _ in range(3):
        with Broker() as broker, Wire(broker) as wire:
            broker.create_topic("t")
            assert wire.ask(produce(broker, {0: batch(b"x")}), 12).responses[0].partition_responses[0].error_code == 0


def test_a_restart_keeps_port_and_data(broker: Broker) -> None:
    before = broker.bootstrap_servers
    client = consumer(broker, "g")
    send(broker, "t", b"a")
    client.subscribe(["t"])
    assert read(client, 1) == [b"a"]
    client.commit(asynchronous=False)
    broker.restart()
    assert broker.bootstrap_servers == before
    send(broker, "t", b"b")
    assert read(client, 1) == [b"b"], "the client carries on"
    client.close()
    assert broker.committed("g") == {("t", 0): 1}


def test_data_of_a_given_directory_stays(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", partitions=2, configs={"retention.ms": "1000000"})
        send(broker, "t", b"a", partition=1)
    with Broker(data_dir=tmp_path) as broker:
        assert broker.topics() == ["t"]
        assert broker.end_offsets("t") == [0, 1]
        assert [record.value for record in broker.records("t")] == [b"a"]
    assert (tmp_path / "t-1").is_dir()


def test_records_with_old_timestamps_stay() -> None:
    with Broker(settings={"log.initial.task.delay.ms": 0, "log.retention.check.interval.ms": 10}) as broker:
        broker.create_topic("stays")
        broker.create_topic("goes", configs={"retention.ms": "1000"})
        with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("stays", b"of 1970", timestamp=1000)
            producer.send("goes", b"of 1970", timestamp=1000)
        broker.wait_for(lambda: not broker.records("goes"), timeout=60, what="retention, where a topic asks for it")
        assert [record.value for record in broker.records("stays")] == [b"of 1970"]


def test_a_directory_of_its_own_goes_with_the_broker() -> None:
    with Broker() as broker:
        directory = broker.data_dir
        assert directory.is_dir()
        broker.stop()
        assert directory.is_dir(), "start() would find it"
    assert not directory.exists()


@pytest.mark.parametrize(
    ("host", "told"), [("127.0.0.1", "127.0.0.1:"), ("0.0.0.0", "127.0.0.1:"), ("::1", "[::1]:"), ("::", "[::1]:")]
)
def test_bootstrap_servers_is_an_address_to_connect_to(host: str, told: str) -> None:
    with Broker(host=host) as broker:
        assert broker.bootstrap_servers.startswith(told)
        send(broker, "t", b"x")
        assert broker.end_offsets("t") == [1]


def test_the_address_stays_while_the_broker_is_stopped(broker: Broker) -> None:
    address = broker.bootstrap_servers
    broker.stop()
    assert broker.bootstrap_servers == address
    with pytest.raises(UsageError, match="no port before its first start"):
        _ = Broker().bootstrap_servers


def test_an_outage_refuses_connections_and_keeps_the_records(broker: Broker) -> None:
    broker.create_topic("t")
    host, port = broker.bootstrap_servers.split(":")
    settings = {"bootstrap_servers": broker.bootstrap_servers, "reconnect_backoff_ms": 10, "retry_backoff_ms": 10}
    with barnabas.Producer(**settings) as producer:
        producer.send("t", b"before").result(timeout=60)
        with broker.down():
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)))
            meanwhile = producer.send("t", b"meanwhile")
        assert meanwhile.result(timeout=60).offset == 1
    assert [record.value for record in broker.records("t")] == [b"before", b"meanwhile"]


def test_a_kill_ends_the_broker_without_a_word(broker: Broker) -> None:
    settings = {"bootstrap_servers": broker.bootstrap_servers, "reconnect_backoff_ms": 10, "retry_backoff_ms": 10}
    broker.create_topic("t")
    with barnabas.Producer(**settings) as producer:
        producer.send("t", b"before").result(timeout=60)
        before = broker.bootstrap_servers
        broker.kill()
        assert not broker.is_running
        assert not (broker.data_dir / ".kafka_cleanshutdown").exists()
        assert session_in_registry(broker), "it did not end its session"
        host, port = before.split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))
        with pytest.raises(UsageError, match="does not run"):
            broker.kill()
        meanwhile = producer.send("t", b"meanwhile")
        broker.start()
        assert broker.bootstrap_servers == before
        assert meanwhile.result(timeout=60).offset == 1
    assert [record.value for record in broker.records("t")] == [b"before", b"meanwhile"]
    broker.stop()
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    assert not session_in_registry(broker)


def session_in_registry(broker: Broker) -> str:
    """Returns the process that the registry of a broker that does not run names."""
    with closing(sqlite3.connect(broker.data_dir / "registry.db")) as registry:
        ((process,),) = registry.execute("SELECT process FROM brokers").fetchall()
    return str(process)


def test_a_paused_broker_answers_nothing_until_it_goes_on(broker: Broker) -> None:
    broker.create_topic("t")
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"before").result(timeout=60)
        broker.pause()
        broker.pause()
        assert broker.is_paused
        sent = producer.send("t", b"waits")
        with pytest.raises(OperationTimedOut):
            sent.result(timeout=0.2)
        with pytest.raises(UsageError, match="the broker is paused"):
            broker.end_offsets("t")
        broker.resume()
        broker.resume()
        assert sent.result(timeout=60).offset == 1


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill, Broker.reset])
def test_a_pause_ends_with_the_broker(broker: Broker, end: Callable[[Broker], None]) -> None:
    broker.pause()
    end(broker)
    assert not broker.is_paused
    if not broker.is_running:
        broker.start()
    assert broker.topics() == []


def test_calls_of_a_broker_that_does_not_run_say_so(broker: Broker) -> None:
    with pytest.raises(UsageError, match="runs already"):
        broker.start()
    broker.stop()
    for call in (broker.topics, broker.reset, lambda: broker.create_topic("t"), lambda: broker.committed("g")):
        with pytest.raises(UsageError, match="the broker does not run"):
            call()


def test_a_broker_that_died_fails_calls_at_once(stopwatch: Stopwatch) -> None:
    with Broker() as broker:
        loop, thread = broker._loop, broker._thread
        assert loop is not None
        assert thread is not None
        loop.call_soon_threadsafe(loop.stop)  # what an error that nobody caught would do
        thread.join()
        began = stopwatch()
        with pytest.raises(BrokerDied, match="thread has ended"):
            broker.end_offsets("t")
        with pytest.raises(BrokerDied):
            broker.stop()
        assert stopwatch() - began < 10


def test_a_broker_that_hangs_fails_calls_within_the_patience() -> None:
    go_on = threading.Event()
    with Broker(patience=0.1) as broker:
        assert broker._loop is not None
        broker._loop.call_soon_threadsafe(go_on.wait)
        try:
            with pytest.raises(BrokerDied, match=r"has not answered within 0\.1 s(.|\n)*threading\.py"):
                broker.create_topic("t")
        finally:
            go_on.set()
        broker.patience = 30
        broker.create_topic("t")  # the first call was given up, not done late


def test_two_brokers_know_nothing_of_each_other() -> None:
    with Broker() as one, Broker() as two:
        assert one.bootstrap_servers != two.bootstrap_servers
        one.create_topic("t")
        send(two, "u", b"x")
        assert (one.topics(), two.topics()) == (["t"], ["u"])


def test_settings_are_kafkas() -> None:
    with Broker(settings={"num.partitions": 4, "auto.create.topics.enable": True}) as broker:
        send(broker, "t", b"x", key=b"k")
        assert len(broker.end_offsets("t")) == 4
    with pytest.raises(UsageError, match=r"num\.partition is not a setting"):
        Broker(settings={"num.partition": 4}).start()


def test_a_start_that_fails_can_be_tried_again(tmp_path: Path) -> None:
    blocker = tmp_path / "data"
    blocker.write_text("a file")
    broker = Broker(data_dir=blocker)
    with pytest.raises(UsageError):
        broker.start()
    assert not broker.is_running
    blocker.unlink()
    with broker:
        broker.create_topic("t")


def test_a_start_that_loses_its_registry_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, lost = Controller.start, 2

    def lost_at_first(self: Controller, registration: BrokerRegistration, *further: Any) -> None:
        nonlocal lost
        if lost:
            lost -= 1
            raise RegistryUnreachable("the connection is lost")
        begin(self, registration, *further)

    monkeypatch.setattr(Controller, "start", lost_at_first)
    with Broker() as broker:
        broker.create_topic("t")
    lost = 1_000_000
    never = Broker(settings={"zookeeper.connection.timeout.ms": 1})
    with pytest.raises(UsageError, match="the connection is lost; start again when it is there"):
        never.start()
    never.close()


def test_stopping_while_clients_wait_does_not_take_their_time(broker: Broker, stopwatch: Stopwatch) -> None:
    broker.create_topic("t")
    with Wire(broker) as wire:
        wire.send(fetch(broker, {0: 0}, max_wait_ms=60_000), 12)
        broker.wait_for(lambda: on_loop(broker, lambda: server_of(broker).purgatory.size), what="the parked fetch")
        began = stopwatch()
        broker.stop()
        assert stopwatch() - began < 5
        assert wire.is_closed()
    broker.stop()
    assert not broker.is_running


def test_methods_may_be_called_from_any_thread(broker: Broker) -> None:
    def work(number: int) -> int:
        broker.create_topic(f"t{number}")
        with Wire(broker) as wire:
            wire.ask(produce(broker, {0: batch(b"x")}, topic=f"t{number}"), 12)
        return sum(broker.end_offsets(f"t{number}")) + len(broker.records(f"t{number}"))

    before = threading.active_count()
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(24))) == [2] * 24
    assert len(broker.topics()) == 24
    assert threading.active_count() < before + 8, "those of the broker's pools"


# --- helpers --------------------------------------------------------------------------------------------------------


def test_topics_that_cannot_be_made(broker: Broker) -> None:
    broker.create_topic("t")
    with pytest.raises(TopicAlreadyExists):
        broker.create_topic("t")
    with pytest.raises(InvalidTopic):
        broker.create_topic("no good")
    with pytest.raises(InvalidConfig):
        broker.create_topic("u", configs={"retention.ms": "soon"})
    with pytest.raises(UnknownTopicOrPartition):
        broker.delete_topic("gone")
    for helper in (broker.end_offsets, broker.records):
        with pytest.raises(UnknownTopicOrPartition):
            helper("gone")


def test_topics_by_the_administrators_names(broker: Broker) -> None:
    broker.create_topics(["a", barnabas.NewTopic("b", partitions=2, configs={"retention.ms": "1000000"})])
    assert [(view.name, len(view.partitions)) for view in broker.admin.list_topics()] == [("a", 1), ("b", 2)]
    assert broker.admin.describe_configs([("topic", "b")])[("topic", "b")]["retention.ms"].value == "1000000"
    broker.delete_topics(["a", "b"])
    assert broker.topics() == []
    with pytest.warns(DeprecationWarning, match=r"create_topic\(config=\) is configs= now"):
        broker.create_topic("c", config={"retention.ms": "1"})


def test_what_is_produced_wakes_a_waiting_fetch(broker: Broker) -> None:
    broker.create_topic("t")
    with Wire(broker) as wire:
        wire.send(fetch(broker, {0: 0}, max_wait_ms=60_000), 12)
        broker.wait_for(lambda: on_loop(broker, lambda: server_of(broker).purgatory.size), what="the parked fetch")
        broker.produce("t", b"x")
        assert wire.receive().responses[0].partitions[0].high_watermark == 1


def test_groups_committed_offsets_and_lag(broker: Broker) -> None:
    broker.create_topic("t", partitions=2)
    send(broker, "t", b"a", b"b", b"c", partition=0)
    clients = [consumer(broker, "g") for _ in range(2)]
    for client in clients:
        client.subscribe(["t"])
    stop = threading.Event()

    def poll(client: Any) -> None:
        while not stop.is_set():
            client.poll(0.05)

    threads = [threading.Thread(target=poll, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    try:
        broker.wait_for_group("g", members=2)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for client in clients:
            client.close()
    committer = consumer(broker, "g")
    committer.commit(offsets=[confluent.TopicPartition("t", 0, 1)], asynchronous=False)
    committer.close()
    assert broker.committed("g") == {("t", 0): 1}
    assert broker.lag("g") == {("t", 0): 2}
    assert broker.committed("nobody") == {}
    with pytest.raises(TimeoutError, match=r"group g with 3 stable members .* it is Empty with 0 members"):
        broker.wait_for_group("g", members=3, timeout=0.05)
    with pytest.raises(TimeoutError, match=r"^seven did not come true within 0\.01 s: 0$"):
        broker.wait_for(lambda: 0, timeout=0.01, what="seven")


# --- reset ----------------------------------------------------------------------------------------------------------


def test_reset_is_as_new(broker: Broker) -> None:
    send(broker, "t", b"a")
    client = consumer(broker, "g")
    client.subscribe(["t"])
    assert read(client, 1) == [b"a"]
    client.commit(asynchronous=False)
    broker.faults.error("PRODUCE", InvalidTopic, times=None)
    broker.reset()
    assert broker.topics() == []
    assert broker.committed("g") == {}
    send(broker, "t", b"b")
    assert [record.value for record in broker.records("t")] == [b"b"]
    client.close()


def test_reset_keeps_connections(broker: Broker) -> None:
    with Wire(broker) as wire:
        for _ in range(3):
            broker.create_topic("t")
            assert wire.ask(produce(broker, {0: batch(b"x")}), 12).responses[0].partition_responses[0].base_offset == 0
            broker.reset()


def test_a_broker_has_several_log_directories() -> None:
    with Broker(log_dirs=2) as broker:
        broker.create_topic("t", partitions=2)
        assert [[path.name for path in log_dir.glob("t-*")] for log_dir in broker.log_dirs] == [["t-0"], ["t-1"]]
        assert {log_dir.parent for log_dir in broker.log_dirs} == {broker.data_dir}
    assert not broker.data_dir.exists()
    with pytest.raises(UsageError, match=r"log\.dirs is not for a test to set: data_dir says where"):
        Broker(settings={"log.dirs": "a,b"})
