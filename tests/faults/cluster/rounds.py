"""Rounds of faults of a cluster, each with a cluster, a plan and a history of its own, drawn from its own seed."""

from __future__ import annotations

import logging
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.errors import BarnabasError
from barnabas.types import TopicPartition
from bench.peers import KAFKA_VERSION
from cluster.bad_allocator import why_not
from cluster.brokers import BrokersFailed, ClusterProcesses
from cluster.checker import check
from cluster.executor import Executor
from cluster.plan import BAD_MACHINE, DIRECTORIES, PAUSE_S, Deed, Fault, draw
from cluster.replicas import difference, log_bytes
from cluster.timeline import Felt, felt, longest_gap, summary, unserved
from cluster.transactional_clients import TRANSACTION_TIMEOUT_MS
from cluster.workload import FEED, GROUP, LEDGER, PARTITIONS, TRANSACTIONAL_ID, Workload

if TYPE_CHECKING:
    from network_namespaces import Network

__all__ = ["Options", "run"]

REPLICAS, MIN_IN_SYNC = 3, 2
ZOOKEEPER_SESSIONS_MS = (3_000, 6_000, 10_000)
SERVED_S = 35.0
"""The time in which a majority serves all partitions again: the sessions of the controller and of the leaders end, one
after the other."""
EQUAL_TIMEOUT_S = 20.0
DUMP_TIMEOUT_S = 120
KAFKA_LIBS = Path(__file__).resolve().parents[3] / "build" / "interop" / f"kafka-{KAFKA_VERSION}"
BAD_OUTPUT = re.compile(r"^.*\n *Traceback \(most recent call last\):\n(?: +.*\n)*.*", re.MULTILINE)
"""A line of the log, and the traceback that follows it."""
WITHOUT_ROOM = re.compile(
    r'^ERROR:root:code for hash|File "<frozen runpy>", line \d+, in \w+\nMemoryError', re.MULTILINE
)
"""What Python itself prints when it finds no memory for its library, before it reads the program's first line."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    rounds: int
    seconds: float
    seed: int
    brokers: int = 3
    machines: bool = False
    port: int = 0
    deeds: frozenset[Deed] = frozenset(Deed)
    dump_every: int = 10
    keep: bool = False
    traced: str = ""
    planted: str = ""
    fault: Fault | None = None
    """The only one, instead of those that the seed draws."""
    pause_s: tuple[float, float] = PAUSE_S


@dataclass(slots=True)
class Report:
    """One round in figures, for the line that is printed."""

    seed: int
    done: list[str] = field(default_factory=list)
    acknowledged: int = 0
    read: int = 0
    copied: int = 0
    gap: str = ""
    mended_s: float = 0.0
    felt: list[Felt] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        state = "ok" if not self.failures else f"FAILED ({len(self.failures)})"
        return (
            f"seed {self.seed}: {'; '.join(self.done) or 'no faults'} | {self.acknowledged} acknowledged,"
            f" {self.read} read, {self.copied} copied, longest gap {self.gap}, in sync {self.mended_s:.1f} s after the"
            f" last fault: {state}"
        )


class Round:
    """One cluster from its first start to its check."""

    def __init__(self, root: Path, seed: int, options: Options, *, dumps: bool, network: Network | None = None) -> None:
        """With a `network`, each broker is on a machine of its own, with a ZooKeeper."""
        self._rng = random.Random(seed)
        self._options, self._dumps = options, dumps
        self.report = Report(seed)
        self._replicas = min(REPLICAS, options.brokers)
        deeds = set(options.deeds) - ({Deed.WIPE, Deed.CUT, *DIRECTORIES} if options.brokers == 1 else set())
        self._faults = (
            [options.fault]
            if options.fault is not None
            else draw(
                self._rng,
                options.seconds,
                len(PARTITIONS[LEDGER]),
                deeds,
                options.pause_s,
                machines=network is not None,
            )
        )
        common: dict[str, Any] = {
            "directories": self._rng.choice((1, 2)),
            "bad_machines": any(fault.deed in BAD_MACHINE for fault in self._faults),
            "bad_allocators": any(fault.deed is Deed.ALLOCATIONS for fault in self._faults),
            "planted": options.planted,
        }
        self._brokers: ClusterProcesses
        if network is None:
            self._brokers = ClusterProcesses(
                root,
                options.brokers,
                self._settings(),
                first_port=options.port,
                linked=any(fault.deed is Deed.CUT for fault in self._faults),
                **common,
            )
            self._workload = Workload(self._brokers.bootstrap, self._rng, options.traced)
        else:
            from cluster.machines import ClusterMachines  # which needs pytest

            session_ms = self._rng.choice(ZOOKEEPER_SESSIONS_MS)
            settings = {**self._settings(), "zookeeper.session.timeout.ms": f"{session_ms}"}
            self._brokers = machines = ClusterMachines(root, options.brokers, settings, network, **common)
            self._workload = Workload(machines.bootstrap, self._rng, options.traced, machines.witnesses)

    def _settings(self) -> dict[str, str]:
        settings = {
            "auto.create.topics.enable": "false",
            "default.replication.factor": str(self._replicas),
            "min.insync.replicas": str(min(MIN_IN_SYNC, self._replicas)),
            "offsets.topic.replication.factor": str(self._replicas),
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": str(self._replicas),
            "transaction.state.log.min.isr": str(min(MIN_IN_SYNC, self._replicas)),
            "transaction.state.log.num.partitions": "4",
            "transaction.max.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "log.segment.bytes": str(1 << 20),
        }
        if self._rng.random() < 0.5:  # otherwise Kafka's: a broker that was stopped is not noticed in most rounds
            settings["broker.session.timeout.ms"] = "3000"
            settings["broker.heartbeat.interval.ms"] = "500"
        if self._rng.random() < 0.3:
            settings["replica.lag.time.max.ms"] = "3000"
        return settings

    def run(self) -> Report:
        report, workload = self.report, self._workload
        executor = Executor(self._brokers, LEDGER, GROUP, TRANSACTIONAL_ID)
        try:
            self._brokers.start_all()
            workload.start(self._replicas)
            executor.run(self._faults, self._options.seconds)
            workload.history.cut_off, workload.history.bad_disks = executor.cut_off, executor.bad_disks
            self._mend()
            workload.finish()
            self._check()
        except (BrokersFailed, BarnabasError, OSError) as error:
            report.failures.append(f"{type(error).__name__}: {error}")
        finally:
            workload.stop()
            self._brokers.stop_all()
        report.failures += executor.failures + self._brokers.ended + workload.failures
        self._check_output()
        self._fill(executor)
        return report

    def _mend(self) -> None:
        """Waits until all replicas are in sync."""
        began_s = time.monotonic()
        for processes in (self._brokers.zookeepers, self._brokers):
            for number in processes.ids if processes is not None else ():
                processes.thaw(number)
                if not processes.running(number) and not self._brokers.ended:
                    processes.start(number)

        def out_of_sync() -> list[str]:
            self._brokers.start_refused()
            return self._brokers.out_of_sync() or [
                f"{broker}" for broker in self._brokers.ids if not self._brokers.running(broker)
            ]

        self._workload.wait_until("the replicas are in sync", out_of_sync)
        self.report.mended_s = time.monotonic() - began_s

    # --- the check --------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self.report.failures += map(str, check(self._workload.history))
        if len(self._faults) == 1:
            self.report.failures += unserved(self._workload.history, SERVED_S)
        self._compare_replicas()
        if self._dumps:
            self._dump()

    def _compare_replicas(self) -> None:
        """Every replica has the same bytes; those of internal topics, too, once the followers have the last ones."""
        left: list[tuple[TopicPartition, Sequence[int]]] = []

        def ask() -> list[str]:
            left[:] = [
                (TopicPartition(topic.name, partition.partition), partition.replicas)
                for topic in self._brokers.topics().values()
                for partition in topic.in_order()
            ]
            return []

        self._workload.wait_until("the brokers tell of their topics", ask)
        deadline = time.monotonic() + EQUAL_TIMEOUT_S
        while left:
            different = []
            for topic_partition, replicas in left:
                logs = {broker: log_bytes(*self._log_dirs(broker, topic_partition)) for broker in replicas}
                if what := difference(logs):
                    different.append((topic_partition, replicas, what))
            if different and time.monotonic() > deadline:
                self.report.failures += [f"replicas differ: {where}: {what}" for where, _, what in different]
                return
            left = [(topic_partition, replicas) for topic_partition, replicas, _ in different]
            time.sleep(0.2 if left else 0.0)

    def _log_dirs(self, broker: int, topic_partition: TopicPartition) -> list[Path]:
        """Returns where a replica may lie: in one of its broker's directories."""
        name = f"{topic_partition.topic}-{topic_partition.partition}"
        return [directory / name for directory in self._brokers.data_dirs(broker)]

    def _dump(self) -> None:
        """Kafka's DumpLogSegments reads a replica, where Kafka is."""
        if not (KAFKA_LIBS / ".jars").exists() and not list(KAFKA_LIBS.glob("*.jar")):
            return
        if shutil.which("java") is None:
            return
        broker = self._rng.choice(self._brokers.ids)
        files = [file for each in self._log_dirs(broker, PARTITIONS[FEED][0]) for file in sorted(each.glob("*.log"))]
        command = ["java", "-cp", f"{KAFKA_LIBS}/*", "org.apache.kafka.tools.DumpLogSegments", "--print-data-log"]
        done = subprocess.run(
            [*command, "--files", ",".join(map(str, files))],
            capture_output=True,
            text=True,
            timeout=DUMP_TIMEOUT_S,
            check=False,
        )
        told = done.stdout.count("| offset: ")
        wanted = len(self._workload.history.log[PARTITIONS[FEED][0]])
        if done.returncode or "isvalid: false" in done.stdout or told < wanted:
            last = (done.stderr or done.stdout)[-300:]
            self.report.failures.append(f"DumpLogSegments told {told} of {wanted} records: {last}")

    def _check_output(self) -> None:
        for broker in self._brokers.ids:
            for printed in bad_output(self._brokers.output(broker)):
                self.report.failures.append(f"broker {broker} printed: {printed[-1500:]}")

    def _fill(self, executor: Executor) -> None:
        history, report = self._workload.history, self.report
        report.done = executor.done
        report.felt = felt(history, executor.failovers)
        report.acknowledged = sum(map(len, history.acknowledged.values()))
        report.read = sum(len(run.records) for run in history.runs)
        report.copied = self._workload.copied
        gap = longest_gap(history)
        report.gap = f"{gap.seconds:.2f} s ({gap.topic_partition})"


def bad_output(printed: str) -> list[str]:
    """Returns the tracebacks of a broker's own code in what it has printed."""
    return [found for found in BAD_OUTPUT.findall(printed) if not WITHOUT_ROOM.search(found)]


def run_round(directory: Path, seed: int, options: Options, *, dumps: bool) -> Report:
    if not options.machines:
        return Round(directory, seed, options, dumps=dumps).run()
    from network_namespaces import on_router  # which needs pytest

    return on_router(lambda network: Round(directory, seed, options, dumps=dumps, network=network).run())


def possible(deeds: frozenset[Deed], say: Callable[[str], None]) -> frozenset[Deed]:
    """Returns the kinds of faults that this Python can do, and tells why others are left out."""
    reason = why_not() if Deed.ALLOCATIONS in deeds else ""
    if reason:
        say(f"no broker is {Deed.ALLOCATIONS.value}: {reason}")
        return deeds - {Deed.ALLOCATIONS}
    return deeds


def run(options: Options, root: Path, say: Callable[[str], None]) -> int:
    """Returns 1 if a round has failed; all rounds are run, and what has failed is kept if asked for."""
    logging.getLogger("barnabas").setLevel(logging.CRITICAL)  # of clients, which say that brokers are down
    options = replace(options, deeds=possible(options.deeds, say))
    every: list[Felt] = []
    failed = 0
    for number in range(options.rounds):
        seed = options.seed + number
        directory = root / f"seed-{seed}"
        dumps = bool(options.dump_every) and not number % options.dump_every
        report = run_round(directory, seed, options, dumps=dumps)
        every += report.felt
        say(str(report))
        for failure in report.failures[:20]:
            say(f"  {failure}")
        if report.failures:
            failed += 1
            world = "cluster --machines" if options.machines else "cluster"
            command = f"tests/faults {world} --seconds {options.seconds:g} --seed {seed} --rounds 1"
            if options.deeds != frozenset(Deed):
                command += f" --deeds {','.join(sorted(deed.name.lower() for deed in options.deeds))}"
            if options.planted:
                command += f" --plant {options.planted}"
            say(f"  again: PYTHONPATH=.:tests python {command}")
        if not (report.failures and options.keep):
            shutil.rmtree(directory, ignore_errors=True)
    for line in summary(every):
        say(line)
    say(f"{options.rounds} rounds, {failed} failed")
    return min(failed, 1)
