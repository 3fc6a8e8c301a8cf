"""kafka-python behind the common commands."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import Any

import kafka
import kafka.errors
from common import Json, Pump, record_json, serve, unpack, unpack_headers
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, OffsetSpec
from kafka.consumer.group import RangePartitionAssignor, RoundRobinPartitionAssignor
from kafka.structs import OffsetAndMetadata

WAIT_S = 40
ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Client:
    version = f"kafka-python {kafka.__version__}"

    def __init__(self, bootstrap: str) -> None:
        self._base = {"bootstrap_servers": bootstrap, "reconnect_backoff_max_ms": 500, "metrics_enabled": False}
        self._the_admin: KafkaAdminClient | None = None
        self._producers: dict[str, KafkaProducer] = {}
        self._transactional: dict[str, KafkaProducer] = {}
        self._consumers: dict[str, tuple[KafkaConsumer, Pump]] = {}

    @property
    def _admin(self) -> KafkaAdminClient:
        if self._the_admin is None:
            self._the_admin = KafkaAdminClient(bootstrap_servers=self._base["bootstrap_servers"])
        return self._the_admin

    # Producing

    def produce(self, topic: str, records: list[Json], **settings: Any) -> Json:
        return self._send(self._producer(settings), topic, records)

    @staticmethod
    def _send(producer: KafkaProducer, topic: str, records: list[Json]) -> Json:
        futures = [
            producer.send(
                topic,
                value=unpack(record["v"]),
                key=unpack(record["k"]),
                headers=unpack_headers(record),
                partition=record.get("p"),
                timestamp_ms=record.get("t"),
            )
            for record in records
        ]
        producer.flush(WAIT_S)
        return {"offsets": [(done.partition, done.offset) for done in (each.get(WAIT_S) for each in futures)]}

    def _producer(self, settings: Json) -> KafkaProducer:
        name = json.dumps(settings, sort_keys=True)
        if name not in self._producers:
            codec = settings.get("compression", "none")
            acks = settings.get("acks", "all")
            self._producers[name] = KafkaProducer(
                **self._base,
                linger_ms=5,
                compression_type=None if codec == "none" else codec,
                acks="all" if acks == "all" else int(acks),
                enable_idempotence=settings.get("idempotent", False),
                max_request_size=settings.get("max_request_bytes", 1_048_576),
                delivery_timeout_ms=WAIT_S * 1000,
                request_timeout_ms=WAIT_S * 500,
            )
        return self._producers[name]

    # Transactions

    def producer(self, id: str, transactional_id: str, timeout_ms: int = 60_000) -> Json:
        producer = KafkaProducer(
            **self._base, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, linger_ms=5
        )
        producer.init_transactions()
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
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        return {}

    def close_producer(self, id: str) -> Json:
        self._transactional.pop(id).close(timeout=WAIT_S)
        return {}

    def process(
        self, id: str, transactional_id: str, group: str, source: str, target: str, count: int, commit: bool
    ) -> Json:
        self.producer(id, transactional_id)
        producer = self._transactional[id]
        consumer = KafkaConsumer(
            source,
            **self._base,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        try:
            taken: list[Json] = []
            deadline = time.monotonic() + WAIT_S
            while len(taken) < count and time.monotonic() < deadline:
                taken += self._poll(consumer, 500)
            producer.begin_transaction()
            self._send(producer, target, [{key: each[key] for key in "pkvh"} for each in taken])
            positions = {place: OffsetAndMetadata(consumer.position(place), "", -1) for place in consumer.assignment()}
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
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
        consumer = KafkaConsumer(
            **self._base,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset=reset,
            partition_assignment_strategy=[ASSIGNORS[assignor]],
            group_instance_id=instance,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=min(250, session_timeout_ms // 4),
            fetch_max_wait_ms=fetch_wait_ms,
            fetch_min_bytes=fetch_min_bytes,
            max_partition_fetch_bytes=max_partition_bytes,
            isolation_level=isolation,
        )
        if assign is not None:
            consumer.assign([TopicPartition(topic, partition) for topic, partition, _ in assign])
            for topic, partition, at in assign:
                self._seek(consumer, TopicPartition(topic, partition), at)
        else:
            consumer.subscribe(topics)
        # A group join that outlasts one poll can leave kafka-python 3.0.12 without its assignment for good.
        poll_ms = 50 if assign is not None else 500
        pump = Pump(lambda: self._poll(consumer, poll_ms), consumer.close)
        self._consumers[id] = (consumer, pump)
        pump.start()
        return {}

    @staticmethod
    def _seek(consumer: KafkaConsumer, place: TopicPartition, at: Any) -> None:
        if isinstance(at, dict):
            found = consumer.offsets_for_times({place: at["timestamp"]})[place]
            consumer.seek(place, found.offset if found else consumer.end_offsets([place])[place])
        elif isinstance(at, int):
            consumer.seek(place, at)
        else:
            ask = consumer.beginning_offsets if at == "earliest" else consumer.end_offsets
            consumer.seek(place, ask([place])[place])

    @staticmethod
    def _poll(consumer: KafkaConsumer, poll_ms: int) -> list[Json]:
        return [
            record_json(each.topic, each.partition, each.offset, each.timestamp, each.key, each.value, each.headers)
            for records in consumer.poll(timeout_ms=poll_ms).values()
            for each in records
        ]

    def take(self, id: str, count: int, timeout_ms: int) -> Json:
        return {"records": self._consumers[id][1].take(count, timeout_ms)}

    def assignment(self, id: str) -> Json:
        consumer, _ = self._consumers[id]
        return {"partitions": [[each.topic, each.partition] for each in consumer.assignment()]}

    def pause(self, id: str, partitions: list[list[Any]]) -> Json:
        consumer, pump = self._consumers[id]
        pump.call(lambda: consumer.pause(*(TopicPartition(*each) for each in partitions)))
        return {}

    def resume(self, id: str, partitions: list[list[Any]]) -> Json:
        consumer, pump = self._consumers[id]
        pump.call(lambda: consumer.resume(*(TopicPartition(*each) for each in partitions)))
        return {}

    def commit(self, id: str, offsets: list[list[Any]]) -> Json:
        consumer, pump = self._consumers[id]
        pump.call(lambda: consumer.commit(_offsets(offsets)))
        return {}

    def close(self, id: str) -> Json:
        self._consumers.pop(id)[1].stop()
        return {}

    # Queries

    def metadata(self) -> Json:
        found = self._admin.describe_topics()
        brokers = self._admin.describe_cluster()["brokers"]
        return {"brokers": len(brokers), "topics": {each["name"]: len(each["partitions"]) for each in found}}

    def offsets(self, topic: str, partitions: list[int], at: Any) -> Json:
        names = {
            "earliest": OffsetSpec.EARLIEST,
            "latest": OffsetSpec.LATEST,
            "max_timestamp": OffsetSpec.MAX_TIMESTAMP,
        }
        places = [TopicPartition(topic, each) for each in partitions]
        found = self._admin.list_partition_offsets({place: names.get(at, at) for place in places})
        return {"offsets": [found[place].offset for place in places]}

    def committed(self, group: str, topic: str, partitions: list[int]) -> Json:
        places = [TopicPartition(topic, each) for each in partitions]
        found = self._admin.list_group_offsets({group: places})[group]
        return {"offsets": [found[place].offset if place in found else -1 for place in places]}

    # Administering

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str] | None = None) -> Json:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": configs or {}}
        self._admin.create_topics({topic: wanted})
        return {}

    def delete_topic(self, topic: str) -> Json:
        self._admin.delete_topics([topic])
        return {}

    def create_partitions(self, topic: str, count: int) -> Json:
        self._admin.create_partitions({topic: count})
        return {}

    def delete_records(self, topic: str, partition: int, before: int) -> Json:
        place = TopicPartition(topic, partition)
        return {"low_watermark": self._admin.delete_records({place: before})[place]["low_watermark"]}

    def describe_config(self, topic: str) -> Json:
        found = self._admin.describe_configs([ConfigResource("topic", topic)], config_filter="all")["topic"][topic]
        return {"configs": {name: entry["value"] for name, entry in found.items()}}

    def alter_config(self, topic: str, set: dict[str, str], delete: list[str]) -> Json:
        changes = {name: (AlterConfigOp.SET, value) for name, value in set.items()}
        changes |= dict.fromkeys(delete, (AlterConfigOp.DELETE, None))
        outcome = self._admin.alter_configs([ConfigResource("topic", topic, changes)], incremental=True)
        _raise_named(outcome["topic"][topic])
        return {}

    def groups(self) -> Json:
        return {"groups": [each["group_id"] for each in self._admin.list_groups()]}

    def describe_group(self, group: str) -> Json:
        found = self._admin.describe_groups([group])[group]
        members = []
        for member in found["members"]:
            assigned = (member["member_assignment"] or {}).get("assigned_partitions", [])
            members.append(sorted([each["topic"], number] for each in assigned for number in each["partitions"]))
        return {"state": found["group_state"], "assignor": found["protocol_data"], "members": sorted(members)}

    def delete_group(self, group: str) -> Json:
        _raise_named(self._admin.delete_groups([group])[group])
        return {}

    def delete_offsets(self, group: str, topic: str, partitions: list[int]) -> Json:
        _raise_first(
            self._admin.delete_group_offsets(group, [TopicPartition(topic, each) for each in partitions]).values()
        )
        return {}

    def alter_offsets(self, group: str, offsets: list[list[Any]]) -> Json:
        _raise_first(self._admin.alter_group_offsets(group, _offsets(offsets)).values())
        return {}


def _offsets(offsets: list[list[Any]]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(topic, number): OffsetAndMetadata(offset, "", -1) for topic, number, offset in offsets}


def _raise_first(outcomes: Any) -> None:
    for outcome in outcomes:
        if isinstance(outcome, type) and getattr(outcome, "errno", 0):
            raise outcome()
        if isinstance(outcome, BaseException) and getattr(outcome, "errno", 0):
            raise outcome


def _raise_named(outcome: str) -> None:
    """For results that are told as text: `OK`, `NoError`, or an error's name, possibly after its code."""
    name = re.sub(r"^\[Error \d+\] ", "", str(outcome)).split(":")[0]
    error = getattr(kafka.errors, name, None)
    if isinstance(error, type) and getattr(error, "errno", 0):
        raise error(outcome)


def error_code(error: BaseException) -> int | None:
    return getattr(error, "errno", None)


if __name__ == "__main__":
    serve(Client(json.loads(sys.argv[1])["bootstrap"]), error_code)
