"""A producer on the simulated cluster, with a driver that does not wait."""

import random
from collections.abc import Iterator
from typing import Any

from librt.threading import Lock

from barnabas.client.producer.bulk.delivery import Delivery
from barnabas.client.producer.bulk.send import TOO_FAR_AHEAD, BulkSend, bulk_of_lists, bulk_of_table
from barnabas.client.producer.kafka_producer import KafkaProducer
from barnabas.client.producer.producer_batch import ProducerBatch, RecordHandle
from barnabas.client.producer.record_appender import BUFFER_FULL
from barnabas.client.settings import ProducerSettings
from barnabas.connection.promise import Promise
from simulation.cluster import SingleClientCluster


class SimulatedProducer:
    """A cluster and a producer with `settings`; topic "t" has `partitions`, whose leaders go round the nodes."""

    def __init__(
        self,
        *,
        nodes: int = 1,
        partitions: int = 1,
        seed: int = 0,
        transaction_version: int = 0,
        verifies_transactions: bool = True,
        **settings: Any,
    ) -> None:
        self.cluster = SingleClientCluster({"t": partitions}, nodes=nodes, seed=seed)
        self.cluster.transactions.version = transaction_version
        self.cluster.transactions.verifies = verifies_transactions
        self.settings = ProducerSettings(bootstrap_servers="boot:9092", **settings)
        self.kafka_producer = KafkaProducer(
            self.cluster.network_client, self.settings, self, Lock(), random.Random(seed)
        )
        self.completed = self.cluster.network_client.completions
        self.cluster.result(self.kafka_producer.open_topic("t", 60))

    # --- as a driver ------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.cluster.now

    def turn(self) -> None: ...

    def batch_opened(self) -> None: ...

    def send_slowly(self, *record: Any) -> RecordHandle:
        raise AssertionError("nothing waits here")

    def wait_for_batch(self, batch: ProducerBatch, timeout: float | None) -> None:
        assert self.run(lambda: batch.done or batch.parts is not None)

    def wait_for_promise(self, promise: Promise[Any], timeout: float | None) -> None:
        assert self.run(lambda: promise.done)

    def await_call(self, add_listener: Any) -> Iterator[Any]:
        raise AssertionError("nothing waits here")

    def add_callback(self, add: Any) -> None:
        add(self.completed.append)

    # --- for tests --------------------------------------------------------------------------------------------------

    def send(self, value: Any, *, topic: str = "t", key: Any = None, partition: int | None = None, **more: Any) -> Any:
        timestamp, headers, on_delivery = (more.get(name) for name in ("timestamp", "headers", "on_delivery"))
        return self.kafka_producer.appender.append(topic, value, key, partition, timestamp, headers, on_delivery)

    def send_many(
        self, values: Any, *, keys: Any = None, headers: Any = None, timestamps: Any = None, partition: Any = None
    ) -> Delivery:
        return self._take(bulk_of_lists(self.kafka_producer, "t", values, keys, headers, timestamps, partition))

    def send_table(self, table: Any, *, partition: Any = None) -> Delivery:
        return self._take(bulk_of_table(self.kafka_producer, "t", table, partition))

    def _take(self, bulk: BulkSend) -> Delivery:
        while not bulk.is_over:
            refusal = bulk.take()
            if refusal == BUFFER_FULL:
                assert self.run(lambda: not self.kafka_producer.appender.exhausted)
            elif refusal == TOO_FAR_AHEAD:
                assert self.run(bulk.has_room)
            elif refusal:
                raise AssertionError(f"not taken: {refusal}")
            else:
                self.cluster.turn()
        return bulk.delivery

    def run(self, until: Any = lambda: False, *, seconds: float = 3600.0) -> bool:
        done = self.cluster.run(until, seconds=seconds)
        while self.completed:
            self.completed.popleft()()
        return done

    def flush(self) -> None:
        self.kafka_producer.accumulator.flushing += 1
        assert self.run(self.kafka_producer.accumulator.is_idle)
        self.kafka_producer.accumulator.flushing -= 1

    def values(self, partition: int = 0, topic: str = "t") -> list[bytes | None]:
        return list(self.cluster.log(topic, partition).values.values())
