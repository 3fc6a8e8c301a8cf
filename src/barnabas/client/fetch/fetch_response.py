"""A Fetch answer as the fetcher wants it. The usual one is read by hand, any other by the codec."""

from struct import Struct
from struct import error as StructError
from typing import Any, Final

from barnabas.connection.cluster import Broker
from barnabas.protocol.codec import Part, decode, read_uvarint
from barnabas.protocol.messages import fetch as messages
from barnabas.types import BrokerId

__all__ = ["FetchAnswer", "PartitionAnswer", "TopicAnswer", "answer_of", "read_answer"]

FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13

_HEAD: Final = Struct(">ihi")
_PARTITION: Final = Struct(">ihqqq")
_PREFERRED: Final = Struct(">i")
_NO_ID: Final = bytes(16)


class PartitionAnswer:
    """What is said of one partition."""

    __slots__ = (
        "aborted",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "leader",
        "leader_epoch",
        "log_start_offset",
        "partition",
        "preferred_replica",
        "records",
    )

    def __init__(
        self,
        partition: int,
        error_code: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        preferred_replica: int,
        records: Part | bytes | None,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.preferred_replica = preferred_replica
        self.records = records
        self.aborted: list[tuple[int, int]] = []
        """(producer id, first offset)"""
        self.leader = -1
        self.leader_epoch = -1


class TopicAnswer:
    """Partitions of a topic, which goes by its name or by its id."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, partitions: list[PartitionAnswer]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class FetchAnswer:
    """See the module."""

    __slots__ = ("brokers", "error_code", "session_id", "throttle_time_ms", "topics")

    def __init__(self, throttle_time_ms: int, error_code: int, session_id: int, topics: list[TopicAnswer]) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.session_id = session_id
        self.topics = topics
        self.brokers: dict[int, Broker] = {}
        """Where the leaders are that partitions speak of."""


def read_answer(data: bytes, position: int, version: int) -> FetchAnswer:
    """The answer whose body starts there; records stay where they were received. Raises MalformedMessage."""
    if version >= FLEXIBLE_FROM:
        try:
            answer = _read_usual(data, position, by_id=version >= TOPIC_IDS_FROM)
        except (StructError, IndexError, UnicodeDecodeError):
            answer = None  # the codec says what is wrong with it
        if answer is not None:
            return answer
    return answer_of(decode(messages.FetchResponse, version, data, position, parts=True)[0])


def _read_usual(data: bytes, position: int, *, by_id: bool) -> FetchAnswer | None:
    """An answer without tagged fields and aborted transactions; None if it has some, or is cut off."""
    throttle_ms, error_code, session_id = _HEAD.unpack_from(data, position)
    position += 10
    topics: list[TopicAnswer] = []
    count, position = _count(data, position)
    for _ in range(count):
        name, topic_id = "", _NO_ID
        if by_id:
            topic_id = data[position : position + 16]
            position += 16
        else:
            size, position = _count(data, position)
            name = data[position : position + size].decode()
            position += size
        partitions: list[PartitionAnswer] = []
        partition_count, position = _count(data, position)
        for _ in range(partition_count):
            index, code, high_watermark, stable, start = _PARTITION.unpack_from(data, position)
            position += 30
            if data[position] > 1:
                return None
            (preferred,) = _PREFERRED.unpack_from(data, position + 1)
            position += 5
            records: Part | None = None
            if data[position]:
                size, position = _count(data, position)
                records = Part(data, position, position + size)
                position += size
            else:
                position += 1
            if data[position]:  # beyond the end of data: IndexError
                return None
            position += 1
            partitions.append(PartitionAnswer(index, code, high_watermark, stable, start, preferred, records))
        if data[position]:
            return None
        position += 1
        topics.append(TopicAnswer(name, topic_id, partitions))
    return None if data[position] else FetchAnswer(throttle_ms, error_code, session_id, topics)


def _count(data: bytes, position: int) -> tuple[int, int]:
    """A length, and the position behind it. Raises IndexError for null too: the codec knows whether it may be."""
    count = data[position]
    position += 1
    if count > 127:
        count, position = read_uvarint(data, position - 1)
    if not count:
        raise IndexError(position)
    return count - 1, position


def answer_of(response: messages.FetchResponse) -> FetchAnswer:
    """Of what the codec has read, with parts for records."""
    topics = [
        TopicAnswer(topic.topic, topic.topic_id.bytes, [_partition_of(each) for each in topic.partitions])
        for topic in response.responses
    ]
    answer = FetchAnswer(response.throttle_time_ms, response.error_code, response.session_id, topics)
    for broker in response.node_endpoints:
        answer.brokers[broker.node_id] = Broker(BrokerId(broker.node_id), broker.host, broker.port, broker.rack)
    return answer


def _partition_of(data: Any) -> PartitionAnswer:  # its records are a Part, whatever the class says
    answer = PartitionAnswer(
        data.partition_index,
        data.error_code,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        data.preferred_read_replica,
        data.records,
    )
    answer.aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
    answer.leader, answer.leader_epoch = data.current_leader.leader_id, data.current_leader.leader_epoch
    return answer
