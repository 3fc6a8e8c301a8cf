"""Writes a record to a temporary topic and reads it back, to measure times and compare clocks."""

import secrets
import time
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.admin.front import Admin
from barnabas.client.admin.topics import NewTopic
from barnabas.client.consumer.front import Consumer
from barnabas.client.producer.front import Producer
from barnabas.errors import OperationTimedOut
from barnabas.types import TopicPartition

__all__ = ["RoundTrip", "round_trip"]


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
