"""SIGKILL of the broker, or of its cleaner alone, while a compacted topic is written and cleaned without a pause.

After every restart: of each key nothing older than what was acknowledged last stands last, records are in order and at
the offsets that were answered, and what was deleted does not come back. Written as it goes the topic stays small.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import KafkaError, Message

from bench.brokers import BrokerProcess, is_cleaner, process_tree
from workload import PAUSE_S, POLL_EVERY, Promises, Writer, create_topic, read

SETTINGS = ("num.partitions=4", "log.cleaner.backoff.ms=10", "log.segment.delete.delay.ms=50")
CLEANER_ROUNDS_MAX = 5
"""The rounds after which a cleaner must have been found: it is idle, and gone, in few of them."""
TOPIC = "compacted"
PARTITIONS = 2
WRITERS = 3
KEYS_PER_WRITER = 40
RECORDS_PER_WRITER = 8_000
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),  # the smallest that Kafka takes
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "300",
}


@dataclass(slots=True)
class Key:
    """The history of a key: the number of records sent, those acknowledged with their offsets, and those that deleted
    the key."""

    sent: int = 0
    acknowledged: int = -1
    deletions: set[int] = field(default_factory=set)
    offsets: dict[int, int] = field(default_factory=dict)


class KeyedWriter(Writer):
    """Writes ever higher numbers under keys of its own, now and then a deletion; a key has one partition."""

    def __init__(self, name: str, address: str, rng: random.Random, promises: Promises, keys: dict[str, Key]) -> None:
        super().__init__(name, address, TOPIC, PARTITIONS, rng, promises)
        self._keys = keys

    def _write(self, quota: int) -> None:
        for count in range(quota):
            if self._stop.is_set():
                return
            index = self._rng.randrange(KEYS_PER_WRITER)
            name = f"{self.name}-{index}"
            key = self._keys[name]
            number = key.sent
            value = None if self._rng.random() < 0.05 else bytes(self._rng.choice((10, 100, 1_000, 10_000)))
            if value is None:
                key.deletions.add(number)
            key.sent += 1  # before it is, so that nothing is there that was not sent
            self._send(name, number, value, index % PARTITIONS, partial(self._told, key, number))
            if not count % POLL_EVERY:
                self._producer.poll(self._rng.uniform(0.0, PAUSE_S))

    def _send(
        self,
        name: str,
        number: int,
        value: bytes | None,
        partition: int,
        told: Callable[[KafkaError | None, Message], None],
    ) -> None:
        while True:
            try:
                self._producer.produce(
                    TOPIC, value, key=name, partition=partition, headers={"n": str(number)}, on_delivery=told
                )
                return
            except BufferError:
                self._producer.poll(0.05)

    def _told(self, key: Key, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._promises.errors.append(f"{self.name}: record not delivered: {error}")
            return
        key.acknowledged = max(key.acknowledged, number)
        key.offsets[number] = message.offset() or 0


@dataclass(slots=True)
class RoundReport:
    """One round in figures, for the line that is printed."""

    number: int
    killed: str
    killed_after_s: float
    restart_s: float = 0.0
    acknowledged: int = 0
    stands: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        state = "ok" if not self.failures else f"FAILED ({len(self.failures)})"
        return (
            f"round {self.number}: {self.killed} killed after {self.killed_after_s:.2f} s, "
            f"{self.acknowledged} acknowledged so far, {self.stands} records stand: {state}"
        )


class CompactionTest:
    """The broker's life over many rounds."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker = broker
        self._seed = seed
        self._promises = Promises()
        self._keys: dict[str, Key] = defaultdict(Key)
        self._writers: dict[int, KeyedWriter] = {}
        self._cleaners_killed = 0
        self._cleaner_rounds = 0

    def prepare(self) -> None:
        self._broker.start()
        self._broker.first_ack_s()
        create_topic(self._broker.address, TOPIC, PARTITIONS, **CONFIG)

    def run_round(self, number: int) -> RoundReport:
        rng = random.Random(f"{self._seed}:{number}")
        killed = rng.choice(("broker", "broker", "broker twice", "cleaner"))
        report = RoundReport(number, killed, rng.uniform(0.1, 1.5))
        for index in range(WRITERS):
            # a new producer now and then: of the old one only its last batch has to stay
            if index not in self._writers or rng.random() < 0.3:
                self._writers[index] = KeyedWriter(
                    f"w{index}", self._broker.address, random.Random(rng.random()), self._promises, self._keys
                )
        for writer in self._writers.values():
            writer.start(RECORDS_PER_WRITER)
        time.sleep(report.killed_after_s)
        self._kill(rng, report)
        for writer in self._writers.values():
            writer.stop()
        report.failures += self._promises.errors
        self._promises.errors.clear()
        report.acknowledged = sum(len(key.offsets) for key in self._keys.values())
        report.failures += self._check(report)
        return report

    def _kill(self, rng: random.Random, report: RoundReport) -> None:
        if report.killed == "cleaner":
            self._cleaner_rounds += 1
            for pid in process_tree(self._broker.pid)[1:]:
                if is_cleaner(pid):
                    os.kill(pid, signal.SIGKILL)
                    self._cleaners_killed += 1
            return
        for again in range(1 + report.killed.endswith("twice")):
            if again:  # the second one hits the recovery
                time.sleep(rng.uniform(0.0, 0.5))
            self._broker.stop(signal.SIGKILL)
            self._broker.start()
        report.restart_s = self._broker.first_ack_s()

    def _check(self, report: RoundReport) -> list[str]:
        failures: list[str] = []
        last: dict[str, int] = {}
        for partition in range(PARTITIONS):
            for message in read(self._broker.address, TOPIC, partition):
                report.stands += 1
                headers = dict(message.headers() or ())
                name, number = (message.key() or b"").decode(), int(headers["n"] or b"")
                key = self._keys[name]
                if number <= last.get(name, -1):
                    failures.append(f"{name}: {number} stands behind {last[name]}")
                if number >= key.sent:
                    failures.append(f"{name}: {number} was never sent")
                if key.offsets.get(number, message.offset()) != message.offset():
                    failures.append(f"{name}: {number} is at {message.offset()}, answered was {key.offsets[number]}")
                if (message.value() is None) != (number in key.deletions):
                    failures.append(f"{name}: {number} has another value than was sent")
                last[name] = number
        for name, key in self._keys.items():
            found = last.get(name)
            deleted = any(number >= key.acknowledged for number in key.deletions)
            if found is None and key.acknowledged >= 0 and not deleted:
                failures.append(f"{name}: nothing is left, {key.acknowledged} was acknowledged")
            if found is not None and found < key.acknowledged:
                failures.append(f"{name}: {found} stands last, {key.acknowledged} was acknowledged")
        return failures

    def check_all(self) -> list[str]:
        """Every round checks all; here: whether the topic was really compacted all the time."""
        size = sum(path.stat().st_size for p in range(PARTITIONS) for path in self._broker.log_files(TOPIC, p))
        written = sum(len(key.offsets) for key in self._keys.values())
        bound = 8 * PARTITIONS * (1 << 20) + len(self._keys) * 10_000
        failures = [f"{written} records were written and {size} bytes are left"] if size > bound else []
        if self._cleaner_rounds > CLEANER_ROUNDS_MAX and not self._cleaners_killed:
            failures.append(f"no cleaner process was found in {self._cleaner_rounds} rounds that were to kill it")
        return failures

    def stop(self) -> None:
        """Nothing of it outlives a round."""

    def summary(self) -> str:
        written = sum(len(key.offsets) for key in self._keys.values())
        return (
            f"{written} acknowledged records of {len(self._keys)} keys, the last of each stands, what was deleted is "
            f"gone; {self._cleaners_killed} cleaners killed alone"
        )
