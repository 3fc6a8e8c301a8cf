"""Python clients side by side against one broker: ``python -m bench clients``.

Each load runs in a process of its own (``bench.clients.loads``), the clients of a row take turns, and medians are
compared. ``barnabas-pure`` is our client without its compiled modules. With ``--beside SRC`` the client of another
checkout (compiled there with ``python setup.py build_ext --inplace``) takes part as ``beside``: before and after a
change in one run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import barnabas
from bench import loads, peers, report
from bench.brokers import BrokerProcess, make_broker
from bench.clients.loads import MODULES
from bench.suite import format_number

BEGIN, END = "<!-- clients: written by `make bench-clients` -->", "<!-- end of clients -->"
RUN_TIMEOUT_S = 300
SLOW = {"kafka-python": 10, "barnabas-pure": 4, "aiokafka": 4}
"""The divisor of the number of records for slow clients."""
ROUND_TRIPS = 1000
MEMORY_MAX_MB = 60.0

Results = dict[str, dict[str, dict[str, list[float]]]]
"""Row, client, figure, rounds."""


class Row(NamedTuple):
    """A row of the table; `loads` names the load that each client runs for it."""

    name: str
    loads: Mapping[str, str]
    reads: bool = False


EVERYONE = ("confluent", "aiokafka", "kafka-python", "barnabas")
ROWS = (
    Row("send", dict.fromkeys((*EVERYONE, "barnabas-pure"), "produce")),
    Row("send_many", {"confluent": "produce", "barnabas": "send_many", "barnabas-pure": "send_many"}),
    Row("send_table", {"confluent": "produce", "barnabas": "send_table"}),
    Row("iterate", dict.fromkeys((*EVERYONE, "barnabas-pure"), "consume"), True),
    Row("batches", {"barnabas": "batches"}, True),
    Row("arrow", {"barnabas": "arrow"}, True),
    Row("round trip", dict.fromkeys(EVERYONE, "round_trip")),
    Row("there and back", dict.fromkeys(("confluent", "barnabas"), "there_and_back")),
)
"""A round trip ends when the producer gets the acknowledgement, `there and back` when a consumer gets the record."""


class Goal(NamedTuple):
    """The target of a client's figure: `ratio` times the best of `peers`, or without peers `ratio` itself."""

    row: str
    client: str
    figure: str
    ratio: float
    peers: tuple[str, ...] = ()
    at_least: bool = True

    def verdict(self, row: Mapping[str, Mapping[str, float]]) -> str:
        """Empty if a figure was not measured."""
        value = row.get(self.client, {}).get(self.figure)
        others = [row[peer][self.figure] for peer in self.peers if self.figure in row.get(peer, {})]
        if value is None or (self.peers and not others):
            return ""
        reference = (max(others) if self.at_least else min(others)) if others else 1.0
        met = value >= self.ratio * reference if self.at_least else value <= self.ratio * reference
        sign = ">=" if self.at_least else "<="
        goal = f"{sign} {format_number(self.ratio)}" + (f"x {' and '.join(self.peers)}" if self.peers else "")
        seen = f"{value / reference:.2f}x" if others else format_number(value)
        return f"{self.figure} {goal}: {seen} {'pass' if met else '**FAIL**'}"


GOALS = (
    Goal("send", "barnabas", "records_per_s", 1.0, ("confluent",)),
    Goal("send", "barnabas", "cpu_s_per_M", 1.0, ("confluent",), at_least=False),
    Goal("send", "barnabas-pure", "records_per_s", 1.0, ("aiokafka",)),
    Goal("send_many", "barnabas", "records_per_s", 3.0, ("confluent",)),
    Goal("iterate", "barnabas", "records_per_s", 1.5, ("confluent", "aiokafka")),
    Goal("iterate", "barnabas", "cpu_s_per_M", 1.0, ("confluent",), at_least=False),
    Goal("iterate", "barnabas-pure", "records_per_s", 1.0, ("aiokafka",)),
    Goal("batches", "barnabas", "records_per_s", 5e6),
    Goal("arrow", "barnabas", "records_per_s", 5e6),
    *(
        Goal(row, "barnabas", figure, 1.0, ("confluent",), at_least=False)
        for row in ("round trip", "there and back")
        for figure in ("p50_ms", "p99_ms")
    ),
    *(
        Goal(name, "barnabas", "memory_MB", MEMORY_MAX_MB, at_least=False)
        for name in ("send", "send_many", "iterate", "batches")
    ),
)


class Runner:
    """Runs loads against one broker."""

    def __init__(self, broker: BrokerProcess, records: int, root: Path, beside: str) -> None:
        self.broker = broker
        self.records = records
        self.beside = beside
        """The `src` folder of another checkout, whose client takes part as `beside`."""
        self.results: Results = {}
        self.failures: list[str] = []
        self.missing = {client for client in EVERYONE if find_spec(MODULES.get(client, client)) is None}
        self._full = f"clients-{uuid.uuid4().hex[:8]}"
        self._pure = root / "pure"

    def prepare(self) -> None:
        """Prepares a topic to read from, and our client without compiled modules."""
        shutil.copytree(
            Path(barnabas.__file__).parent,
            self._pure / "barnabas",
            ignore=shutil.ignore_patterns("*.so", "__pycache__"),
            dirs_exist_ok=True,
        )
        loads.create_topic(self.broker, self._full)
        self._run("barnabas", "send_many", self._full, self.records)

    def round(self, row: Row) -> None:
        """Runs every client of the row once."""
        beside = {"beside": row.loads["barnabas"]} if self.beside else {}
        for client, load in {**row.loads, **beside}.items():
            if client in self.missing:
                continue
            topic = self._full
            if not row.reads:
                topic = f"{self._full}-{uuid.uuid4().hex[:8]}"
                loads.create_topic(self.broker, topic)
            count = ROUND_TRIPS if load in ("round_trip", "there_and_back") else self.records // SLOW.get(client, 1)
            try:
                found = self._run(client, load, topic, count)
            except (subprocess.SubprocessError, ValueError) as error:
                self.failures.append(f"{row.name}, {client}: {error}")
                print(f"failed {self.failures[-1]}", file=sys.stderr)
                continue
            figures = self.results.setdefault(row.name, {}).setdefault(client, {})
            for name, value in found.items():
                figures.setdefault(name, []).append(value)
            shown = ", ".join(f"{name} {format_number(value)}" for name, value in found.items())
            print(f"{self.broker.name}: {row.name}, {client}: {shown}", flush=True)

    def _run(self, client: str, load: str, topic: str, count: int) -> dict[str, float]:
        environment = dict(os.environ)
        name = client
        if client == "barnabas-pure":
            name = "barnabas"
            environment["PYTHONPATH"] = str(self._pure)
        if client == "beside":
            name = "barnabas"
            environment["PYTHONPATH"] = self.beside
        command = [sys.executable, "-m", "bench.clients.loads", name, load, self.broker.address, topic, str(count)]
        done = subprocess.run(
            command, cwd=peers.ROOT, env=environment, timeout=RUN_TIMEOUT_S, check=True, capture_output=True, text=True
        )
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures


def main(options: argparse.Namespace) -> int:
    """`python -m bench clients`."""
    rows = [row for row in ROWS if not options.rows or row.name in options.rows.split(",")]
    root = Path(tempfile.mkdtemp(prefix="barnabas-bench-clients-"))
    tables, failures, document = [], [], {}
    try:
        for spec in options.brokers.split(","):
            runner = _measure(make_broker(spec, root), rows, options, root)
            tables.append(markdown(runner.broker.name, runner.results, options))
            tables += [f"- not run: {client} is not installed\n" for client in sorted(runner.missing)]
            failures += runner.failures
            document[runner.broker.name] = runner.results
    finally:
        shutil.rmtree(root, ignore_errors=True)
    report.write_json({"options": vars(options), "results": document, "failures": failures}, Path(options.json))
    text = "\n".join(tables)
    print(f"\n{text}")
    if options.docs:
        report.update_block(text, Path(options.docs), BEGIN, END)
    return 1 if failures else 0


def _measure(broker: BrokerProcess, rows: list[Row], options: argparse.Namespace, root: Path) -> Runner:
    runner = Runner(broker, options.records, root, options.beside)
    broker.start()
    try:
        broker.first_ack_s()
        runner.prepare()
        for row in rows:
            for _ in range(options.rounds):
                runner.round(row)
    finally:
        broker.stop()
    return runner


def markdown(broker: str, results: Mapping[str, Mapping[str, Mapping[str, list[float]]]], options: Any) -> str:
    """Returns a table of medians with the targets."""
    lines = [
        f"Against {broker}:",
        "",
        "| row | client | records/s | CPU-s per M | MB | p50 ms | p99 ms | to be reached |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for row, clients in results.items():
        medians = {
            client: {name: statistics.median(values) for name, values in figures.items()}
            for client, figures in clients.items()
        }
        for client, figures in medians.items():
            names = ("records_per_s", "cpu_s_per_M", "memory_MB", "p50_ms", "p99_ms")
            cells = [format_number(figures[name]) if name in figures else "" for name in names]
            goals = [goal.verdict(medians) for goal in GOALS if (goal.row, goal.client) == (row, client)]
            lines.append(f"| {row} | {client} | {' | '.join(cells)} | {'; '.join(filter(None, goals))} |")
    lines += ["", _caption(options) + report.reference([broker]), ""]
    return "\n".join(lines)


def _caption(options: Any) -> str:
    fewer = ", ".join(f"a {_SHARES[part]} of them for {client}" for client, part in SLOW.items())
    return (
        f"Medians of {options.rounds} alternating rounds of {options.records:,} records of 100 B ({fewer}) over four"
        f" partitions; {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {os.cpu_count()} cores shared with the broker."
    )


_SHARES = {4: "quarter", 10: "tenth"}
