"""Loads of transactions: small and large ones one after another, and the loop that reads, processes and writes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from bench.brokers import BrokerFailed, BrokerProcess
from bench.loads import PARTITIONS, Figures, create_topic, percentiles

VALUE = b"x" * 100
LARGE_RECORDS = 1_000
LOOP_RECORDS = 500
CALL_TIMEOUT_S = 60
WARM_UP_SHARE = 5  # warm-up: a fifth of the transactions, before those that count


def initialise(broker: BrokerProcess, count: int) -> Figures:
    """``init_transactions`` of new transactional ids, each by a producer that has just been made and connected.

    Without a connection librdkafka looks for the coordinator again only after 50 or 500 ms, whatever the broker does;
    after the first answer it leaves the connection of the bootstrap address, the second comes over the one that stays.
    """
    milliseconds = []
    for _ in range(count):
        producer = _producer(broker)
        for _ in range(2):
            producer.list_topics(timeout=CALL_TIMEOUT_S)
        milliseconds.append(_timed(lambda: producer.init_transactions(CALL_TIMEOUT_S)))  # noqa: B023  # called at once
    return _figures(milliseconds)


def small(broker: BrokerProcess, topic: str, count: int) -> Figures:
    """Transactions of one record, one after another."""
    return _transactions(broker, topic, count, 1)


def large(broker: BrokerProcess, topic: str, count: int) -> Figures:
    """Transactions of 1,000 records over all partitions."""
    return _transactions(broker, topic, count, LARGE_RECORDS)


def prepare_loop(broker: BrokerProcess, topic: str, records: int) -> None:
    """An input topic with its records, and the output topic."""
    create_topic(broker, topic)
    create_topic(broker, f"{topic}-out")
    producer = Producer({"bootstrap.servers": broker.address, "log_level": 0})
    for number in range(records):
        producer.produce(topic, VALUE, partition=number % PARTITIONS)
        producer.poll(0)
    if producer.flush(CALL_TIMEOUT_S):
        raise BrokerFailed(f"{topic} could not be filled in {CALL_TIMEOUT_S} s")


def read_process_write(broker: BrokerProcess, topic: str, records: int) -> Figures:
    """A new group's member reads the topic; every 500 records and their offsets are a transaction."""
    producer, consumer = _producer(broker), _consumer(broker)
    producer.init_transactions(CALL_TIMEOUT_S)
    consumer.subscribe([topic])
    done, began, milliseconds = 0, 0.0, []
    while done < records:
        batch = consumer.consume(LOOP_RECORDS, CALL_TIMEOUT_S if not done else 2)
        if not batch:
            raise BrokerFailed(f"the loop got no more records after {done} of {records}")
        began = began or time.perf_counter()
        milliseconds.append(_timed(lambda: _process(producer, consumer, f"{topic}-out", batch)))  # noqa: B023
        done += len(batch)
    rate = done / (time.perf_counter() - began)
    consumer.close()
    return {"records_per_s": rate, **_figures(milliseconds)}


def _process(producer: Producer, consumer: Consumer, topic: str, batch: list[Message]) -> None:
    producer.begin_transaction()
    after: dict[tuple[str, int], int] = {}
    for message in batch:
        producer.produce(topic, message.value())
        after[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1
    offsets = [TopicPartition(name, partition, offset) for (name, partition), offset in after.items()]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), CALL_TIMEOUT_S)
    producer.commit_transaction(CALL_TIMEOUT_S)


def _transactions(broker: BrokerProcess, topic: str, count: int, records: int) -> Figures:
    producer = _producer(broker)
    producer.init_transactions(CALL_TIMEOUT_S)

    def one(number: int) -> None:
        producer.begin_transaction()
        for index in range(records):
            producer.produce(topic, VALUE, partition=(number + index) % PARTITIONS)
        producer.commit_transaction(CALL_TIMEOUT_S)

    milliseconds = [_timed(lambda: one(number)) for number in range(count + count // WARM_UP_SHARE)]  # noqa: B023
    return _figures(milliseconds[count // WARM_UP_SHARE :])


def _producer(broker: BrokerProcess) -> Producer:
    settings = {"transactional.id": f"bench-{uuid.uuid4().hex}", "linger.ms": 0, "log_level": 0}
    return Producer({"bootstrap.servers": broker.address, **settings})


def _consumer(broker: BrokerProcess) -> Consumer:
    settings = {
        "group.id": f"bench-{uuid.uuid4().hex}",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    return Consumer({"bootstrap.servers": broker.address, **settings})


def _timed(action: Callable[[], object]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def _figures(milliseconds: list[float]) -> Figures:
    figures = percentiles(sorted(milliseconds))
    return {name: figures[name] for name in ("p50_ms", "p99_ms")}
