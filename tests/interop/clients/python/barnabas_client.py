"""`barnabas.Producer`, `barnabas.Consumer` and `barnabas.Admin` behind the common commands."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

from common import Json, Pump, record_json, serve, unpack, unpack_headers

import barnabas
from barnabas import TopicPartition
from barnabas.client.admin.topics import NewTopic
from barnabas.client.errors import ItemsFailed, KeysMove

WAIT_S = 40.0
WAIT_MS = int(WAIT_S * 1000)


class Client:
    version = f"barnabas {barnabas.__version__}"

    def __init__(self, bootstrap: str) -> None:
        self._base = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500}
        self._admin = barnabas.Admin(self._base, default_api_timeout_ms=WAIT_MS)
        self._producers: dict[str, barnabas.Producer] = {}
        self._transactional: dict[str, barnabas.Producer] = {}
        self._consumers: dict[str, tuple[barnabas.Consumer, Pump]] = {}

    # Producing

    def produce(self, topic: str, records: list[Json], **settings: Any) -> Json:
        name = json.dumps(settings, sort_keys=True)
        if name not in self._producers:
            self._producers[name] = self._producer(settings)
        return {"offsets": _sent(self._producers[name], topic, records)}

    def _producer(self, settings: Json) -> barnabas.Producer:
        largest = settings.get("max_request_bytes", 1_000_000)
        return barnabas.Producer(
            self._base,
            acks=settings.get("acks", "all"),
            compression_type=settings.get("compression", "none"),
            enable_idempotence=settings.get("idempotent", False),
            max_request_size=largest,
            batch_size=min(largest, 100_000),
            delivery_timeout_ms=WAIT_MS,
            request_timeout_ms=WAIT_MS // 2,
            max_block_ms=WAIT_MS,
        )

    # Transactions

    def producer(self, id: str, transactional_id: str, timeout_ms: int = 60_000) -> Json:
        producer = barnabas.Producer(
            self._base, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, max_block_ms=WAIT_MS
        )
        producer.init_transactions()
        self._transactional[id] = producer
        return {}

    def begin(self, id: str) -> Json:
        self._transactional[id].begin_transaction()
        return {}

    def send(self, id: str, topic: str, records: list[Json]) -> Json:
        return {"offsets": _sent(self._transactional[id], topic, records)}

    def end(self, id: str, commit: bool) -> Json:
        producer = self._transactional[id]
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        return {}

    def close_producer(self, id: str) -> Json:
        self._transactional.pop(id).close(WAIT_S)
        return {}

    def process(
        self, id: str, transactional_id: str, group: str, source: str, target: str, count: int, commit: bool
    ) -> Json:
        self.producer(id, transactional_id)
        self.open(id, topics=[source], group=group)
        consumer, pump = self._consumers[id]
        try:
            taken = pump.take(count, WAIT_MS)
            self.begin(id)
            self.send(id, target, [{key: each[key] for key in "pkvh"} for each in taken])
            positions, metadata = pump.call(
                lambda: (
                    {place: consumer.position(place) for place in consumer.assignment()},
                    consumer.group_metadata(),
                )
            )
            self._transactional[id].send_offsets_to_transaction(positions, metadata)
            self.end(id, commit)
        finally:
            self.close(id)
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
        consumer = barnabas.Consumer(
            self._base,
            group_id=group,
            group_instance_id=instance,
            enable_auto_commit=False if group else None,
            auto_offset_reset=reset,
            isolation_level=isolation,
            partition_assignment_strategy=assignor,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=min(250, session_timeout_ms // 4),
            fetch_max_wait_ms=fetch_wait_ms,
            fetch_min_bytes=fetch_min_bytes,
            max_partition_fetch_bytes=max_partition_bytes,
        )
        if assign is not None:
            consumer.assign([(topic, number) for topic, number, _ in assign])
            for topic, number, at in assign:
                _seek(consumer, TopicPartition(topic, number), at)
        else:
            consumer.subscribe(topics or [])
        pump = Pump(lambda: [_json(record) for record in consumer.poll(0.05)], consumer.close)
        self._consumers[id] = (consumer, pump)
        pump.start()
        return {}

    def take(self, id: str, count: int, timeout_ms: int) -> Json:
        return {"records": self._consumers[id][1].take(count, timeout_ms)}

    def assignment(self, id: str) -> Json:
        return {"partitions": [list(place) for place in self._consumers[id][0].assignment()]}

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
        pump.call(lambda: consumer.commit(_offsets(offsets)))
        return {}

    def close(self, id: str) -> Json:
        self._consumers.pop(id)[1].stop()
        return {}

    # Queries

    def metadata(self) -> Json:
        topics = {each.name: len(each.partitions) for each in self._admin.list_topics(internal=True)}
        return {"brokers": len(self._admin.describe_cluster().brokers), "topics": topics}

    def offsets(self, topic: str, partitions: list[int], at: Any) -> Json:
        found = self._admin.list_offsets({(topic, each): at for each in partitions})
        return {"offsets": [found[TopicPartition(topic, each)].offset for each in partitions]}

    def committed(self, group: str, topic: str, partitions: list[int]) -> Json:
        places = [TopicPartition(topic, each) for each in partitions]
        found = self._admin.list_group_offsets(group, places)
        return {"offsets": [found[place].offset if place in found else -1 for place in places]}

    # Administering

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str] | None = None) -> Json:
        self._admin.create_topics(NewTopic(topic, partitions, 1, configs or {}))
        return {}

    def delete_topic(self, topic: str) -> Json:
        self._admin.delete_topics(topic)
        return {}

    def create_partitions(self, topic: str, count: int) -> Json:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KeysMove)
            self._admin.create_partitions({topic: count})
        return {}

    def delete_records(self, topic: str, partition: int, before: int) -> Json:
        place = TopicPartition(topic, partition)
        return {"low_watermark": self._admin.delete_records({place: before})[place]}

    def describe_config(self, topic: str) -> Json:
        [found] = self._admin.describe_configs([("topic", topic)]).values()
        return {"configs": {name: entry.value for name, entry in found.items()}}

    def alter_config(self, topic: str, set: dict[str, str], delete: list[str]) -> Json:
        self._admin.alter_configs({("topic", topic): {**set, **dict.fromkeys(delete)}})
        return {}

    def groups(self) -> Json:
        return {"groups": [each.group_id for each in self._admin.list_groups()]}

    def describe_group(self, group: str) -> Json:
        found = self._admin.describe_groups(group)[group]
        members = [[list(place) for place in each.assignment] for each in found.members]
        return {"state": found.state, "assignor": found.protocol, "members": members}

    def delete_group(self, group: str) -> Json:
        self._admin.delete_groups(group)
        return {}

    def delete_offsets(self, group: str, topic: str, partitions: list[int]) -> Json:
        self._admin.delete_group_offsets(group, [(topic, each) for each in partitions])
        return {}

    def alter_offsets(self, group: str, offsets: list[list[Any]]) -> Json:
        self._admin.alter_group_offsets(group, {(topic, number): at for topic, number, at in offsets})
        return {}


def _sent(producer: barnabas.Producer, topic: str, records: list[Json]) -> list[tuple[int, int]]:
    handles = [
        producer.send(
            topic,
            unpack(record["v"]),
            unpack(record["k"]),
            headers=unpack_headers(record),
            timestamp=record.get("t"),
            partition=record.get("p"),
        )
        for record in records
    ]
    return [(placed.partition, placed.offset) for placed in (handle.result(WAIT_S) for handle in handles)]


def _seek(consumer: barnabas.Consumer, place: TopicPartition, at: Any) -> None:
    if isinstance(at, int):
        consumer.seek(place, at)
    elif isinstance(at, dict):
        found = consumer.offsets_for_times({place: at["timestamp"]}, WAIT_S)[place]
        assert found is not None, f"{place} has nothing so new"
        consumer.seek(place, found.offset)
    elif at == "earliest":
        consumer.seek_to_beginning([place])
    else:
        consumer.seek_to_end([place])
        consumer.position(place, WAIT_S)  # the end as it is now


def _json(record: Any) -> Json:
    return record_json(
        record.topic, record.partition, record.offset, record.timestamp, record.key, record.value, record.headers
    )


def _offsets(offsets: list[list[Any]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, number): at for topic, number, at in offsets}


def _code(error: BaseException) -> int | None:
    """Kafka's; of a call about several things that of the first one which failed."""
    if isinstance(error, ItemsFailed):
        error = next(iter(error.failed.values()))
    return getattr(error, "code", None)


if __name__ == "__main__":
    serve(Client(json.loads(sys.argv[1])["bootstrap"]), _code)
