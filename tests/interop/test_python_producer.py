"""`barnabas.Producer` against the broker under test, read back by librdkafka: transactions as others see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.client.errors import CommitFailed
from barnabas.errors import InvalidTxnState, ProducerFenced, TransactionalIdAuthorizationFailed, UnsupportedVersion

from .harness.broker import Broker, KafkaBroker

confluent_kafka = pytest.importorskip("confluent_kafka")


def producer_of(broker: Broker, transactional_id: str | None = None, **settings: Any) -> barnabas.Producer:
    if transactional_id is not None:
        settings["transactional_id"] = transactional_id
    return barnabas.Producer(bootstrap_servers=broker.bootstrap, **settings)


def committed(broker: Broker, topic: str, *, partitions: int = 1) -> list[bytes]:
    """Everything that librdkafka reads with isolation.level=read_committed, up to the ends."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)])
    values, ends = [], 0
    try:
        while ends < partitions:
            message = consumer.poll(60)
            assert message is not None, "the reader got nothing for 30 s"
            if message.error() is None:
                values.append(message.value())
            else:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                ends += 1
    finally:
        consumer.close()
    return values


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_transactions(broker: Broker, topic: str, unique: Callable[[str], str], compression: str) -> None:
    with producer_of(broker, unique("tx"), compression_type=compression, linger_ms=1) as producer:
        producer.init_transactions()
        for number in range(10):
            producer.begin_transaction()
            for index in range(20):
                producer.send(topic, b"%d-%02d" % (number, index), partition=0)
            if number % 3 == 1:
                producer.flush()
            if number % 3:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    assert committed(broker, topic) == [b"%d-%02d" % (n, i) for n in (0, 3, 6, 9) for i in range(20)]


def test_a_successor_fences_and_aborts(broker: Broker, topic: str, unique: Callable[[str], str]) -> None:
    name = unique("tx")
    with producer_of(broker, name) as first, producer_of(broker, name) as second:
        first.init_transactions()
        first.begin_transaction()
        first.send(topic, b"lost").result(60)
        second.init_transactions()
        with second.transaction():
            second.send(topic, b"kept")
        with pytest.raises(ProducerFenced):
            first.commit_transaction()
    assert committed(broker, topic) == [b"kept"]


def test_offsets_in_transactions(broker: Broker, topic: str, unique: Callable[[str], str]) -> None:
    source, group = unique("in"), unique("group")
    with producer_of(broker) as producer:
        for number in range(30):
            producer.send(source, b"%d" % number)
    consumer = barnabas.Consumer(
        source,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    with consumer, producer_of(broker, unique("tx")) as producer:
        producer.init_transactions()
        done = 0
        while done < 30:
            records = consumer.poll(60, max_records=7)
            if not records:
                continue
            after = {(source, 0): records[-1].offset + 1}
            producer.begin_transaction()
            for record in records:
                producer.send(topic, record.value)
            producer.send_offsets_to_transaction(after, consumer.group_metadata())
            producer.commit_transaction()
            done += len(records)
        producer.begin_transaction()
        stale = consumer.group_metadata()._replace(generation_id=99)
        with pytest.raises(CommitFailed):
            producer.send_offsets_to_transaction({(source, 0): 1}, stale)
        producer.abort_transaction()
        with producer.transaction():
            producer.send_offsets_to_transaction({(source, 0): 31}, consumer.group_metadata())
    assert committed(broker, topic) == [b"%d" % number for number in range(30)]
    with barnabas.Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert [offset.offset for offset in admin.list_group_offsets(group).values()] == [31]


def test_the_asyncio_producer(broker: Broker, topic: str, unique: Callable[[str], str]) -> None:
    async def whole() -> None:
        settings = {"bootstrap_servers": broker.bootstrap, "compression_type": "lz4"}
        async with barnabas.aio.Producer(settings, transactional_id=unique("tx")) as producer:
            await producer.init_transactions(timeout=60)
            for number in range(5):
                producer.begin_transaction()
                handles = [await producer.send(topic, b"%d-%d" % (number, index), partition=0) for index in range(9)]
                delivery = await producer.send_many(topic, [b"%d-many" % number] * 3, partition=0)
                if number % 2:
                    await producer.abort_transaction()
                    continue
                await producer.commit_transaction()
                assert [handle.offset for handle in handles] == sorted(handle.offset for handle in handles)
                assert sum(part.record_count for part in await delivery) == 3

    asyncio.run(asyncio.wait_for(whole(), 90))
    one = [[b"%d-%d" % (number, index) for index in range(9)] + [b"%d-many" % number] * 3 for number in (0, 2, 4)]
    assert committed(broker, topic) == [value for values in one for value in values]


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_from_elsewhere(broker: Broker, topic: str, unique: Callable[[str], str], commit: bool) -> None:
    name = unique("tx")
    with producer_of(broker, name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"a").result(60)
        told = producer.metrics()
        producer.close(0)
    numbers = {"producer_id": told["producer_id"], "producer_epoch": told["producer_epoch"]}
    with barnabas.Admin(bootstrap_servers=broker.bootstrap) as admin:
        for _ in range(2):
            admin.end_transaction(name, **numbers, committed=commit)
        with pytest.raises(InvalidTxnState if commit or isinstance(broker, KafkaBroker) else ProducerFenced):
            admin.end_transaction(name, **numbers, committed=not commit)
    assert committed(broker, topic) == ([b"a"] if commit else [])


def test_a_broker_without_two_phase_commit_says_so(broker: Broker, unique: Callable[[str], str]) -> None:
    with (
        producer_of(broker, unique("tx"), transaction_two_phase_commit_enable=True) as producer,
        pytest.raises(
            (UnsupportedVersion, TransactionalIdAuthorizationFailed),
            match=r"InitProducerId v5|transaction\.two\.phase\.commit\.enable is false",
        ),
    ):
        producer.init_transactions(timeout=30)
