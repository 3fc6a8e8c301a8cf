"""Our own consumer under SIGKILL, of the broker and of itself, while a producer writes; and stopped for longer than its
session lasts, so that it goes on after others have its partitions.

Whoever commits after its work loses nothing, whoever commits before it does nothing twice, and a pool of workers loses
nothing; clients that are not killed live through the broker's deaths, and end when they are asked to.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import barnabas
from barnabas.types import TopicPartition
from bench.brokers import BrokerProcess
from worker_process import WorkerProcess
from workload import create_topic

PROGRAM = Path(__file__).with_name("reader.py")
TOPIC = "consumed"
PARTITIONS = 4
ORDERS = {"after": "cooperative-sticky", "before": "range", "process": "cooperative-sticky"}
"""Each is a group, with a synchronous and an asyncio member, and its assignor."""
FRONTS = ("sync", "aio")
RECORDS = 1200
END_TIMEOUT_S = 120
STOPPED_S = (1.0, 5.0)
"""The session lasts 2 s."""
SETTINGS = ("num.partitions=4", "group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000")


@dataclass(slots=True)
class RoundReport:
    """One round in figures, for the line that is printed."""

    number: int
    deeds: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    twice: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        state = "ok" if not self.failures else f"FAILED ({len(self.failures)})"
        deeds = ", ".join(self.deeds) or "undisturbed"
        done = ", ".join(f"{order} {self.done[order]} (+{self.twice[order]})" for order in ORDERS)
        return f"round {self.number}: {deeds}; done {done}: {state}"


class ConsumerTest:
    """A broker's life; readers live from round to round unless they are killed."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker, self._seed = broker, seed
        self._readers: dict[tuple[str, str], WorkerProcess] = {}
        self._started = 0
        self._kills: Counter[str] = Counter()
        self._lost_before = self._twice_after = 0
        self._folder = broker.directory.parent

    def prepare(self) -> None:
        self._broker.start()
        self._broker.first_ack_s()
        create_topic(self._broker.address, TOPIC, PARTITIONS)
        for order in ORDERS:
            for front in FRONTS:
                self._start(order, front)

    def _start(self, order: str, front: str) -> None:
        self._started += 1
        name = f"{order}-{front}-{self._started}"
        arguments = ["--address", self._broker.address, "--topic", TOPIC, "--group", order, "--order", order]
        arguments += ["--front", front, "--assignor", ORDERS[order], "--notes", str(self._notes(order))]
        self._readers[order, front] = WorkerProcess(name, self._folder / f"{name}.log", *arguments, program=PROGRAM)

    def _notes(self, order: str) -> Path:
        return self._folder / f"{order}.notes"

    def run_round(self, number: int) -> RoundReport:
        rng = random.Random(f"{self._seed}:{number}")
        report = RoundReport(number)
        with barnabas.Producer(bootstrap_servers=self._broker.address, reconnect_backoff_max_ms=100) as producer:
            plan = self._plan(rng, report)
            began = time.monotonic()
            for sent in range(RECORDS):
                producer.send(TOPIC, b"%d" % sent, key=b"%d" % rng.randrange(50), partition=rng.randrange(PARTITIONS))
                time.sleep(0.001)
                while plan and time.monotonic() >= began + plan[0][0]:
                    plan.pop(0)[1]()
            for moment, deed in plan:
                time.sleep(max(began + moment - time.monotonic(), 0))
                deed()
        try:
            self._wait_for_the_end()
        except TimeoutError as error:
            report.failures.append(str(error))
        self._check(report)
        report.failures += [
            f"{reader.name} ended with {reader.exit_code}: {reader.why()}"
            for reader in self._readers.values()
            if reader.exit_code is not None
        ]
        return report

    def _plan(self, rng: random.Random, report: RoundReport) -> list[tuple[float, Callable[[], None]]]:
        """Returns the faults of a round, each with its time in seconds from the round's beginning."""
        deeds: list[tuple[float, str, Callable[[], None]]] = []
        if rng.random() < 0.7:
            down = rng.uniform(0.05, 1.5)
            deeds.append((down, f"broker killed at {down:.2f}", self._kill_broker))
            deeds.append((down + rng.choice((0.0, rng.uniform(0.0, 0.5))), "", self._broker.start))
        for _ in range(rng.choice((0, 1, 1, 2))):
            order, front, moment = rng.choice([*ORDERS]), rng.choice(FRONTS), rng.uniform(0.05, 1.8)
            deeds.append((moment, f"{order}-{front} killed at {moment:.2f}", partial(self._kill_reader, order, front)))
        if rng.random() < 0.4:
            order, front, moment = rng.choice([*ORDERS]), rng.choice(FRONTS), rng.uniform(0.05, 1.8)
            stopped_s = rng.uniform(*STOPPED_S)
            name = f"{order}-{front} stopped at {moment:.2f} for {stopped_s:.1f} s"
            deeds.append((moment, name, partial(self._stop_reader, order, front)))
            deeds.append((moment + stopped_s, "", partial(self._wake_reader, order, front)))
        deeds.sort(key=lambda deed: deed[0])
        report.deeds += [name for _, name, _ in deeds if name]
        return [(moment, deed) for moment, _, deed in deeds]

    def _kill_broker(self) -> None:
        self._kills["broker"] += 1
        self._broker.stop(signal.SIGKILL)

    def _kill_reader(self, order: str, front: str) -> None:
        self._kills["reader"] += 1
        self._readers[order, front].kill()
        self._start(order, front)

    def _stop_reader(self, order: str, front: str) -> None:
        self._kills["stopped reader"] += 1
        self._readers[order, front].signal(signal.SIGSTOP)

    def _wake_reader(self, order: str, front: str) -> None:
        """Or the one that has come in its place, which does not mind."""
        self._readers[order, front].signal(signal.SIGCONT)

    # --- what must hold ---------------------------------------------------------------------------------------------

    def _ends(self) -> dict[TopicPartition, int]:
        with barnabas.Consumer(bootstrap_servers=self._broker.address) as consumer:
            return consumer.end_offsets([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])

    def _wait_for_the_end(self) -> None:
        """Until each group has committed all there is."""
        ends = self._ends()
        for order in ORDERS:
            deadline = time.monotonic() + END_TIMEOUT_S
            with barnabas.Consumer(bootstrap_servers=self._broker.address, group_id=order) as consumer:
                while True:
                    found = consumer.committed([*ends])
                    left = {topic_partition.partition: each and each.offset for topic_partition, each in found.items()}
                    if all(left[topic_partition.partition] == end for topic_partition, end in ends.items()):
                        break
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"group {order} stands at {left}, the ends are {ends}")
                    time.sleep(0.05)
        time.sleep(0.2)  # who commits before its work has it still to do

    def _check(self, report: RoundReport) -> None:
        there = {
            (topic_partition.partition, offset)
            for topic_partition, end in self._ends().items()
            for offset in range(end)
        }
        for order in ORDERS:
            lines = self._notes(order).read_text().splitlines()
            done = Counter((int(partition), int(offset)) for partition, offset in map(str.split, lines))
            report.done[order] = len(done)
            report.twice[order] = done.total() - len(done)
            strange = sorted(done.keys() - there)
            if strange:
                report.failures.append(f"{order}: {len(strange)} records that are not there: {strange[:5]}")
            lost = sorted(there - done.keys())
            twice = sorted(at for at, count in done.items() if count > 1)
            if order == "before":
                self._lost_before = len(lost)
                if twice:
                    report.failures.append(f"{order}: {len(twice)} records were done twice: {twice[:5]}")
            elif lost:
                report.failures.append(f"{order}: {len(lost)} records were lost: {lost[:5]}")
        self._twice_after = report.twice["after"] + report.twice["process"]

    def check_all(self) -> list[str]:
        """Readers end when they are asked to."""
        failures = []
        for key, reader in list(self._readers.items()):
            reader.signal(signal.SIGTERM)
            code = reader.wait(END_TIMEOUT_S)
            if code:
                failures.append(f"{reader.name} ended with {code}: {reader.why()}")
            self._start(*key)
        return failures

    def stop(self) -> None:
        for reader in self._readers.values():
            reader.kill()

    def summary(self) -> str:
        kills = ", ".join(f"{count} {what}s" for what, count in sorted(self._kills.items()))
        return (
            f"nothing lost after, nothing twice before; killed or stopped: {kills or 'nobody'}; what is not promised"
            f" happened: {self._twice_after} done twice after, {self._lost_before} lost before"
        )
