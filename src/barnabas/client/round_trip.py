"""A record into a temporary topic and back: does the whole path work, how fast, and what time is it there?"""

import secrets
import time
from typing import NamedTuple

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.deadline import Deadline
from barnabas.client.errors import OperationTimedOut
from barnabas.client.simple_consumer import SimpleConsumer
from barnabas.client.simple_producer import Delivery, SimpleProducer
from barnabas.errors import KafkaError
from barnabas.types import TopicPartition

__all__ = ["RoundTrip", "round_trip"]


class RoundTrip(NamedTuple):
    """Times in milliseconds; skew is the broker's clock minus ours, as exact as half the produce time."""

    topic: str
    produce_ms: float
    fetch_ms: float
    skew_ms: int


def round_trip(cluster: Cluster, timeout_s: float) -> RoundTrip:
    """Make a topic with LogAppendTime, write, read, delete it. Raises KafkaError, ClientError."""
    admin = Admin(cluster)
    name = f"barnabas-doctor-{secrets.token_hex(4)}"
    topic = NewTopic(name, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    result = admin.create_topics([topic])[name]
    if isinstance(result, KafkaError):
        raise result
    try:
        return _write_and_read(cluster, name, timeout_s)
    finally:
        admin.delete_topics([name])


def _write_and_read(cluster: Cluster, name: str, timeout_s: float) -> RoundTrip:
    where = TopicPartition(name, 0)
    cluster.retrying(lambda deadline: cluster.leader(*where, deadline=deadline), timeout_s=timeout_s)
    payload = secrets.token_bytes(16)
    deliveries: list[Delivery] = []
    with SimpleProducer(cluster, delivery_timeout_s=timeout_s, on_delivery=deliveries.append) as producer:
        started_ms, started = time.time_ns() // 1_000_000, time.perf_counter()
        producer.send(name, payload)
        producer.flush()
        produce_ms = (time.perf_counter() - started) * 1e3
    if deliveries[0].error is not None:
        raise deliveries[0].error
    skew = deliveries[0].log_append_time_ms - (started_ms + int(produce_ms / 2))
    started, deadline = time.perf_counter(), Deadline(timeout_s)
    with SimpleConsumer(cluster, {where: 0}, timeout_s=timeout_s) as consumer:
        while not deadline.passed:
            for fetched in consumer.poll(deadline.remaining()):
                if any(record.value == payload for record in fetched.records()):
                    return RoundTrip(name, produce_ms, (time.perf_counter() - started) * 1e3, skew)
    raise OperationTimedOut(f"the record written to {name} did not come back within {timeout_s:g} s")
