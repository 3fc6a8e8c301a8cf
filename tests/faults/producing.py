"""Our own producer under SIGKILL, of the broker and of itself, while it sends with acks=all and in transactions.

An idempotent sender's records stand in each partition from its first to some last one, each once and in order, with
all that it heard acknowledged, at the offsets that it heard. Of transactions a reader of committed records sees those
that were committed, whole and once, those whose commit was under way when the sender died whole or not at all, and of
the others nothing.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.brokers import BrokerProcess
from worker_process import WorkerProcess
from workload import create_topic, read, wait_until_closed

PROGRAM = Path(__file__).with_name("sender.py")
PLAIN, COMMITTED = "plain", "transactional"
PARTITIONS = 3
SENDERS = 3  # the last one is the transactional one
END_TIMEOUT_S = 120
SETTINGS = ("num.partitions=3",)


@dataclass(slots=True)
class RoundReport:
    """One round in figures, for the line that is printed."""

    number: int
    deeds: list[str] = field(default_factory=list)
    records: int = 0
    transactions: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        state = "ok" if not self.failures else f"FAILED ({len(self.failures)})"
        deeds = ", ".join(self.deeds) or "undisturbed"
        return f"round {self.number}: {deeds}; {self.records} records, {self.transactions} transactions: {state}"


@dataclass(slots=True)
class Life:
    """One process, and the file of what it heard."""

    name: str
    process: WorkerProcess
    heard: Path
    killed: bool = False

    def lines(self) -> Iterator[list[str]]:
        if self.heard.exists():
            for line in self.heard.read_text().splitlines():
                yield line.split()


class ProducerTest:
    """A broker's life; each round has its own senders, and what was read before is not read again."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker = broker
        self._seed = seed
        self._lives: list[Life] = []
        self._current: list[Life] = []
        self._started = 0
        self._read_until: Counter[tuple[str, int]] = Counter()
        self._kills: Counter[str] = Counter()
        self._records = self._transactions = 0

    def prepare(self) -> None:
        self._broker.start()
        self._broker.first_ack_s()
        for topic in (PLAIN, COMMITTED):
            create_topic(self._broker.address, topic, PARTITIONS)

    def run_round(self, number: int) -> RoundReport:
        rng = random.Random(f"{self._seed}:{number}")
        report = RoundReport(number)
        self._lives.clear()
        self._current = [self._new_life(index) for index in range(SENDERS)]
        for life in self._current:
            self._wait_for_work(life)
        began = time.monotonic()
        for moment, deed in self._plan(rng, report):
            time.sleep(max(0.0, began + moment - time.monotonic()))
            deed()
        try:
            report.failures += self._end()
            report.failures += self._check_plain(report)
            report.failures += self._check_transactions(report)
        except TimeoutError as error:
            report.failures.append(str(error))
        self._records += report.records
        self._transactions += report.transactions
        return report

    def check_all(self) -> list[str]:
        return [] if self._transactions and self._records else ["nothing was sent: this run proves nothing"]

    def stop(self) -> None:
        for life in self._lives:
            life.process.kill()

    def summary(self) -> str:
        kills = ", ".join(f"{count} {what}s" for what, count in sorted(self._kills.items()))
        return f"{self._records} records and {self._transactions} transactions, each once; killed: {kills or 'nobody'}"

    def _plan(self, rng: random.Random, report: RoundReport) -> list[tuple[float, Callable[[], None]]]:
        """Returns the faults of a round, each with its time in seconds from the round's beginning."""
        deeds: list[tuple[float, str, Callable[[], None]]] = []
        if rng.random() < 0.8:
            down = rng.uniform(0.05, 0.9)
            deeds.append((down, f"broker killed at {down:.3f}", self._kill_broker))
            deeds.append((down + rng.choice((0.0, rng.uniform(0.0, 0.3))), "", self._broker.start))
        for _ in range(rng.choice((0, 1, 1, 2))):
            index, moment = rng.randrange(SENDERS), rng.uniform(0.05, 0.9)
            deeds.append((moment, f"sender {index} killed at {moment:.3f}", partial(self._kill_sender, index)))
        deeds.append((rng.uniform(0.5, 1.0), "", lambda: None))  # a quiet round has its length too
        deeds.sort(key=lambda deed: deed[0])
        report.deeds += [name for _, name, _ in deeds if name]
        return [(moment, deed) for moment, _, deed in deeds]

    def _kill_broker(self) -> None:
        self._kills["broker"] += 1
        self._broker.stop(signal.SIGKILL)

    def _kill_sender(self, index: int) -> None:
        self._kills["sender"] += 1
        self._current[index].killed = True
        self._current[index].process.kill()
        self._current[index] = self._new_life(index)

    def _new_life(self, index: int) -> Life:
        self._started += 1
        transactional = index == SENDERS - 1
        name = f"sender-{self._started}"
        folder = self._broker.directory.parent
        heard = folder / f"{name}.heard"
        arguments = ["--address", self._broker.address, "--partitions", str(PARTITIONS), "--heard", str(heard)]
        arguments += ["--topic", COMMITTED if transactional else PLAIN, "--seed", f"{self._seed}:{self._started}"]
        arguments += ["--transactional-id", "sender"] if transactional else []
        process = WorkerProcess(name, folder / f"{name}.log", *arguments, program=PROGRAM)
        life = Life(name, process, heard)
        self._lives.append(life)
        return life

    def _wait_for_work(self, life: Life) -> None:
        deadline = time.monotonic() + END_TIMEOUT_S
        while not (life.heard.exists() and life.heard.stat().st_size):
            if time.monotonic() > deadline or life.process.exit_code is not None:
                raise TimeoutError(f"{life.name} does not begin: {life.process.why()}")
            time.sleep(0.002)

    def _end(self) -> list[str]:
        """Lets the living finish: a new one may only have begun, and then begins before it ends."""
        for life in self._current:
            self._wait_for_work(life)
            life.process.signal(signal.SIGTERM)
        return [
            f"{life.name} ended with {code}: {life.process.why()}"
            for life in self._current
            if (code := life.process.wait(END_TIMEOUT_S))
        ]

    # --- what must hold ---------------------------------------------------------------------------------------------

    def _check_plain(self, report: RoundReport) -> list[str]:
        found: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for partition in range(PARTITIONS):
            for offset, (name, sequence) in self._new(PLAIN, partition):
                found.setdefault((name, partition), []).append((int(sequence), offset))
        failures: list[str] = []
        for (name, partition), records in found.items():
            sequences = [sequence for sequence, _ in records]
            if sequences != list(range(len(sequences))):
                at = next(i for i, sequence in enumerate(sequences) if sequence != i)
                failures.append(f"{name} in partition {partition}: {sequences[at]} stands where {at} belongs")
            report.records += len(records)
        for life in self._lives:
            failures += self._check_heard(
                life, {key[1]: dict(all_) for key, all_ in found.items() if key[0] == life.name}
            )
        return failures

    def _check_heard(self, life: Life, found: dict[int, dict[int, int]]) -> list[str]:
        failures = []
        for what, *numbers in life.lines():
            if what == "failed":
                failures.append(f"{life.name}: record {numbers[:2]} failed: {' '.join(numbers[2:])}")
            elif what == "ack":
                partition, sequence, offset = map(int, numbers)
                there = found.get(partition, {}).get(sequence)
                if there is None:
                    failures.append(
                        f"{life.name}: record {sequence} of partition {partition} was acknowledged and is lost"
                    )
                elif offset not in (-1, there):
                    failures.append(f"{life.name}: record {sequence} stands at {there}, acknowledged was {offset}")
            elif what == "end" and numbers:
                counts = [len(found.get(partition, {})) for partition in range(PARTITIONS)]
                if counts != [int(number) for number in numbers]:
                    failures.append(f"{life.name} has sent {numbers} records, {counts} are there")
        return failures

    def _check_transactions(self, report: RoundReport) -> list[str]:
        behind = wait_until_closed(self._broker.address, [COMMITTED])
        failures = [f"still open: {behind} (last stable offset, high watermark)"] if behind else []
        seen: dict[tuple[str, int], list[int]] = {}
        sizes: dict[tuple[str, int], int] = {}
        for partition in range(PARTITIONS):
            for _, (name, number, index, count) in self._new(COMMITTED, partition):
                seen.setdefault((name, int(number)), []).append(int(index))
                sizes[name, int(number)] = int(count)
        for key, indexes in seen.items():
            if sorted(indexes) != list(range(sizes[key])):
                failures.append(f"transaction {key}: records {sorted(indexes)} of {sizes[key]} are seen")
        for life in self._lives:
            failures += self._check_ends(life, {number for name, number in seen if name == life.name})
        report.transactions += len(seen)
        return failures

    def _check_ends(self, life: Life, seen: set[int]) -> list[str]:
        ends = {"committed": set[int](), "aborted": set[int]()}
        for what, *numbers in life.lines():
            if what in ends:
                ends[what].add(int(numbers[0]))
        failures = []
        if lost := ends["committed"] - seen:
            failures.append(f"{life.name}: committed transactions {sorted(lost)} are not seen")
        if shown := ends["aborted"] & seen:
            failures.append(f"{life.name}: aborted transactions {sorted(shown)} are seen")
        unknown = seen - ends["committed"] - ends["aborted"]
        if len(unknown) > (1 if life.killed else 0):
            failures.append(f"{life.name}: transactions {sorted(unknown)} are seen, of which it never heard the end")
        return failures

    def _new(self, topic: str, partition: int) -> Iterator[tuple[int, list[str]]]:
        """(offset, words of the value) of what was not read before."""
        start = self._read_until[topic, partition]
        for message in read(self._broker.address, topic, partition, start, committed=topic == COMMITTED):
            offset = message.offset() or 0
            self._read_until[topic, partition] = offset + 1
            yield offset, (message.value() or b"").decode().split()
