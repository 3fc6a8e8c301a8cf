"""Produce and Fetch requests of one topic, under its name or its id as the version has it."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.builder import build_batch
from barnabas.records.reader import iter_any
from barnabas.records.record import Record
from barnabas.testing import Broker
from broker.wire import Wire, server_of

T0 = 1_700_000_000_000


def batch(*values: bytes, key: bytes | None = b"k", timestamp: int = T0, **options: Any) -> bytes:
    return build_batch([Record(0, timestamp, key, value, ()) for value in values], **options)


def topic_id(broker: Broker, topic: str) -> UUID:
    return server_of(broker).image.topics[topic].topic_id


def produce(
    broker: Broker,
    records: Mapping[int, bytes | None] | Sequence[tuple[int, bytes | None]],
    version: int = 12,
    *,
    topic: str = "t",
    acks: int = 1,
    timeout_ms: int = 5000,
    by_id: UUID | None = None,
    transactional_id: str | None = None,
) -> ProduceRequest:
    pairs = records.items() if isinstance(records, Mapping) else records
    data = TopicProduceData(partition_data=[PartitionProduceData(index=index, records=sent) for index, sent in pairs])
    if version >= 13:
        data.topic_id = by_id or topic_id(broker, topic)
    else:
        data.name = topic
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data], transactional_id=transactional_id)


def append(wire: Wire, topic: str, partition: int = 0, value: bytes = b"x") -> int:
    """Produce one record, acknowledged by all replicas; the error code."""
    data = [PartitionProduceData(index=partition, records=batch(value, key=None))]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    return int(wire.ask(request, 9).responses[0].partition_responses[0].error_code)


def fetch(
    broker: Broker,
    offsets: Mapping[int, int],
    version: int = 12,
    *,
    topic: str = "t",
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    by_id: UUID | None = None,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    **fields: Any,
) -> FetchRequest:
    wanted = FetchTopic(
        partitions=[
            FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=current_leader_epoch,
                last_fetched_epoch=last_fetched_epoch,
            )
            for index, offset in offsets.items()
        ]
    )
    if version >= 13:
        wanted.topic_id = by_id or topic_id(broker, topic)
    else:
        wanted.topic = topic
    topics = [wanted] if offsets else []
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics, **fields)


def values(records: bytes | None) -> list[bytes | None]:
    """The values of whole batches; what is cut at the end is left out."""
    return [record.value for record in iter_any(whole_batches(records or b""))]


def whole_batches(data: bytes) -> bytes:
    end = 0
    while end + 12 <= len(data):
        size = 12 + int.from_bytes(data[end + 8 : end + 12], "big")
        if end + size > len(data):
            break
        end += size
    return data[:end]
