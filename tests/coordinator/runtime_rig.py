"""A coordinator runtime with a machine that adds numbers up."""

import logging
from typing import Any

import pytest

from barnabas.coordinator.coordinator_runtime import CoordinatorRuntime
from barnabas.coordinator.coordinator_shard import CoordinatorResult, CoordinatorTimer
from barnabas.errors import CorruptMessage
from coordinator.group_rig import Later, MemoryLog, VirtualScheduler


class Numbers:
    """Codec: the value is the number's text; no two keys are the same, but for 7."""

    def __init__(self) -> None:
        self.count = 0

    def encode(self, record: int) -> tuple[bytes, bytes | None]:
        self.count += 1
        return b"seven" if record == 7 else str(self.count).encode(), str(record).encode()

    def decode(self, key: bytes, value: bytes | None) -> int | None:
        if value == b"13":
            raise CorruptMessage("unlucky")
        return None if value is None else int(value)


class Sum:
    """The state machine."""

    def __init__(self, partition: int, timers: CoordinatorTimer) -> None:
        self.partition = partition
        self.timers = timers
        self.total = 0
        self.offsets: list[int] = []
        self.is_loaded = False
        self.is_unloaded = False

    def replay(self, offset: int, producer_id: int, record: int) -> None:
        self.total += record
        self.offsets.append(offset)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        raise AssertionError

    def loaded(self) -> None:
        self.is_loaded = True

    def unloaded(self) -> None:
        self.is_unloaded = True

    def add(self, *numbers: int, **options: Any) -> CoordinatorResult[int, int]:
        return CoordinatorResult(numbers, self.total + sum(numbers), **options)


class World:
    def __init__(self, **options: Any) -> None:
        self.scheduler = VirtualScheduler()
        self.log = MemoryLog()
        self.codec = Numbers()
        self.machines: list[Sum] = []
        self.is_in_doubt = False
        self.runtime: CoordinatorRuntime[Sum, int] = self.make()

    def make(self) -> CoordinatorRuntime[Sum, int]:
        def machine(partition: int, timers: CoordinatorTimer) -> Sum:
            self.machines.append(Sum(partition, timers))
            return self.machines[-1]

        return CoordinatorRuntime(
            topic="__sums",
            log=self.log,
            serde=self.codec,
            make_shard=machine,
            scheduler=self.scheduler,
            wall_ms=self.scheduler.wall_ms,
            commit_timeout_ms=5000,
            may_be_replaced=lambda: self.is_in_doubt,
            logger=logging.getLogger("test"),
        )

    def run(self, operation: Any, partition: int = 0) -> Later:
        later = Later()
        self.runtime.run(partition, operation, later)
        return later

    def add(self, *numbers: int, partition: int = 0, **options: Any) -> Later:
        return self.run(lambda machine: machine.add(*numbers, **options), partition)


@pytest.fixture
def world() -> World:
    world = World()
    world.runtime.load(0, 1)
    return world


def broken(*_: object) -> CoordinatorResult[int, int]:
    raise RuntimeError("a bug")
