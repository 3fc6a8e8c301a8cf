"""Batches to their leaders: requests, answers, retries, and the order that an idempotent producer promises.

A node has `max.in.flight` requests open at most, with one batch of a partition each. What failed for a passing reason
goes back to its place in front and is sent first. With idempotence a batch keeps its sequence until it is known not to
be written: then, and only then, it may get another one. A batch that is given up leaves a gap; once all behind it is
known, and no bytes of a lost connection can arrive any more, the epoch goes up and the partition counts from 0 again,
so nothing is lost or doubled by numbering anew.
"""

from typing import Final, NamedTuple

from barnabas.client.producer.delivery_errors import error_of, name_refused, note_failure, timed_out
from barnabas.client.producer.partition import PartitionState
from barnabas.client.producer.produce_request import (
    TOPIC_IDS_FROM,
    TRANSACTION_V2_FROM,
    Answer,
    Answers,
    Placed,
    ProduceBodies,
    read_answers,
)
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.producer.producer_id import Identity
from barnabas.client.producer.record_accumulator import RecordAccumulator
from barnabas.client.producer.split import halves_of
from barnabas.client.producer.transactions.transaction_manager import TransactionManager
from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.metadata import NO_ID_BYTES
from barnabas.connection.network_client import NetworkClient, Node
from barnabas.connection.retry import CONCURRENT_TRANSACTIONS_BACKOFF_S
from barnabas.connection.timers import NEVER
from barnabas.errors import (
    Attempt,
    BarnabasError,
    ClientClosed,
    ClientError,
    ConcurrentTransactions,
    ConnectionLost,
    DuplicateSequenceNumber,
    InvalidRecord,
    KafkaError,
    MessageTooLarge,
    NetworkException,
    NotEnoughReplicasAfterAppend,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    UnknownProducerId,
    UnknownServerError,
)
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.types import TopicPartition

__all__ = ["Sender", "SenderSettings"]

PERHAPS_WRITTEN: Final = (
    RequestTimedOut,
    NotEnoughReplicasAfterAppend,
    UnknownServerError,
    NetworkException,
)
"""Answers of a broker that leave open whether the batch stands in its log."""


class SenderSettings(NamedTuple):
    """The producer's settings that the sender looks at."""

    acks: int = -1
    in_flight_max: int = 5
    request_size_max: int = 1 << 20
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    retries: int = 0x7FFFFFFF
    compression_level: int | None = None


class Sender:
    """See the module."""

    def __init__(
        self,
        client: NetworkClient,
        accumulator: RecordAccumulator,
        settings: SenderSettings,
        identity: Identity | None,
        transactions: TransactionManager | None = None,
    ) -> None:
        self._client = client
        self._accumulator = accumulator
        self._settings = settings
        self._identity = identity
        self._transactions = transactions
        self._in_flight: dict[int, int] = {}
        """Requests by node."""
        self._nodes: dict[int, Node] = {}
        self._bodies = ProduceBodies(settings.acks, settings.request_timeout_ms)
        self._due = NEVER
        self.requests = 0
        self.retries = 0
        self.failed = 0

    def next_deadline(self) -> float:
        """When a retry's pause is over."""
        return self._due

    # --- out --------------------------------------------------------------------------------------------------------

    def send(self, now: float) -> None:
        """Write what can be written now."""
        self._due = NEVER
        if not self._accumulator.waiting or not self._may_number():
            return
        for node_id, states in self._by_leader(now).items():
            node = self._nodes.get(node_id) or self._nodes.setdefault(node_id, Node(node_id))
            while states and self._in_flight.get(node_id, 0) < self._settings.in_flight_max:
                if not self._client.is_ready(node):
                    break
                self._send_to(node, states, now)
                states = [state for state in states if self._may_send(state, now)]

    def _may_number(self) -> bool:
        """Whether batches can get their sequences."""
        identity = self._identity
        if identity is None:
            return True
        if self._transactions is not None:
            return self._transactions.may_send
        if identity.error is not None:
            for batch in list(self._accumulator.incomplete):
                self._give_up(batch, identity.error)
            return False
        if identity.is_known:
            return True
        identity.seek()
        return identity.is_known

    def _by_leader(self, now: float) -> dict[int, list[PartitionState]]:
        metadata = self._client.metadata
        nodes: dict[int, list[PartitionState]] = {}
        for state in self._accumulator.waiting:
            if not self._may_send(state, now):
                continue
            leader = metadata.leader(state.where)
            if leader < 0:
                metadata.mark_stale()
            elif self._transactions is None or self._transactions.may_write(state.where):
                nodes.setdefault(leader, []).append(state)
        return nodes

    def _may_send(self, state: PartitionState, now: float) -> bool:
        """Whether the partition's next batch may go now."""
        if not state.queue:
            return False
        batch = state.queue[0]
        if batch.retry_at > now:
            self._due = min(self._due, batch.retry_at)
            return False
        if not state.in_flight:
            return self._identity is None or self._numbers_agree(state, batch)
        if self._settings.in_flight_max == 1:
            return False
        if self._identity is None:
            return True
        if state.gap is not None or not state.known:
            return False
        if batch.base_sequence >= 0:
            return state.in_flight[0].number > batch.number  # a repeat goes alone, or in front of what flies
        for flying in state.in_flight:
            if flying.attempts > 1:
                return False  # brokers know a repeat by their last five batches: no others may come between
        return self._numbers_agree(state, batch)

    def _numbers_agree(self, state: PartitionState, batch: ProducerBatch) -> bool:
        """Take the partition over to the producer's id and epoch, where that can be done."""
        identity = self._identity
        assert identity is not None
        if batch.base_sequence >= 0 and batch.unknown:
            return True  # whether it is written is found out under its old sequence
        if state.gap is not None and state.quiet_from > self._client.now:
            self._due = min(self._due, state.quiet_from)
            return False
        mine, current = (state.producer_id, state.producer_epoch), (identity.producer_id, identity.producer_epoch)
        if state.gap is not None and mine == current:
            assert self._transactions is None, "a transaction with a gap is aborted, and the next has another epoch"
            identity.bump()
            if not identity.is_known:
                return False
            current = (identity.producer_id, identity.producer_epoch)
        if mine != current:
            if state.in_flight:
                return False
            if state.gap is not None or batch.base_sequence < 0:
                state.adopt(*current)
        return True

    def _send_to(self, node: Node, states: list[PartitionState], now: float) -> None:
        topics: dict[str, list[ProducerBatch]] = {}
        size = 0
        for state in states:
            batch = state.queue[0]
            if topics and size + batch.size > self._settings.request_size_max:
                break
            self._take_off(state, batch, now)
            topics.setdefault(batch.topic, []).append(batch)
            size += batch.size
        metadata = self._client.metadata
        placed = [(name, metadata.topic_id_bytes(name), found) for name, found in topics.items()]
        with_ids = all(topic_id != NO_ID_BYTES for _, topic_id, _ in placed)
        transactions = self._transactions

        def done(response: Answers | None, error: Error | None) -> None:
            self._in_flight[node.node_id] -= 1
            self._answered(placed, response, error)

        call = ClientRequest(
            ProduceRequest,
            done,
            encode=lambda version: self._bodies.parts(
                version, placed, None if transactions is None else transactions.transactional_id
            ),
            decode=read_answers,
            at_most=self._newest_version(with_ids),
            one_way=self._settings.acks == 0,
        )
        self._in_flight[node.node_id] = self._in_flight.get(node.node_id, 0) + 1
        self.requests += 1
        self._client.send(call, node)

    def _newest_version(self, with_ids: bool) -> int | None:
        if self._transactions is not None and not self._transactions.is_implicit:
            return TRANSACTION_V2_FROM - 1
        return None if with_ids else TOPIC_IDS_FROM - 1

    def _take_off(self, state: PartitionState, batch: ProducerBatch, now: float) -> None:
        """From waiting to in flight, with a sequence."""
        state.queue.popleft()
        if not state.queue:
            del self._accumulator.waiting[state]
        if self._identity is not None and batch.base_sequence < 0:
            batch.producer_id = state.producer_id
            batch.producer_epoch = state.producer_epoch
            batch.base_sequence = state.next_sequence
            state.next_sequence = (state.next_sequence + batch.count) & 0x7FFFFFFF
        batch.sent_at = now
        batch.attempts += 1
        batch.in_flight = True
        batch.unknown = True
        if state.in_flight and state.in_flight[0].number > batch.number:
            state.in_flight.insert(0, batch)
        else:
            state.in_flight.append(batch)

    # --- back -------------------------------------------------------------------------------------------------------

    def _answered(self, placed: list[Placed], response: Answers | None, error: Error | None) -> None:
        if response is None:
            for _, _, batches in placed:
                for batch in batches:
                    self._settle(batch, error, None)
            return
        answers = {(found.topic, found.partition): found for found in response.answers}
        for name, topic_id, batches in placed:
            for batch in batches:
                answer = answers.get((topic_id, batch.partition)) or answers.get((name, batch.partition))
                self._take_answer(batch, answer, response)

    def _take_answer(self, batch: ProducerBatch, answer: Answer | None, response: Answers) -> None:
        if answer is None:
            attempt = Attempt(f"{batch.topic}-{batch.partition}", "request", "the answer leaves it out", "")
            self._settle(batch, ConnectionLost(str(attempt), (attempt,)), None)
        elif answer.error_code:
            if answer.leader >= 0:  # who leads now (KIP-951)
                where = TopicPartition(batch.topic, batch.partition)
                broker = response.endpoints.get(answer.leader)
                self._client.metadata.learn_leader(where, answer.leader, answer.leader_epoch, broker)
            self._settle(batch, error_of(answer, batch), answer)
        else:
            batch.base_offset = answer.base_offset
            batch.append_timestamp = answer.append_timestamp
            self._settle(batch, None, answer)

    def _state(self, batch: ProducerBatch) -> PartitionState:
        return self._accumulator.partitions[batch.topic, batch.partition]

    def _settle(self, batch: ProducerBatch, error: Error | None, answer: Answer | None) -> None:
        """A batch in flight has its answer, or will have none."""
        state = self._state(batch)
        state.in_flight.remove(batch)
        batch.in_flight = False
        if isinstance(error, DuplicateSequenceNumber):
            error = None  # an earlier try was written; where, the broker does not remember
        if error is None:
            self._written(state, batch)
            return
        self._judge(state, batch, error)
        if isinstance(error, ClientError):
            state.quiet_from = max(state.quiet_from, batch.sent_at + self._settings.request_timeout_ms / 1000)
        if batch.done:  # given up while it was in flight
            self._leave_gap(state, batch)
        elif isinstance(error, MessageTooLarge) and batch.count > 1 and not batch.unknown:
            self._split(state, batch)
        elif self._may_retry(state, batch, error):
            self._retry(state, batch, error)
        else:
            if isinstance(error, InvalidRecord) and answer is not None:
                error = name_refused(batch, error, answer)
            self._give_up(batch, error)

    def _written(self, state: PartitionState, batch: ProducerBatch) -> None:
        state.known = True
        if state.gap is not None and batch.number > state.gap:
            state.gap = None  # what was given up before it was written after all
        batch.unknown = False
        if not batch.done:
            self._accumulator.settle(batch, None)

    def _judge(self, state: PartitionState, batch: ProducerBatch, error: Error) -> None:
        """Whether the batch is known now not to be written."""
        if isinstance(error, OutOfOrderSequenceNumber | UnknownProducerId) or (
            batch.attempts == 1 and isinstance(error, KafkaError) and not isinstance(error, PERHAPS_WRITTEN)
        ):
            batch.unknown = False

    def _may_retry(self, state: PartitionState, batch: ProducerBatch, error: Error) -> bool:
        if batch.attempts > self._settings.retries or batch.deadline <= self._client.now:
            return False
        if self._transactions is not None and not self._transactions.may_send:
            return False
        if self._identity is None or not isinstance(error, OutOfOrderSequenceNumber | UnknownProducerId):
            return error.retriable
        forgotten = isinstance(error, UnknownProducerId) and self._transactions is None
        if forgotten and batch.attempts == 1 and state.gap is None:
            # The broker forgot us, as those before 2.4 do after retention. It does not have this batch.
            state.gap = batch.number - batch.span
        # What follows a batch that failed is out of sequence until that one is written, or left behind.
        return (state.gap is not None and batch.number > state.gap) or not state.is_first(batch)

    def _retry(self, state: PartitionState, batch: ProducerBatch, error: Error) -> None:
        self.retries += 1
        note_failure(batch, error)
        follows = isinstance(error, OutOfOrderSequenceNumber | UnknownProducerId)
        batch.retry_at = self._client.now + (0.0 if follows else self._client.backoff_s(batch.attempts))
        if isinstance(error, ConcurrentTransactions):
            batch.retry_at = min(batch.retry_at, self._client.now + CONCURRENT_TRANSACTIONS_BACKOFF_S)
        elif not follows:
            self._client.metadata.mark_stale()
        state.put_back([batch])
        self._accumulator.waiting[state] = None

    def _split(self, state: PartitionState, batch: ProducerBatch) -> None:
        halves = halves_of(batch, self._settings.compression_level)
        self._accumulator.replace(batch, halves)
        state.put_back(halves)
        self._accumulator.waiting[state] = None

    def _give_up(self, batch: ProducerBatch, error: BarnabasError) -> None:
        """The batch has failed for good."""
        state = self._state(batch)
        if batch in state.queue:
            state.queue.remove(batch)
            if not state.queue:
                self._accumulator.waiting.pop(state, None)
        if not batch.in_flight:
            self._leave_gap(state, batch)
        self.failed += batch.count
        self._accumulator.settle(batch, error)
        if self._transactions is not None:
            self._transactions.batch_failed(error)

    def _leave_gap(self, state: PartitionState, batch: ProducerBatch) -> None:
        """What follows the batch is out of sequence, if it had one and is not the last that did."""
        if self._identity is not None and batch.base_sequence >= 0:
            state.gap = batch.number if state.gap is None else max(state.gap, batch.number)

    # --- time and the end -------------------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Give up what is older than delivery.timeout.ms, also what is in flight: it may be written or not."""
        for batch in self._accumulator.expired(now):
            if not batch.done:  # the first one may take its transaction with it
                self._give_up(batch, timed_out(batch, self._client, self._settings.delivery_timeout_ms))

    def purge(self, error: ClientError, *, in_flight: bool) -> int:
        """Give up what waits, and what is in flight if asked to; how many records."""
        count = 0
        for batch in self._accumulator.drop_open():
            if in_flight or not batch.in_flight:
                count += batch.count
                if not batch.done:
                    self._give_up(batch, error)
        return count

    def give_up_waiting(self, error: BarnabasError) -> None:
        """Give up all that is not in flight."""
        for batch in self._accumulator.drop_open():
            if not batch.in_flight and not batch.done:
                self._give_up(batch, error)

    def close(self) -> None:
        self.purge(ClientClosed("the producer was closed before the record was acknowledged"), in_flight=True)
