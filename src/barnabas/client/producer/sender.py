"""Sends batches to the leaders of their partitions, reads the responses, retries, and keeps the order.

A node has `max.in.flight` requests open at most, each with one batch of a partition. A batch that failed with a
retriable error goes back to its place and is sent first. An idempotent producer keeps the order without duplicates: a
batch keeps its sequence until it is known not to be written, and only then may get another one. A batch that is given
up leaves a gap. When the results of all batches behind the gap are known, and no bytes of a lost connection can arrive
any more, the epoch goes up and the partition's sequences restart from 0, so that no record is lost or duplicated.
"""

from typing import Final

from barnabas.client.producer.delivery_errors import error_of, name_refused, note_failure, timed_out
from barnabas.client.producer.partition_batches import Leadership, PartitionBatches
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.producer.producer_id import ProducerIds
from barnabas.client.producer.record_accumulator import RecordAccumulator
from barnabas.client.producer.transactions.transaction_manager import TransactionManager
from barnabas.client.settings import ProducerSettings
from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.cluster import brokers_of
from barnabas.connection.metadata import NO_ID_BYTES
from barnabas.connection.network_client import NetworkClient, Node
from barnabas.connection.retry import CONCURRENT_TRANSACTIONS_BACKOFF_S
from barnabas.connection.timers import NEVER
from barnabas.errors import (
    Attempt,
    BarnabasError,
    ClientError,
    ConcurrentTransactions,
    ConnectionLost,
    DuplicateSequenceNumber,
    InvalidRecord,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NetworkException,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    UnknownProducerId,
    UnknownServerError,
)
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.produce import (
    TOPIC_IDS_FROM,
    TRANSACTION_V2_FROM,
    PartitionResponse,
    ProduceRequestWriter,
    ProduceResponse,
    TopicBatches,
    read_produce_response,
)
from barnabas.records.batch import Buffer
from barnabas.types import BrokerId, TopicPartition

__all__ = ["Sender"]

PERHAPS_WRITTEN: Final = (
    RequestTimedOut,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,  # the leader changed before the append, or after it
    KafkaStorageError,
    UnknownServerError,
    NetworkException,
)
"""The errors of a broker that leave open whether the batch is in its log."""

Placed = tuple[str, bytes, list[ProducerBatch]]
"""A topic's name, its id, and its batches, one for each partition."""


class Sender:
    """Sends the Produce requests of a producer."""

    def __init__(
        self,
        client: NetworkClient,
        accumulator: RecordAccumulator,
        settings: ProducerSettings,
        ids: ProducerIds | None,
        transactions: TransactionManager | None = None,
    ) -> None:
        self._client = client
        self._accumulator = accumulator
        self._acks = settings.acks
        self._in_flight_max = settings.max_in_flight_requests_per_connection
        self._request_size_max = settings.max_request_size
        self._request_timeout_s = settings.request_timeout_ms / 1000
        self._delivery_timeout_ms = settings.delivery_timeout_ms
        self._retries_max = settings.retries
        self._ids = ids
        self._transactions = transactions
        self._in_flight: dict[BrokerId, int] = {}
        """The number of requests in flight, by node."""
        self._nodes: dict[BrokerId, Node] = {}
        self._writer = ProduceRequestWriter(settings.acks, settings.request_timeout_ms)
        self._due = NEVER
        self.requests = 0
        self.retries = 0

    def next_deadline(self) -> float:
        """Returns when the backoff of the next retry is over."""
        return self._due

    # --- requests ---------------------------------------------------------------------------------------------------

    def send_ready(self, now: float) -> None:
        """Sends the batches that are ready."""
        self._due = NEVER
        if not self._accumulator.queued or not self._has_producer_id():
            return
        for node_id, partitions in self._ready_by_leader(now).items():
            node = self._nodes.get(node_id) or self._nodes.setdefault(node_id, Node(node_id))
            while partitions and self._in_flight.get(node_id, 0) < self._in_flight_max:
                if not self._client.ready(node):
                    break
                self._send_produce_request(node, partitions, now)
                partitions = [partition for partition in partitions if self._is_ready(partition, now)]

    def _has_producer_id(self) -> bool:
        """Whether batches can get their sequences. Requests a producer id if there is none."""
        ids = self._ids
        if ids is None:
            return True
        if self._transactions is not None:
            return self._transactions.may_send
        if ids.error is not None:
            for batch in list(self._accumulator.incomplete):
                self._accumulator.fail(batch, ids.error)
            return False
        if not ids.is_known:
            ids.request()
        return ids.is_known

    def _ready_by_leader(self, now: float) -> dict[BrokerId, list[PartitionBatches]]:
        metadata = self._client.metadata
        nodes: dict[BrokerId, list[PartitionBatches]] = {}
        gone: list[PartitionBatches] = []
        for partition in self._accumulator.queued:
            if not self._is_ready(partition, now):
                continue
            leader = metadata.leader(partition.topic_partition)
            if leader < 0 and self._is_gone(partition.topic_partition):
                gone.append(partition)
            elif leader < 0:
                metadata.request_update()
            elif self._transactions is None or self._transactions.maybe_add_partition(partition.topic_partition):
                nodes.setdefault(leader, []).append(partition)
        for partition in gone:
            for batch in list(partition.queue):
                if not batch.done:  # the first one may have failed the others with its transaction
                    self._fail(batch, metadata.partition_error(partition.topic_partition))
        return self._ready_by_leader(now) if gone else nodes

    def _is_gone(self, topic_partition: TopicPartition) -> bool:
        """Whether the topic was created again without this partition."""
        topic = self._accumulator.appender.topics.get(topic_partition.topic)
        return topic is not None and topic_partition.partition >= topic.partition_count

    def _is_ready(self, partition: PartitionBatches, now: float) -> bool:
        """Whether the partition's next batch may be sent now."""
        if not partition.queue:
            return False
        batch = partition.queue[0]
        if batch.retry_at > now:
            self._due = min(self._due, batch.retry_at)
            return False
        if not partition.in_flight:
            return self._ids is None or self._may_number(partition, batch)
        if self._in_flight_max == 1:
            return False
        if self._ids is None:
            return True
        if partition.gap is not None or not partition.has_acknowledged:
            return False
        if partition.leadership != self._leadership(partition.topic_partition):
            return False  # the new leader may take any sequence: a batch that is unanswered elsewhere goes first
        if batch.base_sequence >= 0:
            return partition.in_flight[0].position > batch.position  # a retry goes alone, or before those in flight
        for in_flight in partition.in_flight:
            if in_flight.attempts > 1:
                return False  # brokers detect duplicates of their last five batches only: no others may come between
        return self._may_number(partition, batch)

    def _leadership(self, topic_partition: TopicPartition) -> Leadership:
        metadata = self._client.metadata
        view = metadata.partition(topic_partition)
        topic_id = metadata.topic_id_bytes(topic_partition.topic)
        return (-1, -1, topic_id) if view is None else (view.leader, view.leader_epoch, topic_id)

    def _may_number(self, partition: PartitionBatches, batch: ProducerBatch) -> bool:
        """Whether the batch may get a sequence, or keep its own. Switches the partition to the producer's current id
        and epoch if that is possible."""
        ids = self._ids
        assert ids is not None
        if batch.base_sequence >= 0 and batch.maybe_written:
            return True  # a retry under its old sequence finds out whether it is written
        if partition.gap is not None and partition.quiet_from > self._client.now:
            self._due = min(self._due, partition.quiet_from)
            return False
        if partition.gap is not None and partition.producer_id_and_epoch == ids.current:
            assert self._transactions is None, "a transaction with a gap is aborted, and the next has another epoch"
            ids.bump_epoch()
            if not ids.is_known:
                return False
        if partition.producer_id_and_epoch != ids.current:
            if partition.in_flight:
                return False
            if partition.gap is not None or batch.base_sequence < 0:
                partition.restart_sequences(ids.current)
        return True

    def _send_produce_request(self, node: Node, partitions: list[PartitionBatches], now: float) -> None:
        topics: dict[str, list[ProducerBatch]] = {}
        size = 0
        for partition in partitions:
            batch = partition.queue[0]
            if topics and size + batch.size > self._request_size_max:
                break
            self._take_from_queue(partition, batch, now)
            topics.setdefault(batch.topic, []).append(batch)
            size += batch.size
        metadata = self._client.metadata
        placed = [(name, metadata.topic_id_bytes(name), batches) for name, batches in topics.items()]
        at_most: int | None = None
        transactional_id: str | None = None
        for _, topic_id, _ in placed:
            if topic_id == NO_ID_BYTES:
                at_most = TOPIC_IDS_FROM - 1
        if self._transactions is not None:
            transactional_id = self._transactions.transactional_id
            if not self._transactions.adds_implicitly:
                at_most = TRANSACTION_V2_FROM - 1

        def done(response: ProduceResponse | None, error: Error | None) -> None:
            self._in_flight[node.node_id] -= 1
            self._handle_response(placed, response, error)

        request = ClientRequest(
            ProduceRequest,
            done,
            encode=lambda version: self._encode(version, placed, transactional_id),
            decode=read_produce_response,
            at_most=at_most,
            one_way=self._acks == 0,
        )
        self._in_flight[node.node_id] = self._in_flight.get(node.node_id, 0) + 1
        self.requests += 1
        self._client.send(request, node)

    def _encode(self, version: int, placed: list[Placed], transactional_id: str | None) -> list[Buffer]:
        topics: list[TopicBatches] = []
        for name, topic_id, batches in placed:
            partitions: list[tuple[int, bytes, bytes]] = []
            for batch in batches:
                assert batch.body is not None
                partitions.append((batch.partition, batch.header(transactional_id is not None), batch.body))
            topics.append((name, topic_id, partitions))
        return self._writer.write(version, topics, transactional_id)

    def _take_from_queue(self, partition: PartitionBatches, batch: ProducerBatch, now: float) -> None:
        """Moves the first queued batch to the batches in flight, and gives it a sequence."""
        partition.queue.popleft()
        if not partition.queue:
            del self._accumulator.queued[partition]
        if self._ids is not None and not partition.in_flight:
            partition.sends_to(self._leadership(partition.topic_partition), now)
        if self._ids is not None and batch.base_sequence < 0:
            batch.producer_id, batch.producer_epoch = partition.producer_id_and_epoch
            batch.base_sequence = partition.next_sequence
            partition.next_sequence = (partition.next_sequence + batch.count) & 0x7FFFFFFF
        batch.sent_at = now
        batch.attempts += 1
        batch.in_flight = True
        batch.maybe_written_before = batch.maybe_written
        batch.maybe_written = True
        if partition.in_flight and partition.in_flight[0].position > batch.position:
            partition.in_flight.insert(0, batch)
        else:
            partition.in_flight.append(batch)

    # --- responses --------------------------------------------------------------------------------------------------

    def _handle_response(self, placed: list[Placed], response: ProduceResponse | None, error: Error | None) -> None:
        if response is None:
            for _, _, batches in placed:
                for batch in batches:
                    self._end_attempt(batch, error, None)
            return
        answers: dict[tuple[str | bytes, int], PartitionResponse] = {}
        for topic, partitions in response.topics:
            for partition in partitions:
                answers[topic, partition.partition] = partition
        for name, topic_id, batches in placed:
            for batch in batches:
                answer = answers.get((topic_id, batch.partition)) or answers.get((name, batch.partition))
                self._handle_answer(batch, answer, response)

    def _handle_answer(self, batch: ProducerBatch, answer: PartitionResponse | None, response: ProduceResponse) -> None:
        if answer is None:
            attempt = Attempt(f"{batch.topic}-{batch.partition}", "request", "the answer leaves it out", "")
            self._end_attempt(batch, ConnectionLost(str(attempt), (attempt,)), None)
        elif answer.error_code:
            if answer.leader_id >= 0:  # the leader has changed, and the response names the new one (KIP-951)
                topic_partition = TopicPartition(batch.topic, batch.partition)
                broker = brokers_of(response.node_endpoints).get(answer.leader_id)
                self._client.metadata.update_leader(topic_partition, answer.leader_id, answer.leader_epoch, broker)
            self._end_attempt(batch, error_of(answer, batch), answer)
        else:
            batch.base_offset = answer.base_offset
            batch.append_timestamp = answer.log_append_time_ms
            self._end_attempt(batch, None, answer)

    def _end_attempt(self, batch: ProducerBatch, error: Error | None, answer: PartitionResponse | None) -> None:
        """Ends an attempt to send a batch: completes the batch, or queues it again."""
        partition = self._accumulator.partitions[batch.topic, batch.partition]
        partition.in_flight.remove(batch)
        batch.in_flight = False
        if (
            error is None
            or isinstance(error, DuplicateSequenceNumber)
            or (
                isinstance(error, OutOfOrderSequenceNumber)
                and batch.maybe_written_before
                and partition.is_overtaken(batch)
            )
        ):
            # a duplicate: an earlier attempt was written, at an offset that the broker has dropped
            partition.note_acknowledged(batch, self._client.now)
            if partition.gap is not None and batch.position > partition.gap:
                partition.gap = None  # the batch that was given up before it was written after all
            batch.maybe_written = False
            if not batch.done:
                self._accumulator.complete(batch, None)
            return
        if isinstance(error, OutOfOrderSequenceNumber | UnknownProducerId) or (
            not batch.maybe_written_before and isinstance(error, KafkaError) and not isinstance(error, PERHAPS_WRITTEN)
        ):
            batch.maybe_written = False
        if isinstance(error, ClientError):
            partition.quiet_from = max(partition.quiet_from, batch.sent_at + self._request_timeout_s)
        if batch.done:  # the batch was given up while it was in flight
            partition.leave_gap(batch)
        elif isinstance(error, MessageTooLarge) and batch.count > 1 and not batch.maybe_written:
            self._accumulator.split(partition, batch)
        elif self._may_retry(partition, batch, error):
            self._retry(partition, batch, error)
        else:
            if isinstance(error, InvalidRecord) and answer is not None:
                error = name_refused(batch, error, answer)
            self._fail(batch, error)

    def _may_retry(self, partition: PartitionBatches, batch: ProducerBatch, error: Error) -> bool:
        if batch.attempts > self._retries_max or batch.deadline <= self._client.now:
            return False
        if self._transactions is not None and not self._transactions.may_send:
            return False
        if self._ids is None or not isinstance(error, OutOfOrderSequenceNumber | UnknownProducerId):
            return error.retriable
        forgotten = isinstance(error, UnknownProducerId) and self._transactions is None
        if forgotten and batch.attempts == 1 and partition.gap is None:
            # The broker has dropped the producer, as brokers before 2.4 do after retention, and lacks this batch.
            partition.gap = batch.position - batch.position_span
        # A batch behind a failed one is out of sequence until the failed batch is written or given up.
        return (partition.gap is not None and batch.position > partition.gap) or not partition.is_first(batch)

    def _retry(self, partition: PartitionBatches, batch: ProducerBatch, error: Error) -> None:
        self.retries += 1
        note_failure(batch, error)
        follows = isinstance(error, OutOfOrderSequenceNumber | UnknownProducerId)
        batch.retry_at = self._client.now + (0.0 if follows else self._client.backoff_s(batch.attempts))
        if isinstance(error, ConcurrentTransactions):
            batch.retry_at = min(batch.retry_at, self._client.now + CONCURRENT_TRANSACTIONS_BACKOFF_S)
        elif not follows:
            self._client.metadata.request_update()
        self._accumulator.put_back(partition, [batch])

    def _fail(self, batch: ProducerBatch, error: BarnabasError) -> None:
        self._accumulator.fail(batch, error)
        if self._transactions is not None:
            self._transactions.batch_failed(error)

    # --- batches that are given up ------------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Gives up batches older than delivery.timeout.ms, also those in flight, which may be written or not."""
        for batch in self._accumulator.expired(now):
            if not batch.done:  # the first one may have failed the others with its transaction
                self._fail(batch, timed_out(batch, self._client, self._delivery_timeout_ms))

    def purge(self, error: ClientError, *, in_flight: bool) -> int:
        """Gives up the queued batches, and with `in_flight` those in flight. Returns the number of records."""
        count = 0
        for batch in self._accumulator.close_batches():
            if in_flight or not batch.in_flight:
                count += batch.count
                if not batch.done:
                    self._fail(batch, error)
        return count
