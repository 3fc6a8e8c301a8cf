"""The whole producer on a network client: lanes for topics, batches, requests. The fronts stand on it."""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, Protocol

from barnabas.client.arguments import INT32_MAX, callback, time_ms, topic_name, whole
from barnabas.client.producer.bulk.rows import header_pairs
from barnabas.client.producer.interceptors import Interceptors
from barnabas.client.producer.producer_batch import ProducerBatch, RecordHandle
from barnabas.client.producer.producer_id import Identity
from barnabas.client.producer.record_accumulator import RecordAccumulator
from barnabas.client.producer.record_appender import Lane, RecordAppender
from barnabas.client.producer.sender import Sender, SenderSettings
from barnabas.client.producer.transactions.transaction_manager import TransactionManager
from barnabas.client.settings import ProducerSettings
from barnabas.connection.cluster import TopicView
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise
from barnabas.errors import BarnabasError, ClientClosed, MessageTooLarge, UsageError
from barnabas.types import TopicPartition

__all__ = ["Front", "Headers", "ProducerCore"]

SINGLE_BATCH_BYTES: Final = 64 * 1024
BULK_BATCH_BYTES: Final = 256 * 1024
"""Where batch.size is not set. Half the work of a batch is the same whatever it holds, on both sides, and who fills
more than 16 KB within linger.ms gains by it; the rows of a bulk call do not even wait for each other."""

Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


class Front(Protocol):
    """What a front does for records and batches: waiting and turning are its own."""

    def opened(self) -> None:
        """The lock is held: a batch was begun, whose linger somebody must keep."""

    def turn(self) -> None:
        """Something is ready to be sent."""

    def send_slowly(
        self, topic: str, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any, on_delivery: Any
    ) -> RecordHandle: ...

    def wait_for_batch(self, batch: ProducerBatch, timeout: float | None) -> None: ...

    def await_batch(self, batch: ProducerBatch) -> Any: ...

    def call_when_done(self, batch: ProducerBatch, handle: RecordHandle, callback: Any) -> None: ...

    def now(self) -> float: ...

    # a bulk call's future: see DeliveryFront

    def wait_for_promise(self, promise: Promise[Any], timeout: float | None) -> None: ...

    def await_promise(self, promise: Promise[Any]) -> Any: ...

    def call_when_settled(self, promise: Promise[Any], callback: Callable[[], None]) -> None: ...


class ProducerCore:
    """See the module. `intake.append` is the way in; everything is under the front's lock."""

    def __init__(
        self,
        client: NetworkClient,
        settings: ProducerSettings,
        front: Front,
        lock: Any,
        rng: random.Random | None = None,
    ) -> None:
        self.client = client
        self.settings = settings
        self.front = front
        self._rng = rng or random.Random()
        limit = max(settings.buffer_memory, 1)
        self.intake = RecordAppender(
            self,
            lock,
            settings.batch_size_of(SINGLE_BATCH_BYTES),
            settings.linger_ms,
            limit,
            min(settings.max_request_size, limit),
            settings.batch_size_of(BULK_BATCH_BYTES),
        )
        self.intake.plain = not (
            settings.key_serializer
            or settings.value_serializer
            or settings.interceptor_classes
            or callable(settings.partitioner_class)
        )
        self.interceptors = Interceptors(settings.interceptor_classes) if settings.interceptor_classes else None
        self.intake.round_robin = settings.partitioner_class == "round_robin"
        self.intake.ignore_keys = settings.partitioner_ignore_keys
        self.accumulator = RecordAccumulator(
            self.intake,
            compression=settings.compression_type,
            compression_level=settings.compression_level,
            linger_s=settings.linger_ms / 1000,
            delivery_timeout_s=settings.delivery_timeout_ms / 1000,
            later=client.completions.append,
        )
        self.identity = Identity(client) if settings.enable_idempotence else None
        sender_settings = SenderSettings(
            acks=settings.acks,
            in_flight_max=settings.max_in_flight_requests_per_connection,
            request_size_max=settings.max_request_size,
            request_timeout_ms=settings.request_timeout_ms,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            retries=settings.retries,
            compression_level=settings.compression_level,
        )
        self.closed = False
        self.transactions = self._new_transactions()
        self.sender = Sender(client, self.accumulator, sender_settings, self.identity, self.transactions)
        if self.transactions is not None:
            self.transactions.sender = self.sender
        self._sweep_at = client.now + settings.metadata_max_idle_ms / 1000
        client.components.append(self)
        client.on_metadata.append(self._follow_metadata)

    def _new_transactions(self) -> TransactionManager | None:
        settings = self.settings
        if settings.transactional_id is None:
            return None
        assert self.identity is not None, "settings with a transactional id are idempotent"
        return TransactionManager(
            self.client,
            self.accumulator,
            self.identity,
            transactional_id=settings.transactional_id,
            timeout_ms=settings.transaction_timeout_ms,
            two_phase=settings.transaction_two_phase_commit_enable,
            gate=self._gate,
        )

    def _gate(self, in_transaction: bool) -> None:
        self.intake.closed = self.closed or not in_transaction

    # --- the network client's component -------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        self.accumulator.collect(now)
        self.sender.expire(now)
        self.sender.send(now)
        if self.transactions is not None:
            self.transactions.advance()
        if now >= self._sweep_at:
            self._sweep(now)

    def next_deadline(self) -> float:
        return min(self.accumulator.next_deadline(), self.sender.next_deadline(), self._sweep_at)

    # --- topics -----------------------------------------------------------------------------------------------------

    def open_topic(self, name: Any, timeout_s: float) -> Promise[TopicView]:
        """Make a topic known, so that records can be taken for it. Raises UsageError for what is no name."""
        promise = self.client.topic(topic_name("topic", name), timeout_s)
        promise.on_done(lambda settled: self._open_lane(settled))
        return promise

    def _open_lane(self, promise: Promise[TopicView]) -> None:
        if promise.error is None:
            topic = promise.result()
            if topic.name not in self.intake.lanes:
                count = len(topic.partitions)
                self.intake.lanes[topic.name] = Lane(topic.name, count, self._rng.randrange(count))

    def _follow_metadata(self) -> None:
        """Topics may get more partitions."""
        for name, lane in self.intake.lanes.items():
            topic = self.client.metadata.topic(name)
            if topic is not None and len(topic.partitions) > lane.partition_count:
                lane.open.extend([None] * (len(topic.partitions) - lane.partition_count))
                lane.partition_count = len(topic.partitions)

    def _sweep(self, now: float) -> None:
        """Topics that nothing was sent to for metadata.max.idle.ms are forgotten."""
        self._sweep_at = now + self.settings.metadata_max_idle_ms / 1000
        for name, lane in list(self.intake.lanes.items()):
            if lane.touched or any(lane.open) or any(w.topic == name for w in self._waiting_for()):
                lane.touched = False
            else:
                del self.intake.lanes[name]
                self.client.metadata.unwant([name])

    def _waiting_for(self) -> list[TopicPartition]:
        return [state.where for state in self.accumulator.partitions.values() if state.queue or state.in_flight]

    # --- what the intake asks ---------------------------------------------------------------------------------------

    def batch_opened(self, batch: ProducerBatch) -> None:
        if self.accumulator.batch_opened(batch, self.front.now()):
            self.front.opened()

    def choose_sticky(self, lane: Lane) -> int:
        """The next partition for records without a key: of two chosen at random the one with less to send, which
        spreads by the speed of the brokers (KIP-794) without looking at every partition."""
        draw, count = self._rng.random, int(lane.partition_count)
        first = int(draw() * count)
        if not self.settings.partitioner_adaptive_partitioning_enable:
            return first
        second = int(draw() * count)
        if first == second or self._load(lane.topic, first) <= self._load(lane.topic, second):
            return first
        return second

    def _load(self, topic: str, partition: int) -> float:
        where = TopicPartition(topic, partition)
        if self.client.metadata.leader(where) < 0:
            return float("inf")
        state = self.accumulator.partitions.get(where)
        if state is None or not state.queue:
            return 0
        patience_ms = self.settings.partitioner_availability_timeout_ms
        if patience_ms and self.client.now - state.queue[0].opened_at > patience_ms / 1000:
            return float("inf")
        return len(state.queue)

    def turn(self) -> None:
        self.front.turn()

    def send_slowly(self, *record: Any) -> RecordHandle:
        return self.front.send_slowly(*record)

    def wait_for_batch(self, batch: ProducerBatch, timeout: float | None) -> None:
        self.front.wait_for_batch(batch, timeout)

    def await_batch(self, batch: ProducerBatch) -> Any:
        return self.front.await_batch(batch)

    def call_when_done(self, batch: ProducerBatch, handle: RecordHandle, callback: Any) -> None:
        self.front.call_when_done(batch, handle, callback)

    def as_bytes(self, what: str, value: Any) -> bytes:
        """A key or value that is not bytes but can be taken for such. Raises TypeError."""
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise TypeError(
            f"a record's {what} is bytes or None, not {type(value).__name__}; encode it, or set {what}_serializer"
        )

    def header_pairs(self, headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
        return header_pairs(headers)

    def refuse_size(self, topic: str, size: int) -> NoReturn:
        raise MessageTooLarge(
            f"a record for {topic} has up to {size} bytes, max.request.size and buffer.memory allow"
            f" {self.intake.record_limit}"
        )

    def refuse_topic(self, name: object) -> None:
        topic_name("topic", name)

    def as_timestamp(self, timestamp: object) -> int:
        return time_ms("timestamp", timestamp)

    def as_partition(self, partition: object) -> int:
        rule = "give the number of a partition, from 0 on, or None to have one chosen"
        return whole("partition", partition, 0, INT32_MAX, rule)

    def check_callback(self, on_delivery: object) -> None:
        callback("on_delivery", on_delivery)

    # --- for the fronts ---------------------------------------------------------------------------------------------

    def refuse_all(self) -> None:
        """No further records: the producer is being closed."""
        self.closed = self.intake.closed = True

    def close(self) -> None:
        """What is not acknowledged, and who waits for a transaction, hears ClientClosed."""
        self.refuse_all()
        self.sender.close()
        if self.transactions is not None:
            self.transactions.close(ClientClosed("the producer is closed"))

    def why_not(self) -> BarnabasError:
        """Why a closed intake takes nothing."""
        if self.closed or self.transactions is None:
            return ClientClosed("the producer is closed")
        return self.transactions.refusal("send")

    def prepared(self, topic: str, value: Any, key: Any, partition: int | None) -> tuple[Any, Any, int | None]:
        """Serialized, and with the partition that the caller's own partitioner chooses; the topic's lane is open."""
        settings = self.settings
        if key is not None and settings.key_serializer is not None:
            key = settings.key_serializer(key)
        if value is not None and settings.value_serializer is not None:
            value = settings.value_serializer(value)
        chooses = settings.partitioner_class
        if partition is None and callable(chooses):
            count = self.intake.lanes[topic].partition_count
            partition = chooses(topic, key, value, count)
            if not isinstance(partition, int) or not 0 <= partition < count:
                raise UsageError(
                    f"partitioner.class chose {partition!r} for {topic}, which has partitions 0 to {count - 1}"
                )
        return value, key, partition

    def metrics(self) -> dict[str, int]:
        """What this producer did and has to do, as plain numbers."""
        intake, sender = self.intake, self.sender
        return {
            "records_taken": int(intake.sent),
            "records_failed": sender.failed,
            "requests": sender.requests,
            "retries": sender.retries,
            "batches_waiting": len(self.accumulator.incomplete),
            "buffer_used_bytes": int(intake.used),
            "buffer_limit_bytes": int(intake.limit),
            "producer_id": -1 if self.identity is None else self.identity.producer_id,
            "producer_epoch": -1 if self.identity is None else self.identity.producer_epoch,
        }
