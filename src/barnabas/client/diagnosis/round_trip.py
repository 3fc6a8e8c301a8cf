"""Writes a record to a temporary topic and reads it back, to measure times and compare clocks."""

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.client.admin.front import Admin
from barnabas.client.admin.topics import NewTopic
from barnabas.client.consumer.front import Consumer
from barnabas.client.producer.front import Producer
from barnabas.errors import OperationTimedOut
from barnabas.types import TopicPartition

__all__ = ["RoundTrip", "clocks_ahead_ms", "round_trip"]


class RoundTrip(NamedTuple):
    """Times in milliseconds; `skew_ms` is the broker's clock minus the client's, as exact as half the produce time."""

    topic: str
    produce_ms: float
    fetch_ms: float
    skew_ms: int


def round_trip(settings: Mapping[str, object], timeout_s: float) -> RoundTrip:
    """Creates a topic with LogAppendTime, writes, reads, and deletes it. Raises KafkaError, ClientError."""
    name = f"barnabas-doctor-{secrets.token_hex(4)}"
    with Admin(settings, default_api_timeout_ms=int(timeout_s * 1000)) as admin:
        admin.create_topics(NewTopic(name, 1, -1, {"message.timestamp.type": "LogAppendTime"}))
        try:
            return _write_and_read(settings, name, timeout_s)
        finally:
            admin.delete_topics(name)


def clocks_ahead_ms(settings: Mapping[str, object], node_ids: Sequence[int], timeout_s: float) -> dict[int, int]:
    """Returns by how much the clock of each broker is ahead of ours: by the time that it gives to a record in a
    partition of a temporary topic which it alone has. Raises KafkaError, ClientError."""
    name = f"barnabas-doctor-{secrets.token_hex(4)}"
    configs = {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "1"}
    topic = NewTopic(name, configs=configs, assignments={index: [node_id] for index, node_id in enumerate(node_ids)})
    timeout_ms = int(timeout_s * 1000)
    with Admin(settings, default_api_timeout_ms=timeout_ms) as admin:
        admin.create_topics(topic)
        try:
            with Producer(settings, linger_ms=0, max_block_ms=timeout_ms) as producer:
                return {
                    node_id: _clock_ahead_ms(producer, name, index, timeout_s) for index, node_id in enumerate(node_ids)
                }
        finally:
            admin.delete_topics(name)


def _clock_ahead_ms(producer: Producer, topic: str, partition: int, timeout_s: float) -> int:
    for _ in range(2):  # the first record waits for the connection, too
        began_ms, began = time.time_ns() // 1_000_000, time.perf_counter()
        written = producer.send(topic, b"clock", partition=partition).result(timeout_s)
        took_ms = (time.perf_counter() - began) * 1e3
    return written.timestamp - (began_ms + int(took_ms / 2))


def _write_and_read(settings: Mapping[str, object], name: str, timeout_s: float) -> RoundTrip:
    payload = secrets.token_bytes(16)
    with Producer(settings, linger_ms=0, max_block_ms=int(timeout_s * 1000)) as producer:
        producer.partitions_for(name)
        started_ms, started = time.time_ns() // 1_000_000, time.perf_counter()
        written = producer.send(name, payload).result(timeout_s)
        produce_ms = (time.perf_counter() - started) * 1e3
    skew = written.timestamp - (started_ms + int(produce_ms / 2))
    started = time.perf_counter()
    with Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(name, written.partition)])
        if not any(record.value == payload for record in consumer.poll(timeout_s)):
            raise OperationTimedOut(f"the record written to {name} did not come back within {timeout_s:g} s")
    return RoundTrip(name, produce_ms, (time.perf_counter() - started) * 1e3, skew)
