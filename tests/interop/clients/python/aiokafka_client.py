"""aiokafka behind the common commands."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import for_code
from common import Json, failure, record_json, say, unpack, unpack_headers

WAIT_S = 40
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Open:
    """One open consumer and what its polling task has received."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self.arrived: list[Json] = []
        self.news = asyncio.Event()
        self.task = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            batches = await self.consumer.getmany(timeout_ms=200)
            for records in batches.values():
                self.arrived.extend(
                    record_json(
                        each.topic, each.partition, each.offset, each.timestamp, each.key, each.value, each.headers
                    )
                    for each in records
                )
            if batches:
                self.news.set()

    async def take(self, count: int, timeout_ms: int) -> list[Json]:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while len(self.arrived) < count:
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            if self.task.done():
                self.task.result()
        taken, self.arrived = self.arrived[:count], self.arrived[count:]
        return taken

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.consumer.stop()


class Client:
    version = f"aiokafka {aiokafka.__version__}"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._the_admin: AIOKafkaAdminClient | None = None
        self._producers: dict[str, AIOKafkaProducer] = {}
        self._transactional: dict[str, AIOKafkaProducer] = {}
        self._consumers: dict[str, Open] = {}

    async def _admin(self) -> AIOKafkaAdminClient:
        if self._the_admin is None:
            self._the_admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await self._the_admin.start()
        return self._the_admin

    # Producing

    async def produce(self, topic: str, records: list[Json], **settings: Any) -> Json:
        return await self._send(await self._producer(settings), topic, records)

    @staticmethod
    async def _send(producer: AIOKafkaProducer, topic: str, records: list[Json]) -> Json:
        futures = [
            await producer.send(
                topic,
                value=unpack(record["v"]),
                key=unpack(record["k"]),
                headers=unpack_headers(record),
                partition=record.get("p"),
                timestamp_ms=record.get("t"),
            )
            for record in records
        ]
        done = await asyncio.wait_for(asyncio.gather(*futures), WAIT_S)
        return {"offsets": [(each.partition, each.offset) if each else (-1, -1) for each in done]}

    async def _producer(self, settings: Json) -> AIOKafkaProducer:
        name = json.dumps(settings, sort_keys=True)
        if name not in self._producers:
            codec = settings.get("compression", "none")
            acks = settings.get("acks", "all")
            self._producers[name] = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                linger_ms=5,
                compression_type=None if codec == "none" else codec,
                acks="all" if acks == "all" else int(acks),
                enable_idempotence=settings.get("idempotent", False),
                max_request_size=settings.get("max_request_bytes", 1_048_576),
            )
            await self._producers[name].start()
        return self._producers[name]

    # Transactions

    async def producer(self, id: str, transactional_id: str, timeout_ms: int = 60_000) -> Json:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        await producer.start()
        self._transactional[id] = producer
        return {}

    async def begin(self, id: str) -> Json:
        await self._transactional[id].begin_transaction()
        return {}

    async def send(self, id: str, topic: str, records: list[Json]) -> Json:
        return await self._send(self._transactional[id], topic, records)

    async def end(self, id: str, commit: bool) -> Json:
        producer = self._transactional[id]
        await asyncio.wait_for(producer.commit_transaction() if commit else producer.abort_transaction(), WAIT_S)
        return {}

    async def close_producer(self, id: str) -> Json:
        await self._transactional.pop(id).stop()
        return {}

    async def process(
        self, id: str, transactional_id: str, group: str, source: str, target: str, count: int, commit: bool
    ) -> Json:
        await self.producer(id, transactional_id)
        await self.open(id, topics=[source], group=group, isolation="read_committed")
        try:
            taken = await self._consumers[id].take(count, WAIT_S * 1000)
            await self.begin(id)
            await self.send(id, target, [{key: each[key] for key in "pkvh"} for each in taken])
            consumer = self._consumers[id].consumer
            positions = {place: await consumer.position(place) for place in consumer.assignment()}
            await self._transactional[id].send_offsets_to_transaction(positions, group)
            await self.end(id, commit)
        finally:
            await self.close(id)
        return {"records": len(taken)}

    # Consuming

    async def open(
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
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
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
            await consumer.start()
            consumer.assign([TopicPartition(topic, partition) for topic, partition, _ in assign])
            for topic, partition, at in assign:
                await self._seek(consumer, TopicPartition(topic, partition), at)
        else:
            consumer.subscribe(topics)
            # With a group, start() waits for the first assignment, which may need other members to rejoin.
            await asyncio.wait_for(consumer.start(), WAIT_S)
        self._consumers[id] = Open(consumer)
        return {}

    @staticmethod
    async def _seek(consumer: AIOKafkaConsumer, place: TopicPartition, at: Any) -> None:
        if isinstance(at, dict):
            found = (await consumer.offsets_for_times({place: at["timestamp"]}))[place]
            consumer.seek(place, found.offset if found else (await consumer.end_offsets([place]))[place])
        elif isinstance(at, int):
            consumer.seek(place, at)
        else:
            ask = consumer.beginning_offsets if at == "earliest" else consumer.end_offsets
            consumer.seek(place, (await ask([place]))[place])

    async def take(self, id: str, count: int, timeout_ms: int) -> Json:
        return {"records": await self._consumers[id].take(count, timeout_ms)}

    async def assignment(self, id: str) -> Json:
        return {"partitions": [[each.topic, each.partition] for each in self._consumers[id].consumer.assignment()]}

    async def pause(self, id: str, partitions: list[list[Any]]) -> Json:
        self._consumers[id].consumer.pause(*(TopicPartition(*each) for each in partitions))
        return {}

    async def resume(self, id: str, partitions: list[list[Any]]) -> Json:
        self._consumers[id].consumer.resume(*(TopicPartition(*each) for each in partitions))
        return {}

    async def commit(self, id: str, offsets: list[list[Any]]) -> Json:
        await self._consumers[id].consumer.commit({TopicPartition(topic, number): at for topic, number, at in offsets})
        return {}

    async def close(self, id: str) -> Json:
        await self._consumers.pop(id).close()
        return {}

    # Queries

    async def metadata(self) -> Json:
        admin = await self._admin()
        found = await admin.describe_topics()
        brokers = (await admin.describe_cluster())["brokers"]
        return {"brokers": len(brokers), "topics": {each["topic"]: len(each["partitions"]) for each in found}}

    async def offsets(self, topic: str, partitions: list[int], at: Any) -> Json:
        places = [TopicPartition(topic, each) for each in partitions]
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
        await consumer.start()
        try:
            if at in ("earliest", "latest"):
                ask = consumer.beginning_offsets if at == "earliest" else consumer.end_offsets
                found = await ask(places)
            else:
                answers = await consumer.offsets_for_times(dict.fromkeys(places, at))
                found = {place: each.offset if each else -1 for place, each in answers.items()}
        finally:
            await consumer.stop()
        return {"offsets": [found[place] for place in places]}

    async def committed(self, group: str, topic: str, partitions: list[int]) -> Json:
        places = [TopicPartition(topic, each) for each in partitions]
        found = await (await self._admin()).list_consumer_group_offsets(group, partitions=places)
        return {"offsets": [found[place].offset for place in places]}

    # Administering

    async def create_topic(self, topic: str, partitions: int, configs: dict[str, str] | None = None) -> Json:
        new = NewTopic(topic, partitions, 1, topic_configs=configs or {})
        response = await (await self._admin()).create_topics([new])
        _raise_first((each[1], each[2]) for each in response.topic_errors)
        return {}

    async def delete_topic(self, topic: str) -> Json:
        response = await (await self._admin()).delete_topics([topic])
        _raise_first((each[1], topic) for each in response.topic_error_codes)
        return {}

    async def create_partitions(self, topic: str, count: int) -> Json:
        await (await self._admin()).create_partitions({topic: NewPartitions(count)})
        return {}

    async def delete_records(self, topic: str, partition: int, before: int) -> Json:
        place = TopicPartition(topic, partition)
        found = await (await self._admin()).delete_records({place: RecordsToDelete(before)})
        return {"low_watermark": found[place]}

    async def describe_config(self, topic: str) -> Json:
        (response,) = await (await self._admin()).describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        ((code, message, _, _, entries),) = response.resources
        _raise_first([(code, message)])
        return {"configs": {each[0]: each[1] for each in entries}}

    async def groups(self) -> Json:
        return {"groups": [each[0] for each in await (await self._admin()).list_consumer_groups()]}

    async def describe_group(self, group: str) -> Json:
        (response,) = await (await self._admin()).describe_consumer_groups([group])
        (found,) = response.groups
        code, _, state, _, assignor, members = found[:6]
        _raise_first([(code, group)])
        return {"state": state, "assignor": assignor, "members": [[] for _ in members]}


def _raise_first(outcomes: Any) -> None:
    for code, message in outcomes:
        if code:
            raise for_code(code)(message)


async def main(bootstrap: str) -> None:
    client = Client(bootstrap)
    say({"ok": {"version": client.version}})
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        try:
            say({"ok": await getattr(client, command.pop("op"))(**command)})
        except Exception as error:
            say(failure(error, getattr(error, "errno", None)))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])["bootstrap"]))
