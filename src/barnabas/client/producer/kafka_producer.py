"""The producer behind both fronts: appender, accumulator, sender and transactions on a network client."""

import random
from typing import Any

from librt.threading import Lock

from barnabas.client.arguments import topic_name
from barnabas.client.producer.plugins import Interceptors, RecordSerializer
from barnabas.client.producer.producer_batch import ProducerDriver
from barnabas.client.producer.producer_id import NO_PRODUCER_ID_AND_EPOCH, ProducerIds
from barnabas.client.producer.record_accumulator import RecordAccumulator
from barnabas.client.producer.record_appender import TopicInfo
from barnabas.client.producer.sender import Sender
from barnabas.client.producer.transactions.transaction_manager import TransactionManager
from barnabas.client.settings import ProducerSettings
from barnabas.connection.cluster import TopicView
from barnabas.connection.metadata import NO_ID_BYTES
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise
from barnabas.errors import BarnabasError, ClientClosed

__all__ = ["KafkaProducer"]


class KafkaProducer:
    """A producer that never waits. The caller holds the driver's lock."""

    def __init__(
        self,
        client: NetworkClient,
        settings: ProducerSettings,
        driver: ProducerDriver,
        lock: Lock,
        rng: random.Random | None = None,
    ) -> None:
        self.client = client
        self.settings = settings
        self.driver = driver
        self._rng = rng or random.Random()
        self.interceptors = Interceptors(settings.interceptor_classes) if settings.interceptor_classes else None
        self.serializer = RecordSerializer(settings)
        self.accumulator = RecordAccumulator(client, settings, driver, self.serializer, lock, self._rng)
        self.appender = self.accumulator.appender
        self.producer_ids = ProducerIds(client) if settings.enable_idempotence else None
        self.transactions: TransactionManager | None = None
        if settings.transactional_id is not None:
            assert self.producer_ids is not None, "settings with a transactional id are idempotent"
            self.transactions = TransactionManager(
                client,
                self.accumulator,
                self.producer_ids,
                transactional_id=settings.transactional_id,
                timeout_ms=settings.transaction_timeout_ms,
                two_phase=settings.transaction_two_phase_commit_enable,
            )
        self.sender = Sender(client, self.accumulator, settings, self.producer_ids, self.transactions)
        self._max_idle_s = settings.metadata_max_idle_ms / 1000
        self._forget_idle_at = client.now + self._max_idle_s
        client.components.append(self)
        client.on_metadata.append(self._follow_metadata)

    # --- the network client's component -------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        self.accumulator.queue_ready(now)
        self.sender.expire(now)
        self.sender.send_ready(now)
        if self.transactions is not None:
            self.transactions.advance()
        if now >= self._forget_idle_at:
            self._forget_idle_topics(now)

    def next_deadline(self) -> float:
        return min(self.accumulator.next_deadline(), self.sender.next_deadline(), self._forget_idle_at)

    # --- topics -----------------------------------------------------------------------------------------------------

    def open_topic(self, name: Any, timeout_s: float) -> Promise[TopicView]:
        """Requests the metadata of a topic, so that its records can be appended. Raises UsageError for an invalid
        name."""
        promise = self.client.topic(topic_name("topic", name), timeout_s)
        promise.on_done(lambda settled: self._add_topic(settled))
        return promise

    def _add_topic(self, promise: Promise[TopicView]) -> None:
        if promise.error is None:
            topic = promise.result()
            if topic.name not in self.appender.topics:
                count = len(topic.partitions)
                topic_id, sticky = self.client.metadata.topic_id_bytes(topic.name), self._rng.randrange(count)
                self.appender.topics[topic.name] = TopicInfo(topic.name, topic_id, count, sticky)

    def _follow_metadata(self) -> None:
        """Adds new partitions of known topics, and takes away those that a topic has lost when it was created again.
        Under the same id a response with fewer partitions is an old one."""
        metadata = self.client.metadata
        for name, info in self.appender.topics.items():
            topic = metadata.topic(name)
            if topic is None:
                continue
            count, topic_id = len(topic.partitions), metadata.topic_id_bytes(name)
            if count > info.partition_count:
                info.open_batches.extend([None] * (count - len(info.open_batches)))
                info.partition_count = count
            elif topic_id != info.topic_id and NO_ID_BYTES not in (topic_id, info.topic_id):
                self._take_partitions(info, count)
            if topic_id != NO_ID_BYTES:
                info.topic_id = topic_id

    def _take_partitions(self, info: TopicInfo, count: int) -> None:
        """Leaves so many partitions of a topic. The sender fails the batches of the others."""
        for batch in info.open_batches[count:]:
            if batch is not None:
                self.appender.close_batch(info, batch)
        info.partition_count = count
        if info.sticky_partition >= count:
            info.sticky_partition, info.sticky_bytes = self._rng.randrange(count), 0

    def _forget_idle_topics(self, now: float) -> None:
        """Drops the topics to which no record was sent for metadata.max.idle.ms."""
        self._forget_idle_at = now + self._max_idle_s
        partitions = self.accumulator.partitions
        busy = {topic for (topic, _), batches in partitions.items() if batches.queue or batches.in_flight}
        for name, info in list(self.appender.topics.items()):
            if info.is_used or any(info.open_batches) or name in busy:
                info.is_used = False
            else:
                del self.appender.topics[name]
                self.client.metadata.remove_topics([name])

    # --- for the fronts ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes at once: batches that are not acknowledged and transactional calls fail with ClientClosed."""
        self.accumulator.close()
        error = ClientClosed("the producer was closed before the record was acknowledged")
        self.sender.purge(error, in_flight=True)
        if self.transactions is not None:
            self.transactions.close(ClientClosed("the producer is closed"))

    def why_closed(self) -> BarnabasError:
        """Returns the error of a `send` while the appender takes no records."""
        if self.accumulator.closed or self.transactions is None:
            return ClientClosed("the producer is closed")
        return self.transactions.refusal("send")

    def metrics(self) -> dict[str, int]:
        appender, sender = self.appender, self.sender
        return {
            "records_taken": int(appender.appended),
            "records_failed": self.accumulator.failed,
            "requests": sender.requests,
            "retries": sender.retries,
            "batches_waiting": len(self.accumulator.incomplete),
            "buffer_used_bytes": int(appender.used_bytes),
            "buffer_limit_bytes": int(appender.buffer_memory),
            **(NO_PRODUCER_ID_AND_EPOCH if self.producer_ids is None else self.producer_ids.current)._asdict(),
        }
