"""A model of the sink's world: brokers with Kafka's rules for transactions, and drivers with tasks that run, stop and
die between any two steps. What a schedule decides is who takes the next step, and who dies before it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from barnabas.spark.sink.decision import Decision, Transaction
from barnabas.spark.sink.two_phase import (
    Commit,
    EndTransactions,
    FilterOpenTransactions,
    ListOpenTransactions,
    PeekDecision,
    ReadDecision,
    Step,
    TakeOver,
    WriteDecision,
    commit,
    driver_id,
    refusal,
    task_id,
)

WRITER = "q"
TASKS = 2
Protocol = Callable[..., Commit]
Query = Callable[..., Iterator[None]]
T = TypeVar("T")


class Fenced(Exception):
    """The epoch is over."""


@dataclass
class Held:
    """What the coordinator knows of a transactional id."""

    epoch: int = -1
    rows: list[object] = field(default_factory=list)
    ended: tuple[int, bool] | None = None
    """The epoch that was ended last, and how."""


class Brokers:
    """Committed rows in their order, and the group's decision."""

    def __init__(self) -> None:
        self.ids: dict[str, Held] = {}
        self.visible: list[object] = []
        self.decision: Decision | None = None

    def init(self, name: str) -> int:
        held = self.ids.setdefault(name, Held())
        held.rows = []
        held.epoch += 1
        return held.epoch

    def check(self, name: str, epoch: int) -> Held:
        held = self.ids[name]
        if held.epoch != epoch:
            raise Fenced(name)
        return held

    def end(self, transaction: Transaction, *, commits: bool) -> None:
        held = self.ids[transaction.transactional_id]
        epoch = transaction.producer_epoch
        if held.ended == (epoch, commits) and held.epoch == epoch + 1:
            return  # a repeat
        self.check(transaction.transactional_id, epoch)
        if commits:
            self.visible += held.rows
        held.rows, held.ended, held.epoch = [], (epoch, commits), epoch + 1

    def open(self) -> list[Transaction]:
        return [Transaction(name, 0, held.epoch) for name, held in self.ids.items() if held.rows]


class Checkpoint:
    """The batches that Spark believes to be committed."""

    last = -1


def task(
    brokers: Brokers, run: str, partition: int, attempt: int, batch: int, out: list[Transaction]
) -> Iterator[None]:
    name = task_id(WRITER, run, f"{partition}.{attempt}")
    yield
    epoch = brokers.init(name)
    yield
    brokers.check(name, epoch).rows.append((batch, partition))
    out.append(Transaction(name, 0, epoch))


def saves(brokers: Brokers, checkpoint: Checkpoint, run: str, batches: int, protocol: Protocol) -> Iterator[None]:
    """Batch writes under one name, each a run of its own: it takes over before its tasks begin, unless it is late, and
    goes on with that epoch when they are done."""
    for batch in range(checkpoint.last + 1, batches):
        mine = f"{batch}{run}"
        if refusal(batch, mine, brokers.decision):
            raise Fenced
        yield
        epoch = brokers.init(driver_id(WRITER))
        written: list[Transaction] = []
        for partition in range(TASKS):
            yield from task(brokers, mine, partition, 0, batch, written)
        yield from driven(brokers, protocol(batch, mine, written), epoch, continues=True)
        yield
        checkpoint.last = max(checkpoint.last, batch)


def driver(brokers: Brokers, checkpoint: Checkpoint, run: str, batches: int, protocol: Protocol) -> Iterator[None]:
    """From the checkpoint on. Its first task fails once, after it has written; when all have succeeded a copy of it
    writes as well, and does not count."""
    latest, has_taken_over, epoch = None, False, -1
    first = checkpoint.last + 1
    for batch in range(first, batches):
        written: list[Transaction] = []
        if batch == first:
            yield from task(brokers, run, 0, 0, batch, [])
        for partition in range(TASKS):
            yield from task(brokers, run, partition, 1, batch, written)
        if batch == first:
            yield from task(brokers, run, 0, 2, batch, [])
        steps = protocol(batch, run, written, latest=latest, has_taken_over=has_taken_over)
        latest, epoch = yield from driven(brokers, steps, epoch)
        has_taken_over = True
        yield
        checkpoint.last = max(checkpoint.last, batch)


def driven(
    brokers: Brokers, steps: Generator[Step, object, T], epoch: int, *, continues: bool = False
) -> Generator[None, None, tuple[T, int]]:
    answer: object = None
    me = driver_id(WRITER)
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as ended:
            return ended.value, epoch
        answer = None
        yield
        if isinstance(step, TakeOver):
            if continues:
                brokers.check(me, epoch)
            epoch = brokers.init(me)
        elif isinstance(step, PeekDecision | ReadDecision):
            answer = brokers.decision
        elif isinstance(step, ListOpenTransactions):
            answer = [each for each in brokers.open() if each.transactional_id not in step.known]
        elif isinstance(step, FilterOpenTransactions):
            answer = [each for each in step.transactions if each in brokers.open()]
        elif isinstance(step, WriteDecision):
            brokers.check(me, epoch)
            brokers.decision = step.decision
        else:
            assert isinstance(step, EndTransactions)
            for transaction in step.commits:
                brokers.end(transaction, commits=True)
                yield
            for transaction in step.aborts:
                with contextlib.suppress(Fenced):
                    brokers.end(transaction, commits=False)
                yield


@dataclass
class Outcome:
    """What readers have at the end, beside what they should have."""

    visible: Counter[object]
    wanted: Counter[object]
    left_open: list[Transaction]

    @property
    def is_exact(self) -> bool:
        return self.visible == self.wanted and not self.left_open


BATCHES = 3


def play(schedule: Sequence[int], protocol: Protocol = commit, runs_as: Query = driver) -> tuple[Outcome, int]:
    """Two drivers over one checkpoint. Each number is who goes on (0, 1), or who dies (2, 3) to begin anew; when the
    schedule is over those that live run to their ends in turn, then a last driver runs alone. Also how many steps were
    taken."""
    brokers, checkpoint = Brokers(), Checkpoint()
    runs = iter(range(1000))

    def begin() -> Iterator[None]:
        return runs_as(brokers, checkpoint, f"{next(runs):08x}-run", BATCHES, protocol)

    live: list[Iterator[None] | None] = [begin(), begin()]
    taken = 0

    def go(who: int) -> bool:
        nonlocal taken
        it = live[who]
        if it is None:
            return False
        try:
            next(it)
            taken += 1
        except (StopIteration, Fenced):
            live[who] = None
        return True

    for choice in schedule:
        if choice >= 2:
            live[choice - 2] = begin()
        elif not go(choice) and not go(1 - choice):
            break
    for who in (0, 1):
        while go(who):
            pass
    return outcome_of(brokers, checkpoint, runs_as, protocol), taken


def outcome_of(brokers: Brokers, checkpoint: Checkpoint, runs_as: Query, protocol: Protocol) -> Outcome:
    """When a last driver has run alone."""
    for _ in runs_as(brokers, checkpoint, "lastlast", BATCHES + 1, protocol):
        pass
    wanted = Counter((batch, partition) for batch in range(BATCHES + 1) for partition in range(TASKS))
    return Outcome(Counter(brokers.visible), wanted, brokers.open())
