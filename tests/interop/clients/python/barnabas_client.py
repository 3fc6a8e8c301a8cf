"""Barnabas' own synchronous client behind the common commands."""

from __future__ import annotations

import json
import sys
from typing import Any

from common import Json, Pump, record_json, serve, unpack, unpack_headers

import barnabas
from barnabas.client import Admin, Cluster, GroupMember, SimpleConsumer, SimpleProducer
from barnabas.client.admin import NewTopic
from barnabas.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from barnabas.client.simple_producer import Delivery
from barnabas.types import TopicPartition

WAIT_S = 20.0
TIMES = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}


class Producing:
    """A producer and where its records of the present command went."""

    def __init__(self, bootstrap: str, settings: Json) -> None:
        self.deliveries: list[Delivery] = []
        acks = settings.get("acks", "all")
        self.producer = SimpleProducer(
            Cluster(bootstrap),
            acks=-1 if acks == "all" else int(acks),
            compression=settings.get("compression", "none"),
            idempotent=settings.get("idempotent", False),
            batch_bytes=settings.get("max_request_bytes", 1_000_000),
            delivery_timeout_s=WAIT_S,
            create_topics=True,
            on_delivery=self.deliveries.append,
        )

    def send(self, topic: str, records: list[Json]) -> list[tuple[int, int]]:
        self.deliveries.clear()
        places = [
            self.producer.send(
                topic,
                unpack(record["v"]),
                key=unpack(record["k"]),
                headers=tuple(unpack_headers(record)),
                timestamp=record.get("t"),
                partition=record.get("p"),
            )
            for record in records
        ]
        self.producer.flush(WAIT_S)
        offsets: dict[TopicPartition, list[int]] = {}
        for each in self.deliveries:
            if each.error is not None:
                raise each.error
            first = each.base_offset
            numbers = range(first, first + each.record_count) if first >= 0 else [-1] * each.record_count
            offsets.setdefault(each.partition, []).extend(numbers)
        left = {place: iter(sorted(numbers)) for place, numbers in offsets.items()}
        return [(place.partition, next(left[place])) for place in places]


class Client:
    version = f"barnabas {barnabas.__version__}"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = Admin.connect(bootstrap, timeout_s=WAIT_S)
        self._producers: dict[str, Producing] = {}
        self._consumers: dict[str, tuple[SimpleConsumer, GroupMember | None, Pump]] = {}
        self._paused: dict[str, dict[TopicPartition, int]] = {}

    # Producing

    def produce(self, topic: str, records: list[Json], **settings: Any) -> Json:
        name = json.dumps(settings, sort_keys=True)
        if name not in self._producers:
            self._producers[name] = Producing(self._bootstrap, settings)
        return {"offsets": self._producers[name].send(topic, records)}

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
        session_timeout_ms: int = 10_000,
        fetch_wait_ms: int = 500,
        fetch_min_bytes: int = 1,
        max_partition_bytes: int = 10_000_000,
    ) -> Json:
        cluster = Cluster(self._bootstrap)
        finder = Admin(Cluster(self._bootstrap))

        def find(place: TopicPartition, at: int) -> int:
            return finder.list_offsets({place: at})[place].offset

        consumer = SimpleConsumer(
            cluster,
            max_wait_ms=fetch_wait_ms,
            min_bytes=fetch_min_bytes,
            partition_max_bytes=max_partition_bytes,
            on_out_of_range=lambda place, _: find(place, TIMES[reset]),
        )
        member = None
        if assign is not None:
            consumer.assign(
                {TopicPartition(topic, number): self._start(topic, number, at) for topic, number, at in assign}
            )
        else:
            member = GroupMember(
                Cluster(self._bootstrap),
                str(group),
                topics or [],
                group_instance_id=instance,
                session_timeout_ms=session_timeout_ms,
                heartbeat_interval_ms=min(250, session_timeout_ms // 4),
            )

        def poll() -> list[Json]:
            if member is not None and (places := member.keep()) is not None:
                known = member.committed()
                consumer.assign(
                    {place: known[place] if place in known else find(place, TIMES[reset]) for place in places}
                )
            return _records(consumer)

        def close() -> None:
            if member is not None:
                member.leave()
            consumer.close()

        pump = Pump(poll, close)
        self._consumers[id] = (consumer, member, pump)
        self._paused[id] = {}
        pump.start()
        return {}

    def _start(self, topic: str, partition: int, at: Any) -> int:
        if isinstance(at, int):
            return at
        place = TopicPartition(topic, partition)
        when = at["timestamp"] if isinstance(at, dict) else TIMES[at]
        return self._admin.list_offsets({place: when})[place].offset

    def take(self, id: str, count: int, timeout_ms: int) -> Json:
        return {"records": self._consumers[id][2].take(count, timeout_ms)}

    def assignment(self, id: str) -> Json:
        member = self._consumers[id][1]
        return {"partitions": [list(place) for place in (member.assignment if member else ())]}

    def pause(self, id: str, partitions: list[list[Any]]) -> Json:
        """The consumer has no pausing: what is not assigned is not read."""
        consumer, _, pump = self._consumers[id]

        def take_away() -> None:
            positions = dict(consumer.positions)
            for each in partitions:
                self._paused[id][TopicPartition(*each)] = positions.pop(TopicPartition(*each))
            consumer.assign(positions)

        pump.call(take_away)
        return {}

    def resume(self, id: str, partitions: list[list[Any]]) -> Json:
        consumer, _, pump = self._consumers[id]
        back = {TopicPartition(*each): self._paused[id].pop(TopicPartition(*each)) for each in partitions}
        pump.call(lambda: consumer.assign({**consumer.positions, **back}))
        return {}

    def commit(self, id: str, offsets: list[list[Any]]) -> Json:
        _, member, pump = self._consumers[id]
        assert member is not None
        if not pump.call(lambda: member.commit(_offsets(offsets))):
            raise RuntimeError("the group has moved on")
        return {}

    def close(self, id: str) -> Json:
        self._consumers.pop(id)[2].stop()
        return {}

    # Asking

    def metadata(self) -> Json:
        topics = {each.name: len(each.partitions) for each in self._admin.list_topics(internal=True)}
        return {"brokers": len(self._admin.describe_cluster().brokers), "topics": topics}

    def offsets(self, topic: str, partitions: list[int], at: Any) -> Json:
        found = self._admin.list_offsets({TopicPartition(topic, each): TIMES.get(at, at) for each in partitions})
        return {"offsets": [found[TopicPartition(topic, each)].offset for each in partitions]}

    def committed(self, group: str, topic: str, partitions: list[int]) -> Json:
        places = [TopicPartition(topic, each) for each in partitions]
        found = self._admin.committed_offsets(group, places)
        return {"offsets": [found[place].offset if place in found else -1 for place in places]}

    # Administering

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str] | None = None) -> Json:
        _raise_first(self._admin.create_topics([NewTopic(topic, partitions, 1, configs or {})]))
        return {}

    def delete_topic(self, topic: str) -> Json:
        _raise_first(self._admin.delete_topics([topic]))
        return {}

    def create_partitions(self, topic: str, count: int) -> Json:
        _raise_first(self._admin.create_partitions({topic: count}))
        return {}

    def delete_records(self, topic: str, partition: int, before: int) -> Json:
        place = TopicPartition(topic, partition)
        return {"low_watermark": self._admin.delete_records({place: before})[place]}

    def describe_config(self, topic: str) -> Json:
        return {"configs": {each.name: each.value for each in self._admin.describe_configs("topic", topic)}}

    def alter_config(self, topic: str, set: dict[str, str], delete: list[str]) -> Json:
        self._admin.alter_configs("topic", topic, set_values=set, delete=delete)
        return {}

    def groups(self) -> Json:
        return {"groups": [each.group_id for each in self._admin.list_groups()]}

    def describe_group(self, group: str) -> Json:
        found = self._admin.describe_group(group)
        members = [[list(place) for place in each.assignment] for each in found.members]
        return {"state": found.state, "assignor": found.protocol, "members": members}

    def delete_group(self, group: str) -> Json:
        _raise_first(self._admin.delete_groups([group]))
        return {}

    def delete_offsets(self, group: str, topic: str, partitions: list[int]) -> Json:
        _raise_first(self._admin.delete_offsets(group, [TopicPartition(topic, each) for each in partitions]))
        return {}

    def alter_offsets(self, group: str, offsets: list[list[Any]]) -> Json:
        _raise_first(self._admin.alter_offsets(group, _offsets(offsets)))
        return {}


def _records(consumer: SimpleConsumer) -> list[Json]:
    return [
        record_json(
            fetched.partition.topic,
            fetched.partition.partition,
            each.offset,
            each.timestamp,
            each.key,
            each.value,
            each.headers,
        )
        for fetched in consumer.poll(0.05)
        for each in fetched.records()
    ]


def _offsets(offsets: list[list[Any]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, number): at for topic, number, at in offsets}


def _raise_first(outcomes: dict[Any, Any]) -> None:
    for outcome in outcomes.values():
        if isinstance(outcome, Exception):
            raise outcome


if __name__ == "__main__":
    serve(Client(json.loads(sys.argv[1])["bootstrap"]), lambda error: getattr(error, "code", None))
