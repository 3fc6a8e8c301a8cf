"""A producer core in a world: what the fronts do, without waiting."""

from collections.abc import Callable, Iterator
from typing import Any

from librt.threading import Lock

from barnabas.client.core.producer.batch import Batch, RecordHandle
from barnabas.client.core.producer.core import ProducerCore
from barnabas.client.core.settings import ProducerSettings
from client.core.logs import Brokers
from client.core.world import World


class Producing:
    """World, brokers and a producer with `settings`; topic "t" has `partitions` whose leaders go round the nodes."""

    def __init__(
        self,
        *,
        nodes: int = 1,
        partitions: int = 1,
        seed: int = 0,
        brokers: Callable[[World], Brokers] = Brokers,
        **settings: Any,
    ) -> None:
        self.world = World(nodes=nodes, seed=seed)
        self.brokers = brokers(self.world)
        self.world.topics["t"] = {index: index % nodes + 1 for index in range(partitions)}
        self.settings = ProducerSettings(bootstrap_servers="boot:9092", **settings)
        self.core = ProducerCore(self.world.engine, self.settings, self, Lock(), self.world.rng)
        self.completed = self.world.engine.completions
        self.world.result(self.core.open_topic("t", 60))

    # --- as a front -------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.world.now

    def opened(self) -> None: ...

    def turn(self) -> None: ...

    def send_slowly(self, *record: Any) -> RecordHandle:
        raise AssertionError("nothing waits here")

    def wait_for_batch(self, batch: Batch, timeout: float | None) -> None:
        assert self.run(lambda: batch.done or batch.parts is not None)

    def await_batch(self, batch: Batch) -> Iterator[Any]:
        raise AssertionError("nothing waits here")

    def call_when_done(self, batch: Batch, handle: RecordHandle, callback: Any) -> None:
        handle.when_done(callback, self.completed)

    # --- for tests --------------------------------------------------------------------------------------------------

    def send(self, value: Any, *, topic: str = "t", key: Any = None, partition: int | None = None, **more: Any) -> Any:
        timestamp, headers, on_delivery = (more.get(name) for name in ("timestamp", "headers", "on_delivery"))
        return self.core.intake.append(topic, value, key, partition, timestamp, headers, on_delivery)

    def run(self, until: Any = lambda: False, *, seconds: float = 3600.0) -> bool:
        done = self.world.run(until, seconds=seconds)
        while self.completed:
            self.completed.popleft()()
        return done

    def flush(self) -> None:
        self.core.accumulator.flushing += 1
        assert self.run(self.core.accumulator.is_idle)
        self.core.accumulator.flushing -= 1

    def values(self, partition: int = 0, topic: str = "t") -> list[bytes | None]:
        return self.brokers.log(topic, partition).records
