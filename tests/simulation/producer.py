"""A producer on the simulated cluster: what the fronts do, without waiting."""

import random
from collections.abc import Iterator
from typing import Any

from librt.threading import Lock

from barnabas.client.producer.bulk.delivery import Delivery
from barnabas.client.producer.bulk.send import AHEAD, BulkSend, bulk_of_lists, bulk_of_table
from barnabas.client.producer.producer_batch import ProducerBatch, RecordHandle
from barnabas.client.producer.producer_core import ProducerCore
from barnabas.client.producer.record_appender import NO_ROOM
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
        self.cluster = SingleClientCluster(
            {"t": partitions},
            nodes=nodes,
            seed=seed,
            transaction_version=transaction_version,
            verifies_transactions=verifies_transactions,
        )
        self.settings = ProducerSettings(bootstrap_servers="boot:9092", **settings)
        self.core = ProducerCore(self.cluster.network_client, self.settings, self, Lock(), random.Random(seed))
        self.completed = self.cluster.network_client.completions
        self.cluster.result(self.core.open_topic("t", 60))

    # --- as a front -------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.cluster.now

    def opened(self) -> None: ...

    def turn(self) -> None: ...

    def send_slowly(self, *record: Any) -> RecordHandle:
        raise AssertionError("nothing waits here")

    def wait_for_batch(self, batch: ProducerBatch, timeout: float | None) -> None:
        assert self.run(lambda: batch.done or batch.parts is not None)

    def await_batch(self, batch: ProducerBatch) -> Iterator[Any]:
        raise AssertionError("nothing waits here")

    def call_when_done(self, batch: ProducerBatch, handle: RecordHandle, callback: Any) -> None:
        handle.when_done(callback, self.completed)

    def wait_for_promise(self, promise: Promise[Any], timeout: float | None) -> None:
        assert self.run(lambda: promise.done)

    def await_promise(self, promise: Promise[Any]) -> Iterator[Any]:
        raise AssertionError("nothing waits here")

    def call_when_settled(self, promise: Promise[Any], callback: Any) -> None:
        promise.on_done(lambda _: self.completed.append(callback))

    # --- for tests --------------------------------------------------------------------------------------------------

    def send(self, value: Any, *, topic: str = "t", key: Any = None, partition: int | None = None, **more: Any) -> Any:
        timestamp, headers, on_delivery = (more.get(name) for name in ("timestamp", "headers", "on_delivery"))
        return self.core.intake.append(topic, value, key, partition, timestamp, headers, on_delivery)

    def send_many(
        self, values: Any, *, keys: Any = None, headers: Any = None, timestamps: Any = None, partition: Any = None
    ) -> Delivery:
        return self._take(bulk_of_lists(self.core, "t", values, keys, headers, timestamps, partition))

    def send_table(self, table: Any, *, partition: Any = None) -> Delivery:
        return self._take(bulk_of_table(self.core, "t", table, partition))

    def _take(self, bulk: BulkSend) -> Delivery:
        while not bulk.is_over:
            why = bulk.take()
            if why == NO_ROOM:
                assert self.run(lambda: not self.core.intake.starved)
            elif why == AHEAD:
                assert self.run(bulk.has_room)
            elif why:
                raise AssertionError(f"not taken: {why}")
            else:
                self.cluster.turn()
        return bulk.delivery

    def run(self, until: Any = lambda: False, *, seconds: float = 3600.0) -> bool:
        done = self.cluster.run(until, seconds=seconds)
        while self.completed:
            self.completed.popleft()()
        return done

    def flush(self) -> None:
        self.core.accumulator.flushing += 1
        assert self.run(self.core.accumulator.is_idle)
        self.core.accumulator.flushing -= 1

    def values(self, partition: int = 0, topic: str = "t") -> list[bytes | None]:
        return list(self.cluster.log(topic, partition).values.values())
