"""A synchronous producer: batches per partition, several requests in flight, retries that keep order, idempotence.

`send` fills a batch and writes full ones to the leader; `poll` takes answers that have come; `flush` waits for all of
them. Nothing happens between calls: no thread. After a failure nothing new leaves until every request in flight is
settled, and what failed goes out again first. With idempotence, the default where acks=all, batches of a partition are
written once and in order whatever fails; without it a retried batch may come after its successors.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from barnabas.client.cluster import BACKOFF_FIRST_S, BACKOFF_MAX_S, Cluster
from barnabas.client.connection import Connection
from barnabas.client.deadline import Deadline
from barnabas.client.errors import Attempt, ClientError, ConnectionLost, OperationTimedOut, TopicNotFound
from barnabas.client.partitioner import StickyPartitioner, murmur2_partition
from barnabas.client.pending_batch import PendingBatch, split_batch
from barnabas.errors import (
    DuplicateSequenceNumber,
    KafkaError,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    UsageError,
    error_for,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import CODEC_IDS
from barnabas.records.record import Headers
from barnabas.types import TopicPartition

__all__ = ["Delivery", "SimpleProducer"]

BATCH_BYTES: Final = 256 * 1024
REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
IN_FLIGHT_MAX: Final = 5
"""As Kafka's max.in.flight.requests.per.connection: what an idempotent producer may have open."""
BUFFER_BYTES: Final = 32 * 1024 * 1024
TOPIC_ID_FROM: Final = 13
RECORD_OVERHEAD: Final = 32
"""A record's varints, at most, without headers."""

Error = KafkaError | ClientError


class Delivery(NamedTuple):
    """What became of one batch; offset -1 with acks=0 or an error."""

    partition: TopicPartition
    base_offset: int
    record_count: int
    size_bytes: int
    log_append_time_ms: int
    latency_s: float
    """From the first write of the batch to its answer."""
    error: Error | None


class _InFlight(NamedTuple):
    node_id: int
    batches: list[PendingBatch]


class SimpleProducer:
    """See the module. `on_delivery` hears of every batch; without it, the first failure is raised by flush."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = -1,
        compression: str = "none",
        compression_level: int | None = None,
        idempotent: bool | None = None,
        batch_bytes: int = BATCH_BYTES,
        in_flight_max: int = IN_FLIGHT_MAX,
        delivery_timeout_s: float = 30.0,
        request_timeout_s: float = 30.0,
        create_topics: bool = False,
        partition_of: Callable[[bytes, int], int] = murmur2_partition,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        if acks not in (-1, 0, 1):
            raise UsageError(f"acks {acks} does not exist; use 0, 1 or all (-1)")
        if compression not in CODEC_IDS:
            raise UsageError(f"compression {compression!r} does not exist; use one of {', '.join(CODEC_IDS)}")
        if idempotent and acks != -1:
            raise UsageError("an idempotent producer needs acks=all")
        self.cluster = cluster
        self._acks = acks
        self._compression = compression
        self._compression_level = compression_level
        self._idempotent = acks == -1 if idempotent is None else idempotent
        self._batch_bytes = batch_bytes
        self._in_flight_max = in_flight_max
        self._delivery_timeout_s = delivery_timeout_s
        self._request_timeout_s = request_timeout_s
        self._create_topics = create_topics
        self._partition_of = partition_of
        self._on_delivery = on_delivery
        self._sticky = StickyPartitioner()
        self._counts: dict[str, int] = {}
        self._open: dict[TopicPartition, BatchBuilder] = {}
        self._ready: dict[TopicPartition, deque[PendingBatch]] = {}
        self._buffered_bytes = 0
        self._connections: dict[int, Connection] = {}
        self._in_flight: dict[int, deque[_InFlight]] = {}
        self._failed: list[PendingBatch] = []
        self._gap: dict[TopicPartition, int | float] = {}
        """Partitions in which an idempotent batch of this number was given up: those behind it are out of sequence."""
        self._careful = 0
        """Batches that failed once and wait again: while there are any, one request is in flight."""
        self._pause = BACKOFF_FIRST_S
        self._attempts: list[Attempt] = []
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._known: set[TopicPartition] = set()
        """Partitions that have acknowledged a batch of this producer id. A broker takes any sequence for the first one
        of an id, so a second one must not overtake it: it waits for the answer."""
        self._introduced: set[TopicPartition] = set()
        """Partitions whose first batch is in flight."""
        self._number = 0
        self._first_error: Error | None = None

    # --- records in -------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> TopicPartition:
        """Add a record; its partition. `timestamp` is in ms, the clock's time by default. May write, and wait for room.

        Raises UnknownTopicOrPartition, and what makes the topic unusable.
        """
        count = self._counts.get(topic) or self._partitions_of(topic)
        if partition is None:
            partition = self._sticky.partition(topic, count) if key is None else self._partition_of(key, count)
        elif not 0 <= partition < count:
            self.cluster.leader(topic, partition)  # says what is wrong
        where = TopicPartition(topic, partition)
        builder = self._open.get(where)
        if builder is not None:
            size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
            if headers:
                size += sum(len(name) + len(content or b"") + 10 for name, content in headers)
            if builder.size_bytes + size > self._batch_bytes:
                self._close_batch(where)
                if key is None:
                    self._sticky.next(topic, count)
                self._pump()
                builder = self._open.get(where)
        if builder is None:
            builder = self._open[where] = BatchBuilder(
                compression=self._compression, compression_level=self._compression_level
            )
        builder.append(key, value, time.time_ns() // 1_000_000 if timestamp is None else timestamp, headers)
        return where

    def _partitions_of(self, topic: str) -> int:
        try:
            view = self.cluster.retrying(
                lambda deadline: self.cluster.topic(topic, deadline=deadline, create=self._create_topics)
            )
        except TopicNotFound as error:
            raise UsageError(f"{error}; create it first with `barnabas topics create {topic}`") from None
        self._counts[topic] = len(view.partitions)
        return len(view.partitions)

    def _close_batch(self, where: TopicPartition) -> None:
        builder = self._open.pop(where)
        count = len(builder)
        batch = PendingBatch(where, self._number, bytearray(builder.build()), count, self._delivery_timeout_s)
        self._number += 1
        if self._idempotent:
            self._number_sequence(batch)
        self._ready.setdefault(where, deque()).append(batch)
        self._buffered_bytes += len(batch.data)

    def _number_sequence(self, batch: PendingBatch) -> None:
        producer_id, epoch = self._producer or self._init_producer_id()
        sequence = self._sequences.get(batch.partition, 0)
        batch.set_producer(producer_id, epoch, sequence)
        self._sequences[batch.partition] = (sequence + batch.record_count) & 0x7FFFFFFF

    def _init_producer_id(self) -> tuple[int, int]:
        from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

        def once(deadline: Deadline) -> Any:
            response = self.cluster.call(request, deadline=deadline)
            if response.error_code:
                raise error_for(response.error_code)
            return response

        response = self.cluster.retrying(once)
        self._producer = (response.producer_id, response.producer_epoch)
        self._sequences.clear()
        self._known.clear()
        return self._producer

    # --- batches out ------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Take the answers that have come, and write what waits."""
        self._take_answers(wait=False)
        self._pump()

    def flush(self, timeout_s: float | None = None) -> None:
        """Send all and wait for it. Raises OperationTimedOut; without `on_delivery` the first batch's failure."""
        deadline = Deadline(self._delivery_timeout_s * 2 if timeout_s is None else timeout_s)
        for where in [*self._open]:
            self._close_batch(where)
            self._sticky.next(where.topic, self._counts[where.topic])
        while self._ready or self._failed or any(self._in_flight.values()):
            if deadline.passed:
                raise OperationTimedOut(f"records wait after {deadline.seconds:g} s", tuple(self._attempts))
            self._send_ready()
            self._take_answers(wait=True)
        error, self._first_error = self._first_error, None
        if error is not None and self._on_delivery is None:
            raise error

    def _pump(self) -> None:
        """Write what can be written; wait for answers while the buffer is full."""
        self._send_ready()
        self._take_answers(wait=False)
        while self._buffered_bytes > BUFFER_BYTES:
            self._take_answers(wait=True)
            self._send_ready()

    def _send_ready(self) -> None:
        if self._failed or self._gap:
            if any(self._in_flight.values()):
                return
            if self._gap:
                self._restart_sequences()
            self._requeue_failed()
        limit = 1 if self._careful else self._in_flight_max
        while self._ready:
            sent = False
            for node_id, wheres in self._leaders().items():
                if len(self._in_flight.get(node_id, ())) < limit:
                    self._send_to(node_id, wheres)
                    sent = True
            if not sent or self._failed:
                return

    def _leaders(self) -> dict[int, list[TopicPartition]]:
        nodes: dict[int, list[TopicPartition]] = {}
        for where in self._ready:
            if where in self._introduced:
                continue
            try:
                node_id = self.cluster.leader(*where, deadline=Deadline(self._request_timeout_s))
            except (KafkaError, ClientError) as error:
                self._fail_head(where, error)
                return {}
            nodes.setdefault(node_id, []).append(where)
        return nodes

    def _fail_head(self, where: TopicPartition, error: Error) -> None:
        queue = self._ready[where]
        batch = queue.popleft()
        if not queue:
            del self._ready[where]
        self._settle(batch, error, -1, -1)

    def _send_to(self, node_id: int, wheres: list[TopicPartition]) -> None:
        batches: list[PendingBatch] = []
        size = 0
        for where in wheres:
            queue = self._ready[where]
            if batches and size + len(queue[0].data) > REQUEST_BYTES_MAX:
                break
            batch = queue.popleft()
            if not queue:
                del self._ready[where]
            batches.append(batch)
            size += len(batch.data)
            if self._idempotent and where not in self._known:
                self._introduced.add(where)
        try:
            connection = self._connection(node_id)
            with_ids = all(self.cluster.topic_id(b.partition.topic).int for b in batches)
            version = connection.version_of(ProduceRequest, at_most=None if with_ids else TOPIC_ID_FROM - 1)
            now = time.perf_counter()
            for batch in batches:
                batch.first_sent = batch.first_sent or now
            request = self._request(batches, version)
            connection.send(request, version, Deadline(self._request_timeout_s), expect_response=self._acks != 0)
        except (KafkaError, ClientError) as error:
            self._lose_connection(node_id, error)
            for batch in batches:
                self._settle(batch, error, -1, -1)
            return
        if self._acks == 0:
            for batch in batches:
                self._settle(batch, None, -1, -1)
        else:
            self._in_flight.setdefault(node_id, deque()).append(_InFlight(node_id, batches))

    def _connection(self, node_id: int) -> Connection:
        connection = self._connections.get(node_id)
        if connection is None or not connection.is_open:
            connection = self.cluster.open_connection(node_id, Deadline(self._request_timeout_s))
            self._connections[node_id] = connection
        return connection

    def _request(self, batches: list[PendingBatch], version: int) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            data = PartitionProduceData(index=batch.partition.partition, records=bytes(batch.data))
            topics.setdefault(batch.partition.topic, []).append(data)
        return ProduceRequest(
            acks=self._acks,
            timeout_ms=int(self._request_timeout_s * 1000),
            topic_data=[
                TopicProduceData(name=name, topic_id=self.cluster.topic_id(name), partition_data=partitions)
                for name, partitions in topics.items()
            ],
        )

    # --- answers ----------------------------------------------------------------------------------------------------

    def _take_answers(self, *, wait: bool) -> None:
        """All answers that are there; with `wait`, at least one from each broker that owes one."""
        for node_id, queue in self._in_flight.items():
            block = wait
            while queue:
                connection = self._connections[node_id]
                try:
                    if not block and not connection.readable():
                        break
                    response = connection.receive(Deadline(self._request_timeout_s))[1]
                except (KafkaError, ClientError) as error:
                    self._lose_connection(node_id, error)
                    break
                block = False
                assert isinstance(response, ProduceResponse)
                self._take_response(queue.popleft().batches, response)

    def _lose_connection(self, node_id: int, error: Error) -> None:
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            connection.close()
        queue = self._in_flight.get(node_id)
        while queue:
            for batch in queue.popleft().batches:
                self._settle(batch, error, -1, -1)

    def _take_response(self, batches: list[PendingBatch], response: ProduceResponse) -> None:
        answers: dict[TopicPartition, Any] = {}
        for topic in response.responses:
            name = topic.name or self.cluster.topic_name(topic.topic_id) or ""
            for answer in topic.partition_responses:
                answers[TopicPartition(name, answer.index)] = answer
        for batch in batches:
            found = answers.get(batch.partition)
            if found is None:
                attempt = Attempt(str(batch.partition), "request", "the answer leaves this partition out", "")
                self._settle(batch, ConnectionLost(str(attempt), (attempt,)), -1, -1)
            elif found.error_code:
                self._settle(batch, _produce_error(found, batch.partition), -1, -1)
            else:
                self._settle(batch, None, found.base_offset, found.log_append_time_ms)

    def _settle(self, batch: PendingBatch, error: Error | None, base_offset: int, append_time_ms: int) -> None:
        """A batch was answered: report it, or keep it for another try."""
        self._introduced.discard(batch.partition)
        if isinstance(error, MessageTooLarge) and batch.record_count > 1:
            self._split(batch)
            return
        if isinstance(error, DuplicateSequenceNumber):
            error = None  # an earlier try of this batch was written; its offset is no longer known
        if error is not None and not batch.deadline.passed and self._may_retry(batch, error):
            self._attempts += error.attempts if isinstance(error, ClientError) else ()
            del self._attempts[:-20]
            self._failed.append(batch)
            return
        self._buffered_bytes -= len(batch.data)
        if batch.retried:
            self._careful -= 1
        if error is None:
            self._pause = BACKOFF_FIRST_S
            self._known.add(batch.partition)
        else:
            self._first_error = self._first_error or error
            if self._idempotent:
                self._gap.setdefault(batch.partition, batch.number)
        if self._on_delivery is not None:
            latency = time.perf_counter() - batch.first_sent if batch.first_sent else 0.0
            self._on_delivery(
                Delivery(
                    batch.partition, base_offset, batch.record_count, len(batch.data), append_time_ms, latency, error
                )
            )

    def _may_retry(self, batch: PendingBatch, error: Error) -> bool:
        if error.retriable or (isinstance(error, ClientError) and bool(self.cluster.view.brokers)):
            return True
        # what follows a failed batch is out of order until that one is written
        earlier = any(b.partition == batch.partition and b.number < batch.number for b in self._failed)
        behind_gap = batch.number > self._gap.get(batch.partition, batch.number)
        return isinstance(error, OutOfOrderSequenceNumber) and (earlier or behind_gap)

    def _requeue_failed(self) -> None:
        if not self._failed:
            return
        self.cluster.forget({batch.partition.topic for batch in self._failed})
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, BACKOFF_MAX_S)
        for batch in sorted(self._failed, key=lambda b: b.number, reverse=True):
            if not batch.retried:
                batch.retried = True
                self._careful += 1
            self._ready.setdefault(batch.partition, deque()).appendleft(batch)
        self._failed.clear()

    def _split(self, batch: PendingBatch) -> None:
        """The topic takes smaller batches than ours: halve this one, keep its place and its sequence."""
        halves = split_batch(batch, self._compression, self._compression_level)
        self._buffered_bytes += sum(len(half.data) for half in halves) - len(batch.data)
        if batch.retried:
            self._careful += len(halves) - 1
        self._failed += halves

    def _restart_sequences(self) -> None:
        """A batch was given up for good: what follows it needs a new producer id, or the gap stops the partition."""
        self._gap.clear()
        queued = [batch for queue in self._ready.values() for batch in queue]
        waiting = sorted([*self._failed, *queued], key=lambda b: b.number)
        try:
            self._init_producer_id()
        except (KafkaError, ClientError):
            return  # the batches that wait will fail by themselves
        for batch in waiting:
            self._number_sequence(batch)

    def close(self, timeout_s: float | None = None) -> None:
        """Flush and close the connections."""
        try:
            self.flush(timeout_s)
        finally:
            self.abort()

    def abort(self) -> None:
        """Close the connections at once; what was not answered may be lost."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def __enter__(self) -> "SimpleProducer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def _produce_error(answer: Any, partition: TopicPartition) -> KafkaError:
    reasons: Iterable[str] = [
        f"record {e.batch_index}: {e.batch_index_error_message}" for e in answer.record_errors[:3]
    ]
    text = "; ".join(filter(None, [answer.error_message, *reasons]))
    kind = error_for(answer.error_code)
    return error_for(answer.error_code, f"{partition}: {text or kind}")
