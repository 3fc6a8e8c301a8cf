"""Compaction in a broker that serves: by its own process, behind the clients' backs, without leftovers."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin
from barnabas.log.unified_log import UnifiedLog
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from broker.wire import on_loop, server_of

confluent = pytest.importorskip("confluent_kafka")

SETTINGS = {"log.cleaner.backoff.ms": 20, "offsets.topic.num.partitions": 1, "offsets.topic.segment.bytes": 3000}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as broker:
        yield broker


def log_of(broker: Broker, topic: str, partition: int = 0) -> UnifiedLog:
    return server_of(broker).log_manager.logs[TopicPartition(topic, partition)]


def pid_of(broker: Broker) -> int | None:
    return on_loop(broker, lambda: server_of(broker).log_cleaner.process.pid)


def wait_until_clean(broker: Broker, topic: str) -> None:
    """Until the cleaner has been everywhere but in the active segment."""
    cleaner = server_of(broker).log_cleaner.manager

    def is_clean() -> bool:
        log = log_of(broker, topic)
        return on_loop(broker, lambda: not cleaner.busy and cleaner.cleanable(log).dirty_bytes == 0)

    broker.wait_for(is_clean, 60.0, f"the cleaning of {topic}")


def produce(broker: Broker, topic: str, count: int, keys: int, **settings: Any) -> None:
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 5000, **settings})
    for number in range(count):
        producer.produce(topic, key=f"k{number % keys}", value=f"{number}-" + "x" * 100)
    assert producer.flush(60) == 0


def read_all(broker: Broker, topic: str) -> list[tuple[int, bytes, bytes]]:
    """As a client gets it, to the end."""
    consumer = confluent.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "r", "enable.auto.commit": False}
    )
    end = broker.end_offsets(topic)[0]
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes, bytes]] = []
    try:
        while consumer.position([confluent.TopicPartition(topic, 0)])[0].offset < end:
            message = consumer.poll(60)
            assert message is not None, f"nothing more behind {found[-1:]}"
            assert message.error() is None
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_clients_see_the_last_record_of_each_key(broker: Broker, compression: str) -> None:
    broker.create_topic("cities", configs=COMPACTED)
    produce(broker, "cities", 3000, 20, **{"compression.type": compression, "enable.idempotence": True})
    wait_until_clean(broker, "cities")
    found = read_all(broker, "cities")
    assert len(found) < 1000
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    latest = {key: value for _, key, value in found}
    assert latest == {b"k%d" % (n % 20): b"%d-" % n + b"x" * 100 for n in range(2980, 3000)}
    produce(broker, "cities", 1000, 20)
    wait_until_clean(broker, "cities")
    broker.restart()
    assert len({key for _, key, _ in read_all(broker, "cities")}) == 20


def test_nothing_is_left_of_it(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, settings=SETTINGS) as broker:
        broker.create_topic("cities", configs=COMPACTED)
        produce(broker, "cities", 2000, 20)
        wait_until_clean(broker, "cities")
        pid = pid_of(broker)
        assert pid is not None
        produce(broker, "cities", 2000, 20)  # stopped in the middle of something, as likely as not
    assert not os.path.exists(f"/proc/{pid}")
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".cleaned", ".swap")]


def test_no_process_where_nothing_is_compacted(broker: Broker) -> None:
    broker.create_topic("plain", configs={"segment.bytes": "20000"})
    produce(broker, "plain", 2000, 20)
    broker.create_topic("cities", configs=COMPACTED)
    produce(broker, "cities", 10, 2)
    on_loop(broker, server_of(broker).log_cleaner.run)
    assert pid_of(broker) is None, "one active segment is nothing to clean"


def test_it_can_be_switched_off() -> None:
    with Broker(settings={**SETTINGS, "log.cleaner.enable": False}) as broker:
        broker.create_topic("cities", configs=COMPACTED)
        produce(broker, "cities", 2000, 20)
        assert on_loop(broker, lambda: server_of(broker).log_cleaner._timer) is None
        assert len(broker.records("cities")) == 2000


def test_a_topic_that_is_deleted_while_it_is_cleaned(broker: Broker) -> None:
    for _ in range(3):
        broker.create_topic("cities", configs=COMPACTED)
        produce(broker, "cities", 3000, 20)
        broker.delete_topic("cities")
    broker.create_topic("cities", configs=COMPACTED)
    produce(broker, "cities", 3000, 20)
    wait_until_clean(broker, "cities")
    assert len({key for _, key, _ in read_all(broker, "cities")}) == 20


def test_committed_offsets_are_compacted(broker: Broker) -> None:
    broker.create_topic("t", 3)
    consumer = confluent.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
    )
    for number in range(300):
        offsets = [confluent.TopicPartition("t", partition, number) for partition in range(3)]
        consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    log = log_of(broker, "__consumer_offsets")
    on_loop(broker, log.roll)
    broker.wait_for(lambda: (log.cleaned_offset or 0) > 200, 60.0, "the cleaning of the committed offsets")
    wait_until_clean(broker, "__consumer_offsets")
    assert len(broker.records("__consumer_offsets")) < 150
    assert broker.committed("g") == {("t", partition): 299 for partition in range(3)}
    broker.restart()
    assert broker.committed("g") == {("t", partition): 299 for partition in range(3)}


def test_what_our_clients_are_told(broker: Broker) -> None:
    broker.create_topic("cities", configs=COMPACTED)
    broker.create_topic("plain")
    produce(broker, "cities", 2000, 20)
    wait_until_clean(broker, "cities")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        replicas = {replica.topic: replica for [d] in admin.describe_log_dirs().values() for replica in d.replicas}
    told = replicas["cities"].compaction
    assert told is not None
    assert told["cleaned_offset"] == log_of(broker, "cities").cleaned_offset
    assert told["last_bytes_after"] < told["last_bytes_before"]
    assert told["uncleanable"] == ""
    assert replicas["plain"].compaction is None


def test_settings_change_while_it_runs(broker: Broker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_configs({("broker", ""): {"log.cleaner.dedupe.buffer.size": "2097152"}})
    limits = server_of(broker).log_cleaner.cleaner_config
    assert on_loop(broker, limits).dedupe_buffer_size == 2097152


# -- the broker's own topics -------------------------------------------------------------------------------------------

INTERNAL = ("__transaction_state", "__consumer_offsets")
INTERNAL_SETTINGS = SETTINGS | {
    "log.cleaner.min.cleanable.ratio": 0.01,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.segment.bytes": 3000,
}
IDS = ("orders", "payments", "parcels")


def transactions(broker: Broker) -> dict[str, Any]:
    """Returns the coordinator's state of each transactional id; nothing while it loads."""

    def look() -> dict[str, Any]:
        shard = server_of(broker).transactions.runtime.peek(0)
        return {} if shard is None else dict(shard.transactions)

    found: dict[str, Any] = on_loop(broker, look)
    return found


def decided(broker: Broker) -> bool:
    """Whether all but the last id's transaction have their end markers."""
    states = {name: known.state.name for name, known in transactions(broker).items()}
    return all(states[name].startswith("COMPLETE") for name in IDS)


def transactional_producer(broker: Broker, transactional_id: str) -> Any:
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions(20)
    return producer


def transact(producer: Any, group: Any, offset: int, *, commit: bool) -> None:
    """A record and a group's offset in one transaction."""
    producer.begin_transaction()
    producer.produce("t", key=b"k", value=b"%d" % offset)
    producer.send_offsets_to_transaction([confluent.TopicPartition("t", 0, offset)], group, 20)
    if commit:
        producer.commit_transaction(20)
    else:
        producer.abort_transaction(20)


def test_coordinators_find_their_state_in_compacted_topics() -> None:
    with Broker(settings=INTERNAL_SETTINGS) as broker:
        broker.create_topic("t")
        consumers = {
            name: confluent.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"{name}-group"})
            for name in (*IDS, "deleted")
        }
        groups = {name: consumer.consumer_group_metadata() for name, consumer in consumers.items()}
        consumers["deleted"].commit(offsets=[confluent.TopicPartition("t", 0, 7)], asynchronous=False)
        producers = {name: transactional_producer(broker, name) for name in IDS}
        for number in range(30):
            for name, producer in producers.items():
                transact(producer, groups[name], number, commit=number % 3 != 2)
        for consumer in consumers.values():
            consumer.close()
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.delete_groups(["deleted-group"])
        opened = transactional_producer(broker, "open")
        opened.begin_transaction()
        opened.produce("t", key=b"k", value=b"undecided")
        assert opened.flush(60) == 0
        broker.wait_for(lambda: decided(broker), what="the end of the transactions")
        before = transactions(broker)
        assert before["open"].state.name == "ONGOING"
        for topic in INTERNAL:
            log = log_of(broker, topic)
            on_loop(broker, log.roll)
            wait_until_clean(broker, topic)
            assert server_of(broker).log_cleaner.manager.state(log.topic_partition).uncleanable == ""
            assert log.cleaned_offset == log.log_end_offset > 90
            assert len(broker.records(topic)) < 30
        broker.restart()
        broker.wait_for(lambda: transactions(broker), what="the loading of __transaction_state")
        assert transactions(broker) == before
        for name in IDS:
            assert broker.committed(f"{name}-group") == {("t", 0): 28}
        assert broker.committed("deleted-group") == {}
        opened.abort_transaction(20)
        for name, producer in producers.items():  # they go on where they were
            producer.begin_transaction()
            producer.produce("t", key=b"k", value=name.encode())
            producer.commit_transaction(20)
        assert [record.value for record in broker.records("t")][-3:] == [name.encode() for name in IDS]
