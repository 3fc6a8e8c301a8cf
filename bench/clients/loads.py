"""Runs one load of one Python client in its own process: ``python -m bench.clients.loads CLIENT LOAD ADDRESS TOPIC
COUNT``.

Prints its figures as JSON. The measurement begins when the client is imported and ends when all records are
acknowledged or read; 100-byte values without keys, acks=all, linger.ms=5, one thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import resource
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

VALUE = b"v" * 100
BULK = 10_000
"""Values in one bulk call."""
CALL_TIMEOUT_S = 60
PAUSE_S = 0.002
"""The pause between two round trips, in which the system is idle."""
MODULES = {"confluent": "confluent_kafka", "kafka-python": "kafka"}
"""The modules of clients that have another name."""

NEEDED = {
    "send_table": ("pyarrow.compute",),
    "arrow": ("pyarrow",),
}
"""The modules that a load imports before the clock starts, besides its client."""

Figures = dict[str, float]


# -- confluent-kafka ---------------------------------------------------------------------------------------------------


def confluent_produce(address: str, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": address, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
    producer = Producer(settings)
    for number in range(count):
        producer.produce(topic, VALUE)
        if not number % 1000:
            producer.poll(0)
    producer.flush()


def confluent_consume(address: str, topic: str, count: int) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": address, "group.id": _group(), "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = size = 0
    while found < count:
        for message in consumer.consume(1000, 1):
            size += len(message.value())
            found += 1
    consumer.close()


def confluent_round_trip(address: str, topic: str, count: int) -> list[float]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})

    def one() -> None:
        producer.produce(topic, VALUE, partition=0)
        producer.flush()

    return _timed(one, count)


def confluent_there_and_back(address: str, topic: str, count: int) -> list[float]:
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": address, "group.id": _group()})
    consumer.assign([TopicPartition(topic, 0, 0)])

    def one() -> None:
        producer.produce(topic, VALUE, partition=0)
        while consumer.poll(CALL_TIMEOUT_S) is None:
            pass
        producer.poll(0)

    one()  # connects
    seconds = _timed(one, count)
    consumer.close()
    return seconds


# -- aiokafka ----------------------------------------------------------------------------------------------------------


def aiokafka_produce(address: str, topic: str, count: int) -> None:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address, acks="all", linger_ms=5)
        await producer.start()
        for _ in range(count):
            await producer.send(topic, VALUE)
        await producer.stop()

    asyncio.run(run())


def aiokafka_consume(address: str, topic: str, count: int) -> None:
    from aiokafka import AIOKafkaConsumer

    async def run() -> None:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=address, group_id=_group(), auto_offset_reset="earliest")
        await consumer.start()
        found = size = 0
        while found < count:
            for messages in (await consumer.getmany(timeout_ms=1000, max_records=1000)).values():
                for message in messages:
                    size += len(message.value)
                found += len(messages)
        await consumer.stop()

    asyncio.run(run())


def aiokafka_round_trip(address: str, topic: str, count: int) -> list[float]:
    from aiokafka import AIOKafkaProducer

    async def run() -> list[float]:
        producer = AIOKafkaProducer(bootstrap_servers=address, acks="all", linger_ms=0)
        await producer.start()
        seconds = []
        for _ in range(count):
            await asyncio.sleep(PAUSE_S)
            began = time.perf_counter()
            await producer.send_and_wait(topic, VALUE, partition=0)
            seconds.append(time.perf_counter() - began)
        await producer.stop()
        return seconds

    return asyncio.run(run())


# -- kafka-python ------------------------------------------------------------------------------------------------------


def kafka_python_produce(address: str, topic: str, count: int) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=5)
    for _ in range(count):
        producer.send(topic, VALUE)
    producer.flush()


def kafka_python_consume(address: str, topic: str, count: int) -> None:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(topic, bootstrap_servers=address, group_id=_group(), auto_offset_reset="earliest")
    size = 0
    for found, message in enumerate(consumer, 1):
        size += len(message.value)
        if found == count:
            break
    consumer.close()


def kafka_python_round_trip(address: str, topic: str, count: int) -> list[float]:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=0)
    return _timed(lambda: producer.send(topic, VALUE, partition=0).get(CALL_TIMEOUT_S), count)


# -- barnabas ----------------------------------------------------------------------------------------------------------


def barnabas_produce(address: str, topic: str, count: int) -> None:
    import barnabas

    with barnabas.Producer(bootstrap_servers=address, acks="all", linger_ms=5) as producer:
        for _ in range(count):
            producer.send(topic, VALUE)
        producer.flush()


def barnabas_send_many(address: str, topic: str, count: int) -> None:
    import barnabas

    values = [VALUE] * BULK
    with barnabas.Producer(bootstrap_servers=address, acks="all", linger_ms=5) as producer:
        for start in range(0, count, BULK):
            producer.send_many(topic, values[: count - start])
        producer.flush()


def barnabas_send_table(address: str, topic: str, count: int) -> None:
    import pyarrow as pa

    import barnabas

    table = pa.table({"value": pa.array([VALUE] * BULK)})
    with barnabas.Producer(bootstrap_servers=address, acks="all", linger_ms=5) as producer:
        for start in range(0, count, BULK):
            producer.send_table(topic, table.slice(0, min(BULK, count - start)))
        producer.flush()


def barnabas_consume(address: str, topic: str, count: int) -> None:
    with _barnabas_consumer(address, topic) as consumer:
        size = 0
        for found, record in enumerate(consumer, 1):
            size += len(record.value)
            if found == count:
                break


def barnabas_batches(address: str, topic: str, count: int) -> None:
    with _barnabas_consumer(address, topic) as consumer:
        found = size = 0
        for batch in consumer.batches():
            size += sum(map(len, batch.values()))
            found += len(batch)
            if found >= count:
                break


def barnabas_arrow(address: str, topic: str, count: int) -> None:
    with _barnabas_consumer(address, topic) as consumer:
        found = 0
        for table in consumer.arrow():
            found += table.num_rows
            if found >= count:
                break


def barnabas_round_trip(address: str, topic: str, count: int) -> list[float]:
    import barnabas

    with barnabas.Producer(bootstrap_servers=address, acks="all", linger_ms=0) as producer:
        return _timed(lambda: producer.send(topic, VALUE, partition=0).result(CALL_TIMEOUT_S), count)


def barnabas_there_and_back(address: str, topic: str, count: int) -> list[float]:
    import barnabas

    producer = barnabas.Producer(bootstrap_servers=address, acks="all", linger_ms=0)
    consumer = barnabas.Consumer(bootstrap_servers=address, group_id=_group(), auto_offset_reset="earliest")
    consumer.assign([(topic, 0)])

    def one() -> None:
        producer.send(topic, VALUE, partition=0)
        while not consumer.poll(CALL_TIMEOUT_S):
            pass

    with producer, consumer:
        one()  # connects
        return _timed(one, count)


@contextlib.contextmanager
def _barnabas_consumer(address: str, topic: str) -> Iterator[Any]:
    import barnabas

    settings = {"bootstrap_servers": address, "group_id": _group(), "auto_offset_reset": "earliest"}
    with barnabas.Consumer(topic, **settings) as consumer:
        yield consumer


# -- measuring ---------------------------------------------------------------------------------------------------------


def _group() -> str:
    return f"bench-{uuid.uuid4().hex}"


def _timed(one: Callable[[], object], count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        time.sleep(PAUSE_S)
        began = time.perf_counter()
        one()
        seconds.append(time.perf_counter() - began)
    return seconds


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory_mb() -> float:
    """Returns the peak of the resident memory; getrusage would include the parent's."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def measure(client: str, load: str, address: str, topic: str, count: int) -> Figures:
    for module in (MODULES.get(client, client), *NEEDED.get(load, ())):
        importlib.import_module(module)
    if client == "barnabas":
        import barnabas

        _ = barnabas.Producer, barnabas.Consumer  # imported at first use
    work = globals()[f"{client.replace('-', '_')}_{load}"]
    cpu_before, began = _cpu_s(), time.perf_counter()
    seconds: list[float] | None = work(address, topic, count)
    if seconds is not None:
        ordered = sorted(seconds[count // 10 :])
        return {
            "p50_ms": ordered[len(ordered) // 2] * 1000,
            "p99_ms": ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)] * 1000,
        }
    return {
        "records_per_s": count / (time.perf_counter() - began),
        "cpu_s_per_M": (_cpu_s() - cpu_before) / count * 1e6,
        "memory_MB": _memory_mb(),
    }


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:5], int(sys.argv[5]))))
