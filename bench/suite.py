"""The rows of the table, run alternately on every broker: A, B, A, B, round after round."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from bench import loads, transactions
from bench.brokers import BrokerFailed, BrokerProcess
from bench.loads import Figures

S = TypeVar("S", bound=Any)
"""A frozen dataclass with ``rounds``."""

LOAD_BEFORE_MEMORY_BYTES = 3_000_000_000


@dataclass(frozen=True, slots=True)
class Scale:
    """The amount of data in one round. The quick scale only shows that everything runs; its figures are no results."""

    rounds: int = 3
    records_100b: int = 3_000_000
    records_1kb: int = 700_000
    latency_s: int = 8
    end_to_end_records: int = 3_000
    transactions_of_1: int = 500
    transactions_of_1000: int = 100
    loop_records: int = 60_000
    topics: int = 1_000
    connections: int = 1_000
    raw_fetch_s: float = 5.0
    settle_s: float = 3.0
    idle_s: float = 5.0
    load_before_memory_bytes: int = LOAD_BEFORE_MEMORY_BYTES


QUICK = Scale(
    rounds=1,
    records_100b=300_000,
    records_1kb=70_000,
    latency_s=2,
    end_to_end_records=300,
    transactions_of_1=100,
    transactions_of_1000=20,
    loop_records=6_000,
    topics=100,
    connections=100,
    raw_fetch_s=1.0,
    settle_s=1.0,
    idle_s=2.0,
    load_before_memory_bytes=0,
)


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    size: int
    acks: int
    codec: str

    @property
    def topic(self) -> str:
        return "load-" + re.sub(r"[^a-z0-9]+", "-", self.name.lower())

    def records(self, scale: Scale) -> int:
        return scale.records_1kb if self.size > 100 else scale.records_100b


LOADS = (
    Load("100 B acks=1", 100, 1, "none"),
    Load("100 B acks=all", 100, -1, "none"),
    Load("100 B lz4", 100, -1, "lz4"),
    Load("100 B zstd", 100, -1, "zstd"),
    Load("1 KB acks=all", 1024, -1, "none"),
)
RAW_FETCH_PARTITION_BYTES = {"raw fetch 1 KB": 1 << 20, "raw fetch 1 KB, 8 MiB a partition": 8 << 20}
LATENCY_RATES = {"latency 1,000/s": 1_000, "latency 10,000/s": 10_000}
INIT, SMALL = "init_transactions", "transaction of 1 record"
LARGE, LOOP = "transaction of 1,000 records", "read-process-write"
NEW_TRANSACTIONAL_IDS = 20  # of one round; the first of a broker's life makes the coordinator's topic too


def chosen_scale(options: argparse.Namespace, full: S, quick: S) -> S:
    """The scale that ``--quick`` and ``--rounds`` ask for."""
    chosen = quick if options.quick else full
    return replace(chosen, rounds=options.rounds) if options.rounds else chosen


class Measurements:
    """Keeps the figures of the chosen rows; ``results[row][figure][broker]`` is the list of the rounds' values."""

    def __init__(self, rounds: int, rows: Sequence[str]) -> None:
        self.rounds = rounds
        self._rows = [re.compile(row, re.IGNORECASE) for row in rows]
        self.results: dict[str, dict[str, dict[str, list[float]]]] = {}
        self.failures: list[str] = []
        self._began = time.monotonic()

    def wanted(self, row: str) -> bool:
        return not self._rows or any(pattern.search(row) for pattern in self._rows)

    def take(self, row: str, name: str, round_number: int, measure: Callable[[], Figures]) -> bool:
        """Runs one measurement of a broker. Returns False if it failed, which is noted."""
        try:
            figures = measure()
        except (BrokerFailed, OSError, *loads.LOAD_ERRORS) as error:
            self.failures.append(f"{row}, {name}: {one_line(error)}")
            print(f"{self.clock()} {self.failures[-1]}", file=sys.stderr, flush=True)
            return False
        if self.wanted(row):
            for figure, value in figures.items():
                self.results.setdefault(row, {}).setdefault(figure, {}).setdefault(name, []).append(value)
            shown = "  ".join(f"{figure} {format_number(value)}" for figure, value in figures.items())
            print(f"{self.clock()} {round_number + 1}/{self.rounds}  {row:34} {name:10} {shown}", flush=True)
        return True

    def clock(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"[{seconds // 60:02}:{seconds % 60:02}]"


class Suite(Measurements):
    """Runs the chosen rows on every broker in turn."""

    def __init__(self, brokers: Sequence[BrokerProcess], scale: Scale, rows: Sequence[str]) -> None:
        super().__init__(scale.rounds, rows)
        self.brokers = brokers
        self.scale = scale

    def run(self) -> None:
        scale = self.scale
        self._starts()
        self._throughput()
        self._memory_after_load()
        self._latencies()
        self._end_to_end()
        self._transactions()
        if self.wanted("1,000 connections"):
            self._alternate("1,000 connections", range(1), loads.many_connections, scale.connections)
        self._restarts()
        if self.wanted("1,000 topics"):
            self._alternate("1,000 topics", range(1), loads.many_topics, scale.topics)

    def _starts(self) -> None:
        """Measures the time from an empty directory to the first acknowledged record, then the idle broker; the last
        start stays up."""
        measured = self.wanted("start") or self.wanted("idle")
        for round_number in range(self.scale.rounds if measured else 1):
            for broker in self.brokers:
                broker.stop()
                broker.clear()
                broker.start()
                self._record("start", broker, round_number, loads.first_ack)
                if self.wanted("idle"):
                    self._record("idle", broker, round_number, loads.idle, self.scale.settle_s, self.scale.idle_s)

    def _throughput(self) -> None:
        rounds = range(self.scale.rounds)
        for load in LOADS:
            produce_row, consume_row = f"produce {load.name}", f"consume {load.name}"
            raw_rows = [row for row in RAW_FETCH_PARTITION_BYTES if load.size > 100 and self.wanted(row)]
            if not (self.wanted(produce_row) or self.wanted(consume_row) or raw_rows):
                continue
            count = load.records(self.scale)
            arguments = (load.topic, load.size, count, load.acks, load.codec)
            self._prepare(produce_row, loads.create_topic, load.topic)
            self._prepare(
                produce_row, loads.produce, load.topic, load.size, count // 10, load.acks, load.codec
            )  # a JIT
            produce_rounds = rounds if self.wanted(produce_row) else range(1)
            self._alternate(produce_row, produce_rounds, loads.produce, *arguments)
            if self.wanted(consume_row):
                self._alternate(consume_row, rounds, loads.consume, load.topic, load.size, count)
            for row in raw_rows:
                limit = RAW_FETCH_PARTITION_BYTES[row]
                self._alternate(row, rounds, loads.raw_fetch, load.topic, self.scale.raw_fetch_s, limit)
            self._empty_memory_brokers()

    def _empty_memory_brokers(self) -> None:
        """Restarts a broker that keeps its records in memory, whose gigabytes would take the page cache of the
        others."""
        for broker in self.brokers:
            if not broker.durable:
                broker.stop()
                broker.clear()
                broker.start()
                broker.first_ack_s()

    def _memory_after_load(self) -> None:
        """Private memory after at least 3 GB went through the broker since its start."""
        if not self.wanted("memory after load"):
            return
        load, records = LOADS[-1], self.scale.records_1kb
        needed, arguments = self.scale.load_before_memory_bytes, (load.size, records, load.acks, load.codec)
        for broker in self.brokers:
            self._record("memory after load", broker, 0, loads.memory_after, needed, *arguments)
        self._empty_memory_brokers()

    def _latencies(self) -> None:
        for row, rate in LATENCY_RATES.items():
            if self.wanted(row):
                topic = f"latency-{rate}"
                self._prepare(row, loads.create_topic, topic, 1)
                seconds = self.scale.latency_s
                self._alternate(row, range(self.scale.rounds), loads.produce_latency, topic, rate, seconds)

    def _end_to_end(self) -> None:
        if self.wanted("end to end"):
            topic, rounds = "end-to-end", range(self.scale.rounds)
            self._prepare("end to end", loads.create_topic, topic, 1)
            self._alternate("end to end", rounds, loads.end_to_end, topic, self.scale.end_to_end_records)

    def _transactions(self) -> None:
        rounds, topic = range(self.scale.rounds), "transactions"
        if self.wanted(INIT):
            self._alternate(INIT, rounds, transactions.initialise, NEW_TRANSACTIONAL_IDS)
        if self.wanted(SMALL) or self.wanted(LARGE):
            self._prepare(f"{SMALL}, {LARGE}", loads.create_topic, topic)
        if self.wanted(SMALL):
            self._alternate(SMALL, rounds, transactions.small, topic, self.scale.transactions_of_1)
        if self.wanted(LARGE):
            self._alternate(LARGE, rounds, transactions.large, topic, self.scale.transactions_of_1000)
        if self.wanted(LOOP):
            topic, records = "loop", self.scale.loop_records
            self._prepare(LOOP, transactions.prepare_loop, topic, records)
            self._alternate(LOOP, rounds, transactions.read_process_write, topic, records)

    def _restarts(self) -> None:
        if not self.wanted("restart"):
            return
        durable = [broker for broker in self.brokers if broker.durable]
        self._prepare("restart", loads.create_topic, "restart")
        for round_number in range(self.scale.rounds):
            for broker in durable:
                self._record("restart", broker, round_number, loads.kill_under_load_and_restart, "restart")

    def _alternate(self, row: str, rounds: range, measure: Callable[..., Figures], *arguments: object) -> None:
        for round_number in rounds:
            for broker in self.brokers:
                self._record(row, broker, round_number, measure, *arguments)

    def _prepare(self, row: str, action: Callable[..., object], *arguments: object) -> None:
        """Prepares a row on every broker. A broker that fails here also fails the row, where the failure is noted."""
        for broker in self.brokers:
            try:
                action(broker, *arguments)
            except (BrokerFailed, OSError, *loads.LOAD_ERRORS) as error:
                print(f"{self.clock()} preparing {row}, {broker.name}: {one_line(error)}", file=sys.stderr, flush=True)

    def _record(
        self, row: str, broker: BrokerProcess, round_number: int, measure: Callable[..., Figures], *arguments: object
    ) -> None:
        """Runs one measurement. A broker that fails a row continues with the next; one that has died is restarted."""
        if not self.take(row, broker.name, round_number, lambda: measure(broker, *arguments)) and not broker.running:
            broker.start()
            broker.first_ack_s()


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".replace("\n", " ")[:300]


def stop_all(brokers: Sequence[BrokerProcess]) -> None:
    for broker in brokers:
        broker.stop(signal.SIGKILL)


def format_number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
