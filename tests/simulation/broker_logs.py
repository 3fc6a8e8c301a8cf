"""Partitions of simulated brokers: they check producers as Kafka's do, and remember what was written."""

from collections import deque
from typing import Any

from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from barnabas.records.batch import crc_of, read_header
from barnabas.records.reader import read_records
from simulation.world import Asked, World

DUPLICATES_KEPT = 5


class Log:
    """One partition. `append` gives (error code, base offset)."""

    def __init__(self) -> None:
        self.records: list[bytes | None] = []
        self.read: list[Any] = []
        self.headers: list[Any] = []
        self.producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = {}
        self.batch_size_max = 1 << 30

    def append(self, data: bytes) -> tuple[int, int]:
        header = read_header(data)
        assert header.crc == crc_of(data)
        assert header.size_bytes == len(data)
        if len(data) > self.batch_size_max:
            return 10, -1
        if header.producer_id >= 0:
            code, offset = self._check(header)
            if code is not None:
                return code, offset
        offset = len(self.records)
        found = read_records(data)
        assert [record.offset for record in found] == list(range(len(found)))
        assert len(found) == header.record_count
        self.read += [record._replace(offset=offset + record.offset) for record in found]
        self.records += [record.value for record in found]
        self.headers.append(header)
        if header.producer_id >= 0:
            epoch, kept = self.producers.get(header.producer_id, (header.producer_epoch, deque()))
            if epoch != header.producer_epoch:
                kept = deque()
            kept.append((header.base_sequence, header.last_sequence, offset))
            while len(kept) > DUPLICATES_KEPT:
                kept.popleft()
            self.producers[header.producer_id] = (header.producer_epoch, kept)
        return 0, offset

    def _check(self, header: Any) -> tuple[int | None, int]:
        known = self.producers.get(header.producer_id)
        if known is None:
            return None, -1  # any sequence will do for the first batch of an id
        epoch, kept = known
        if header.producer_epoch < epoch:
            return 47, -1
        if header.producer_epoch > epoch:
            return (None, -1) if header.base_sequence == 0 else (45, -1)
        for first, last, offset in kept:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return 0, offset
        expected = (kept[-1][1] + 1) & 0x7FFFFFFF if kept else 0
        if header.base_sequence != expected:
            return 45, -1
        return None, -1


class Brokers:
    """Produce and InitProducerId of a world's brokers, over one set of logs: replication is perfect."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.logs: dict[tuple[str, int], Log] = {}
        self.next_error: list[int] = []
        """Codes for the next partitions that are produced to, instead of writing."""
        self.error_after: list[int] = []
        """Codes for the next partitions that are produced to, after writing."""
        self.next_id = 1000
        self.first_epoch = 0
        world.handlers[0] = self.produce
        world.handlers[22] = self.init_producer_id

    def log(self, topic: str, partition: int) -> Log:
        return self.logs.setdefault((topic, partition), Log())

    def init_producer_id(self, asked: Asked) -> Any:
        self.next_id += 1
        return InitProducerIdResponse(producer_id=self.next_id, producer_epoch=self.first_epoch)

    def produce(self, asked: Asked) -> Any:
        topics = []
        for topic in asked.request.topic_data:
            answers = [
                self._append(asked.node_id, topic.name, data.index, data.records) for data in topic.partition_data
            ]
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
        return None if asked.request.acks == 0 else ProduceResponse(responses=topics)

    def _append(self, node_id: int, topic: str, partition: int, data: bytes) -> PartitionProduceResponse:
        if self.world.topics.get(topic, {}).get(partition) != node_id:
            code, offset = (6 if topic in self.world.topics else 3), -1
        elif self.next_error:
            code, offset = self.next_error.pop(0), -1
        else:
            code, offset = self.log(topic, partition).append(bytes(data))
            if code == 0 and self.error_after:
                code, offset = self.error_after.pop(0), -1
        return PartitionProduceResponse(index=partition, error_code=code, base_offset=offset)
