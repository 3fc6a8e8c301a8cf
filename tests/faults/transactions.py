"""Exactly once under SIGKILL: transactional copiers and their broker die at random moments, again and again.

A feeder writes numbered records in transactions of its own, some of which it aborts. Workers (`worker.py`) copy them,
each batch in a transaction with its offsets, and abort some on purpose. A round kills the broker or workers, or freezes
a worker until another has taken its place and then lets it go on. After every round the copy under read_committed is
the input: each record once, in order in every partition; the group's offsets stand at its end, and no transaction is
left open.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import Consumer, Producer, TopicPartition

import worker
from bench.brokers import BrokerProcess
from feeder import Feeder
from worker_process import WorkerProcess
from workload import READ_TIMEOUT_S, client_settings, create_topic, read, wait_until_closed

INPUT, OUTPUT, GROUP = "feed", "copy", "copiers"
PARTITIONS = 4
WORKERS = 3
ABORT_SHARE = 0.1  # of the workers' transactions, on purpose
READY_TIMEOUT_S = 60
ABANDONED_TIMEOUT_MS = 1_000  # the broker aborts by itself what its producer has left
SETTINGS = (
    "num.partitions=4",
    "group.initial.rebalance.delay.ms=0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=250",
)


@dataclass(slots=True)
class RoundReport:
    """One round in figures, for the line that is printed."""

    number: int
    deeds: list[str] = field(default_factory=list)
    copied: int = 0
    caught_up_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        state = "ok" if not self.failures else f"FAILED ({len(self.failures)})"
        deeds = ", ".join(self.deeds) or "undisturbed"
        return f"round {self.number}: {deeds}; {self.copied} copied, {self.caught_up_s:.2f} s after the last: {state}"


class TransactionTest:
    """The life of a broker and its workers; the workers live on from round to round, as long as nobody kills them."""

    def __init__(self, broker: BrokerProcess, seed: int, *, spare_broker: bool = False) -> None:
        self._broker = broker
        self._spare_broker = spare_broker
        self._seed = seed
        self._feeder = Feeder(broker.address, INPUT, PARTITIONS)
        self._workers: list[WorkerProcess] = []
        self._zombies: list[tuple[int, WorkerProcess]] = []
        self._guests: list[WorkerProcess] = []
        self._started = 0
        self._copied = dict.fromkeys(range(PARTITIONS), 0)
        self._read_until = dict.fromkeys([(topic, p) for topic in (INPUT, OUTPUT) for p in range(PARTITIONS)], 0)
        self._kills = {"broker": 0, "worker": 0, "zombie": 0}
        self._slowest_s = 0.0
        self._aborted_seen = 0

    def prepare(self) -> None:
        self._broker.start()
        self._broker.first_ack_s()
        for topic in (INPUT, OUTPUT):
            create_topic(self._broker.address, topic, PARTITIONS)
        self._feeder.prepare()
        self._workers = [self._new_worker(index) for index in range(WORKERS)]
        for process in self._workers:
            process.wait_for(worker.ASSIGNED, READY_TIMEOUT_S)

    def run_round(self, number: int) -> RoundReport:
        rng = random.Random(f"{self._seed}:{number}")
        report = RoundReport(number)
        if rng.random() < 0.1:
            self._leave_a_transaction(rng, report)
        self._feeder.start(random.Random(rng.random()))
        began = time.monotonic()
        for moment, deed in self._plan(rng, report):
            time.sleep(max(0.0, began + moment - time.monotonic()))
            deed()
        self._feeder.stop()
        last = time.monotonic()
        try:
            report.failures += self._end_guests()
            report.failures += self._settle_zombies()
            report.failures += self._check_input()
            report.failures += self._check_copy(report)
            report.failures += self._check_offsets()
            report.failures += self._check_nothing_is_open([OUTPUT])
            report.failures += self._check_workers()
        except TimeoutError as error:
            report.failures.append(str(error))
        report.failures += self._feeder.errors
        report.caught_up_s = time.monotonic() - last
        self._slowest_s = max(self._slowest_s, report.caught_up_s)
        return report

    def check_all(self) -> list[str]:
        """Reads both topics as a whole, under both isolation levels; without an aborted record nothing was proved."""
        failures = self._check_nothing_is_open([INPUT, OUTPUT, "__consumer_offsets"])
        self._aborted_seen = 0
        for partition, fed in self._feeder.committed.items():
            expected = [worker.MARK + value for value in fed]
            copied = self._values(OUTPUT, partition, committed=True)
            if copied != expected:
                failures.append(f"whole copy of partition {partition}: {_difference(copied, expected)}")
            everything = self._values(OUTPUT, partition, committed=False)
            if set(expected) - set(everything):
                failures.append(f"whole copy of partition {partition}: read_uncommitted misses committed records")
            self._aborted_seen += len(everything) - len(copied)
        if not self._aborted_seen:
            failures.append("read_uncommitted shows no aborted record in the copy: this run proves nothing")
        return failures

    def stop(self) -> None:
        for process in [*self._workers, *self._guests, *(zombie for _, zombie in self._zombies)]:
            process.kill()

    def summary(self) -> str:
        copied = sum(len(values) for values in self._feeder.committed.values())
        kills = ", ".join(f"{count} {what}s" for what, count in self._kills.items())
        return (
            f"{copied} records copied, each once, in order; {self._aborted_seen} copies aborted and not shown; "
            f"{kills}; slowest round done {self._slowest_s:.2f} s after its last record"
        )

    def _plan(self, rng: random.Random, report: RoundReport) -> list[tuple[float, Callable[[], None]]]:
        """Returns the faults of a round, each with its time in seconds from the round's beginning."""
        deeds: list[tuple[float, str, Callable[[], None]]] = []
        if rng.random() < 0.7 and not self._spare_broker:
            down = rng.uniform(0.05, 0.9)
            deeds.append((down, f"broker killed at {down:.3f}", self._kill_broker))
            deeds.append((down + rng.choice((0.0, rng.uniform(0.0, 0.3))), "", self._broker.start))
        for _ in range(rng.choice((0, 0, 1, 2))):
            index, moment = rng.randrange(WORKERS), rng.uniform(0.05, 0.9)
            deeds.append((moment, f"worker {index} killed at {moment:.3f}", partial(self._kill_worker, index)))
        if rng.random() < 0.2:
            index, moment = rng.randrange(WORKERS), rng.uniform(0.05, 0.6)
            deeds.append((moment, f"worker {index} frozen at {moment:.3f}", partial(self._freeze_worker, index)))
        if rng.random() < 0.15:
            moment = rng.uniform(0.0, 0.4)
            deeds.append((moment, f"guest came at {moment:.3f}", self._invite_guest))
        deeds.append((rng.uniform(0.3, 0.9), "", lambda: None))  # a quiet round has its length too
        deeds.sort(key=lambda deed: deed[0])
        report.deeds += [name for _, name, _ in deeds if name]
        return [(moment, deed) for moment, _, deed in deeds]

    def _kill_broker(self) -> None:
        self._kills["broker"] += 1
        self._broker.stop(signal.SIGKILL)

    def _kill_worker(self, index: int) -> None:
        self._kills["worker"] += 1
        self._workers[index].kill()
        self._workers[index] = self._new_worker(index)

    def _freeze_worker(self, index: int) -> None:
        """Another comes in its place; one that had not begun to work would be no zombie but the newer one."""
        if self._workers[index].has_told(worker.ASSIGNED):
            self._kills["zombie"] += 1
            self._workers[index].signal(signal.SIGSTOP)
            self._zombies.append((index, self._workers[index]))
            self._workers[index] = self._new_worker(index)

    def _invite_guest(self) -> None:
        """One more member, which leaves again: two rebalances in the midst of transactions."""
        self._guests.append(self._new_worker(WORKERS, static=False))

    def _leave_a_transaction(self, rng: random.Random, report: RoundReport) -> None:
        """A transaction whose producer never comes back; until the broker aborts it the copy's readers wait."""
        settings = {"transactional.id": "gone", "transaction.timeout.ms": ABANDONED_TIMEOUT_MS}
        producer = Producer({**client_settings(self._broker.address), **settings, "message.timeout.ms": 1_000})
        producer.init_transactions(READY_TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(OUTPUT, b"of a transaction that nobody ends", partition=rng.randrange(PARTITIONS))
        producer.flush(READY_TIMEOUT_S)
        report.deeds.append("a transaction abandoned")

    def _new_worker(self, index: int, *, static: bool = True) -> WorkerProcess:
        self._started += 1
        arguments = ["--address", self._broker.address, "--input", INPUT, "--output", OUTPUT, "--group", GROUP]
        arguments += ["--abort-share", str(ABORT_SHARE), "--batch", "20", "--seed", f"{self._seed}:{self._started}"]
        arguments += ["--static"] if static else []
        log = self._broker.directory.parent / f"worker-{self._started}.log"
        return WorkerProcess(f"copier-{index}", log, *arguments)

    def _end_guests(self) -> list[str]:
        failures = []
        for guest in self._guests:
            guest.wait_for(worker.ASSIGNED, READY_TIMEOUT_S)
            guest.signal(signal.SIGTERM)
            if code := guest.wait(READY_TIMEOUT_S):
                failures.append(f"the guest ended with {code}: {guest.why()}")
        self._guests.clear()
        return failures

    def _settle_zombies(self) -> list[str]:
        """A worker that wakes after its successor began must learn of it, and end."""
        failures = []
        for index, zombie in self._zombies:
            self._workers[index].wait_for(worker.ASSIGNED, READY_TIMEOUT_S)
            zombie.signal(signal.SIGCONT)
            if (code := zombie.wait(READY_TIMEOUT_S)) != worker.FENCED:
                failures.append(f"worker {index} was replaced, yet ended with {code}: {zombie.why()}")
        self._zombies.clear()
        return failures

    def _check_workers(self) -> list[str]:
        return [
            f"{process.name} ended by itself with {process.exit_code}: {process.why()}"
            for process in self._workers
            if process.exit_code is not None
        ]

    def _check_input(self) -> list[str]:
        """Checks that the log has all records that the feeder committed, and none that it aborted."""
        failures = self._check_nothing_is_open([INPUT])
        for partition, fed in self._feeder.committed.items():
            found, expected = self._new_values(INPUT, partition), fed[self._copied[partition] :]
            if found != expected:
                failures.append(f"input of partition {partition}: {_difference(found, expected)}")
        return failures

    def _check_copy(self, report: RoundReport) -> list[str]:
        """Reads on, under read_committed, until the copy is complete, and compares each record."""
        failures: list[str] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        for partition, fed in self._feeder.committed.items():
            expected = [worker.MARK + value for value in fed[self._copied[partition] :]]
            copied: list[bytes] = []
            while True:
                copied += self._new_values(OUTPUT, partition)
                if len(copied) >= len(expected) or copied != expected[: len(copied)] or time.monotonic() > deadline:
                    break
            if copied != expected:
                failures.append(f"copy of partition {partition}: {_difference(copied, expected)}")
            self._copied[partition] = len(fed)
            report.copied += len(copied)
        return failures

    def _check_offsets(self) -> list[str]:
        """The group's offsets are those after the last input record that was copied."""
        settings = {"group.id": GROUP, "isolation.level": "read_committed"}
        asker = Consumer({**client_settings(self._broker.address), **settings})
        partitions = [TopicPartition(INPUT, partition) for partition in range(PARTITIONS)]
        expected = {p: self._read_until[INPUT, p] for p in range(PARTITIONS) if self._read_until[INPUT, p]}
        found: dict[int, int] = {}
        deadline = time.monotonic() + READ_TIMEOUT_S
        while found != expected and time.monotonic() < deadline:
            found = {entry.partition: entry.offset for entry in asker.committed(partitions, 30) if entry.offset >= 0}
        asker.close()
        return [] if found == expected else [f"the group's offsets are {found}, the input was read up to {expected}"]

    def _check_nothing_is_open(self, topics: list[str]) -> list[str]:
        behind = wait_until_closed(self._broker.address, topics)
        return [f"still open: {behind} (last stable offset, high watermark)"] if behind else []

    def _new_values(self, topic: str, partition: int) -> list[bytes]:
        values = []
        for message in read(self._broker.address, topic, partition, self._read_until[topic, partition], committed=True):
            values.append(message.value() or b"")
            self._read_until[topic, partition] = (message.offset() or 0) + 1
        return values

    def _values(self, topic: str, partition: int, *, committed: bool) -> list[bytes]:
        return [message.value() or b"" for message in read(self._broker.address, topic, partition, committed=committed)]


def _difference(found: list[bytes], expected: list[bytes]) -> str:
    """Describes the first difference of two lists, and its meaning for a reader."""
    lost, doubled = [value for value in expected if value not in found], len(found) - len(set(found))
    strange = [value for value in found if value not in expected]
    at = next((i for i, pair in enumerate(zip(found, expected)) if pair[0] != pair[1]), min(len(found), len(expected)))
    return (
        f"{len(found)} records where {len(expected)} belong; {len(lost)} missing {lost[:3]}, {doubled} doubled, "
        f"{len(strange)} that do not belong {strange[:3]}; they part at {at}"
    )
