"""confluent-kafka (librdkafka) behind the common commands."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import confluent_kafka
from common import Json, Pump, record_json, serve, unpack, unpack_headers
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

WAIT_S = 40


class Client:
    version = f"confluent-kafka {confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"

    def __init__(self, bootstrap: str) -> None:
        self._base = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 5000,
        }
        self._admin = AdminClient(dict(self._base))
        self._producers: dict[str, Producer] = {}
        self._transactional: dict[str, Producer] = {}
        self._consumers: dict[str, tuple[Consumer, Pump]] = {}

    # Producing

    def produce(self, topic: str, records: list[Json], **settings: Any) -> Json:
        return self._send(self._producer(settings), topic, records)

    @staticmethod
    def _send(producer: Producer, topic: str, records: list[Json]) -> Json:
        places: list[tuple[int, int]] = [(-1, -1)] * len(records)
        failures: list[KafkaException] = []
        for index, record in enumerate(records):

            def delivered(error: Any, message: Any, index: int = index) -> None:
                if error is not None:
                    failures.append(KafkaException(error))
                else:
                    places[index] = (message.partition(), message.offset())

            place = {key: record[short] for key, short in (("partition", "p"), ("timestamp", "t")) if short in record}
            producer.produce(
                topic,
                value=unpack(record["v"]),
                key=unpack(record["k"]),
                headers=unpack_headers(record),
                on_delivery=delivered,
                **place,
            )
        try:
            left = producer.flush(WAIT_S)
        except SystemError as error:  # 2.16.1 raises the fatal error in the middle of its own callbacks
            raise error.__cause__ or error from None
        if left:
            raise TimeoutError("flush left records behind")
        if failures:
            raise failures[0]
        return {"offsets": places}

    def _producer(self, settings: Json) -> Producer:
        name = json.dumps(settings, sort_keys=True)
        if name not in self._producers:
            self._producers[name] = Producer(
                {
                    **self._base,
                    "linger.ms": 5,
                    "compression.type": settings.get("compression", "none"),
                    "acks": settings.get("acks", "all"),
                    "enable.idempotence": settings.get("idempotent", False),
                    "message.max.bytes": settings.get("max_request_bytes", 1_000_000),
                    "message.timeout.ms": WAIT_S * 1000,
                    "socket.keepalive.enable": True,
                }
            )
        return self._producers[name]

    # Transactions

    def producer(self, id: str, transactional_id: str, timeout_ms: int = 60_000) -> Json:
        producer = Producer(
            {
                **self._base,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": min(timeout_ms, WAIT_S * 1000),
                "linger.ms": 5,
            }
        )
        producer.init_transactions(WAIT_S)
        self._transactional[id] = producer
        return {}

    def begin(self, id: str) -> Json:
        self._transactional[id].begin_transaction()
        return {}

    def send(self, id: str, topic: str, records: list[Json]) -> Json:
        return self._send(self._transactional[id], topic, records)

    def end(self, id: str, commit: bool) -> Json:
        producer = self._transactional[id]
        if commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
        return {}

    def close_producer(self, id: str) -> Json:
        self._transactional.pop(id).close(WAIT_S)
        return {}

    def process(
        self, id: str, transactional_id: str, group: str, source: str, target: str, count: int, commit: bool
    ) -> Json:
        self.producer(id, transactional_id)
        producer = self._transactional[id]
        consumer = Consumer(
            {
                **self._base,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        try:
            consumer.subscribe([source])
            taken: list[Json] = []
            deadline = time.monotonic() + WAIT_S
            while len(taken) < count and time.monotonic() < deadline:
                taken += self._poll(consumer)
            producer.begin_transaction()
            self._send(producer, target, [{key: each[key] for key in "pkvh"} for each in taken])
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
            self.end(id, commit)
        finally:
            consumer.close()
        return {"records": len(taken)}

    # Consuming

    def open(
        self,
        id: str,
        assign: list[list[Any]] | None = None,
        topics: list[str] | None = None,
        group: str | None = None,
        reset: str = "earliest",
        assignor: str = "range",
        instance: str | None = None,
        session_timeout_ms: int = 30_000,
        fetch_wait_ms: int = 500,
        fetch_min_bytes: int = 1,
        max_partition_bytes: int = 10_000_000,
        isolation: str = "read_committed",
    ) -> Json:
        consumer = Consumer(
            {
                **self._base,
                "group.id": group or f"none-{id}",
                "enable.auto.commit": False,
                "auto.offset.reset": reset,
                "partition.assignment.strategy": assignor,
                "session.timeout.ms": session_timeout_ms,
                "heartbeat.interval.ms": min(250, session_timeout_ms // 4),
                "fetch.wait.max.ms": fetch_wait_ms,
                "fetch.min.bytes": fetch_min_bytes,
                "fetch.message.max.bytes": max_partition_bytes,
                "fetch.queue.backoff.ms": 50,
                "isolation.level": isolation,
                **({"group.instance.id": instance} if instance else {}),
            }
        )
        pump = Pump(lambda: self._poll(consumer), consumer.close)
        if assign is not None:
            consumer.assign([self._position(consumer, *each) for each in assign])
        else:
            consumer.subscribe(topics)
        self._consumers[id] = (consumer, pump)
        pump.start()
        return {}

    @staticmethod
    def _position(consumer: Consumer, topic: str, partition: int, at: Any) -> TopicPartition:
        place = TopicPartition(topic, partition)
        if isinstance(at, dict):
            return consumer.offsets_for_times([TopicPartition(topic, partition, at["timestamp"])], timeout=WAIT_S)[0]
        if isinstance(at, int):
            place.offset = at
        else:
            low, high = consumer.get_watermark_offsets(place, timeout=WAIT_S)
            place.offset = low if at == "earliest" else high
        return place

    @staticmethod
    def _poll(consumer: Consumer) -> list[Json]:
        found = []
        message = consumer.poll(0.05)
        while message is not None:
            if message.error():
                raise KafkaException(message.error())
            found.append(
                record_json(
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    message.headers(),
                )
            )
            message = consumer.poll(0)
        return found

    def take(self, id: str, count: int, timeout_ms: int) -> Json:
        return {"records": self._consumers[id][1].take(count, timeout_ms)}

    def assignment(self, id: str) -> Json:
        consumer, pump = self._consumers[id]
        return {"partitions": [[each.topic, each.partition] for each in pump.call(consumer.assignment)]}

    def pause(self, id: str, partitions: list[list[Any]]) -> Json:
        consumer, pump = self._consumers[id]
        pump.call(lambda: consumer.pause([TopicPartition(*each) for each in partitions]))
        return {}

    def resume(self, id: str, partitions: list[list[Any]]) -> Json:
        consumer, pump = self._consumers[id]
        pump.call(lambda: consumer.resume([TopicPartition(*each) for each in partitions]))
        return {}

    def commit(self, id: str, offsets: list[list[Any]]) -> Json:
        consumer, pump = self._consumers[id]
        wanted = [TopicPartition(*each) for each in offsets]
        pump.call(lambda: consumer.commit(offsets=wanted, asynchronous=False))
        return {}

    def close(self, id: str) -> Json:
        self._consumers.pop(id)[1].stop()
        return {}

    # Queries

    def metadata(self) -> Json:
        found = self._admin.list_topics(timeout=WAIT_S)
        return {
            "brokers": len(found.brokers),
            "topics": {name: len(topic.partitions) for name, topic in found.topics.items()},
        }

    def offsets(self, topic: str, partitions: list[int], at: Any) -> Json:
        specs = {
            "earliest": OffsetSpec.earliest,
            "latest": OffsetSpec.latest,
            "max_timestamp": OffsetSpec.max_timestamp,
        }
        spec = specs[at]() if at in specs else OffsetSpec.for_timestamp(at)
        asked = self._admin.list_offsets({TopicPartition(topic, each): spec for each in partitions})
        return {"offsets": [asked[TopicPartition(topic, each)].result(WAIT_S).offset for each in partitions]}

    def committed(self, group: str, topic: str, partitions: list[int]) -> Json:
        """By a consumer: the admin client of 2.16.1 may crash or keep silent over a broker that was restarted."""
        consumer = Consumer({**self._base, "group.id": group})
        try:
            found = consumer.committed([TopicPartition(topic, each) for each in partitions], timeout=WAIT_S / 2)
        finally:
            consumer.close()
        return {"offsets": [max(each.offset, -1) for each in found]}

    # Administering

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str] | None = None) -> Json:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=configs or {})
        self._admin.create_topics([new])[topic].result(WAIT_S)
        return {}

    def delete_topic(self, topic: str) -> Json:
        self._admin.delete_topics([topic])[topic].result(WAIT_S)
        return {}

    def create_partitions(self, topic: str, count: int) -> Json:
        self._admin.create_partitions([NewPartitions(topic, count)])[topic].result(WAIT_S)
        return {}

    def delete_records(self, topic: str, partition: int, before: int) -> Json:
        place = TopicPartition(topic, partition, before)
        return {"low_watermark": self._admin.delete_records([place])[place].result(WAIT_S).low_watermark}

    def describe_config(self, topic: str) -> Json:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self._admin.describe_configs([resource])[resource].result(WAIT_S)
        return {"configs": {name: entry.value for name, entry in found.items()}}

    def alter_config(self, topic: str, set: dict[str, str], delete: list[str]) -> Json:
        entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in set.items()]
        entries += [ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in delete]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
        return {}

    def groups(self) -> Json:
        return {"groups": [each.group_id for each in self._admin.list_consumer_groups().result(WAIT_S).valid]}

    def describe_group(self, group: str) -> Json:
        found = self._admin.describe_consumer_groups([group])[group].result(WAIT_S)
        return {
            "state": found.state.name.title(),
            "assignor": found.partition_assignor,
            "members": sorted(
                sorted([each.topic, each.partition] for each in member.assignment.topic_partitions)
                for member in found.members
            ),
        }

    def delete_group(self, group: str) -> Json:
        self._admin.delete_consumer_groups([group])[group].result(WAIT_S)
        return {}

    def alter_offsets(self, group: str, offsets: list[list[Any]]) -> Json:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*each) for each in offsets])
        found = self._admin.alter_consumer_group_offsets([wanted])[group].result(WAIT_S)
        for each in found.topic_partitions:
            if each.error:
                raise KafkaException(each.error)
        return {}


def error_code(error: BaseException) -> int | None:
    return error.args[0].code() if isinstance(error, KafkaException) else None


if __name__ == "__main__":
    serve(Client(json.loads(sys.argv[1])["bootstrap"]), error_code)
