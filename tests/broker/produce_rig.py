"""A broker without a loop whose transactions' coordinator the test plays; Produce requests as plain calls."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.coordinators.transaction_markers import Outcomes, write_markers
from barnabas.broker.handlers.records.produce import handle_frame
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.server import Broker
from barnabas.coordinator.transaction.transaction_marker_channel_manager import EndMarkers
from barnabas.errors import KafkaError, error_for
from barnabas.log.unified_log import UnifiedLog
from barnabas.network.connection import PendingReply
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.records.reader import read_records
from barnabas.types import TopicPartition
from broker.admin_rig import create, running_broker
from broker.sent_requests import batch

PADDING = 10
"""As if a header stood in front of the body."""


class Ask:
    """A question to the coordinator."""

    def __init__(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Sequence[TopicPartition],
        verify_only: bool,
        reply: Callable[[dict[TopicPartition, KafkaError | None]], None],
    ) -> None:
        self.transactional_id = transactional_id
        self.producer = producer
        self.partitions = list(partitions)
        self.verify_only = verify_only
        self._reply = reply

    def grant(self) -> None:
        self._reply(dict.fromkeys(self.partitions))

    def refuse(self, error: KafkaError, *indexes: int) -> None:
        """For these partitions, or for all."""
        refused = indexes or [place.partition for place in self.partitions]
        self._reply({place: error if place.partition in refused else None for place in self.partitions})


class Coordinator:
    """Answers when the test says so, or at once."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []
        self.at_once: KafkaError | bool | None = False
        """False: later."""

    def verify_or_add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        reply: Any,
    ) -> None:
        ask = Ask(transactional_id, (producer_id, producer_epoch), partitions, verify_only, reply)
        self.asks.append(ask)
        if self.at_once is None:
            ask.grant()
        elif isinstance(self.at_once, KafkaError):
            ask.refuse(self.at_once)

    def shutdown(self) -> None:
        pass

    @property
    def last(self) -> Ask:
        return self.asks[-1]


class Client:
    """Stands in for a connection; what it is answered."""

    def __init__(self) -> None:
        self.closed = False
        self.reason = ""

    def pending_reply(self) -> PendingReply:
        return PendingReply(self)  # type: ignore[arg-type]

    def reply_ready(self, reply: PendingReply) -> None:
        pass

    def close(self, reason: str) -> None:
        self.closed = True
        self.reason = reason


class Sent:
    """A request and its answer, if it is there."""

    def __init__(self, answer: Any, version: int) -> None:
        self._answer = answer
        self._version = version

    @property
    def parts(self) -> Any:
        return self._answer.parts if isinstance(self._answer, PendingReply) else self._answer

    @property
    def waits(self) -> bool:
        return self.parts is None

    @property
    def results(self) -> list[Any]:
        assert self.parts is not None, "no answer yet"
        frame = b"".join(bytes(part) for part in self.parts)
        response, end = decode(ProduceResponse, self._version, frame, 9 if self._version >= 9 else 8)
        assert end == len(frame)
        return [result for topic in response.responses for result in topic.partition_responses]

    @property
    def errors(self) -> list[str]:
        return [type(error_for(r.error_code)).__name__ if r.error_code else "" for r in self.results]

    @property
    def offsets(self) -> list[int]:
        return [result.base_offset for result in self.results]


class ProduceRig:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.client = Client()
        self.coordinator = Coordinator()
        broker.transactions = self.coordinator  # type: ignore[assignment]

    def log(self, index: int = 0) -> UnifiedLog:
        return self.broker.replica_manager.leader_of("t", index).log

    def values(self, index: int = 0) -> list[bytes | None]:
        """Of the data records."""
        log = self.log(index)
        found: list[bytes | None] = []
        for segment, position, header in log.headers_from(0):
            if not header.is_control:
                found += [record.value for record in read_records(segment.read(position, header.size_bytes))]
        return found

    def batch(self, sequence: int, *values: bytes, producer_id: int = 7, epoch: int = 0, **options: Any) -> bytes:
        options.setdefault("transactional", True)
        return batch(
            *(values or (b"v%d" % sequence,)),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            **options,
        )

    def send(
        self,
        records: bytes | dict[int, bytes],
        version: int = 12,
        *,
        acks: int = -1,
        transactional_id: str | None = "mine",
    ) -> Sent:
        """The frame is void afterwards, as a real one is."""
        sent = records if isinstance(records, dict) else {0: records}
        partitions = [PartitionProduceData(index=index, records=data) for index, data in sent.items()]
        topic = TopicProduceData(partition_data=partitions)
        if version >= 13:
            topic.topic_id = self.broker.image.topics["t"].topic_id
        else:
            topic.name = "t"
        request = ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[topic], transactional_id=transactional_id)
        frame = bytearray(PADDING) + encode(request, version)
        context = RequestContext(0, version, 1, b"test", self.client)  # type: ignore[arg-type]
        with memoryview(frame) as view:
            answer = handle_frame(self.broker, view, PADDING, context)
            view[:] = bytes(len(frame))
        return Sent(answer, version)

    def begin(self, sequence: int = 0, **options: Any) -> Sent:
        """The first batch of a transaction, granted at once."""
        before, self.coordinator.at_once = self.coordinator.at_once, None
        sent = self.send(self.batch(sequence, **options))
        self.coordinator.at_once = before
        return sent

    def end(
        self,
        *,
        epoch: int = 0,
        commit: bool = False,
        producer_id: int = 7,
        index: int = 0,
        transaction_version: int = 1,
    ) -> KafkaError | None:
        """Write the end marker."""
        replies: list[Outcomes] = []
        marker = EndMarkers(producer_id, epoch, commit, 0, transaction_version, [TopicPartition("t", index)])
        write_markers(self.broker, marker, replies.append)
        return replies[0]["t", index]  # type: ignore[index]


@contextmanager
def produce_rig(directory: Path, **settings: object) -> Iterator[ProduceRig]:
    with running_broker(directory, **settings) as broker:
        create(broker, "t", 3)
        real, rig = broker.transactions, ProduceRig(broker)
        try:
            yield rig
        finally:
            broker.transactions = real


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ProduceRig]:
    with produce_rig(tmp_path) as rig:
        yield rig
