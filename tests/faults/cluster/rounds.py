"""Rounds of faults of a cluster, each with a cluster, a plan and a history of its own, drawn from its own seed."""

from __future__ import annotations

import logging
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import barnabas
from barnabas.client.admin.topics import NewTopic
from barnabas.errors import BarnabasError
from barnabas.types import TopicPartition
from cluster.brokers import BrokersFailed, ClusterProcesses, free_ports
from cluster.checker import check
from cluster.clients import (
    BACKOFF,
    Client,
    ConfluentReader,
    ConfluentWriter,
    EndWatcher,
    GroupMember,
    GroupWatcher,
    Reader,
    Writer,
)
from cluster.executor import Executor
from cluster.history import History, Record, record_of
from cluster.plan import Deed, draw
from cluster.replicas import difference, log_bytes
from cluster.timeline import Felt, felt, longest_gap, summary
from cluster.transactional_clients import Copier, Feeder

__all__ = ["Options", "run"]

LEDGER, SCRATCH, FEED, COPY = "ledger", "scratch", "feed", "copy"
PARTITIONS = {LEDGER: 6, SCRATCH: 2, FEED: 3, COPY: 3}
GROUP, COPIERS = "readers", "copiers"
REPLICAS, MIN_IN_SYNC = 3, 2
MENDED_TIMEOUT_S = 90.0
"""The time after the last fault in which all must be well again: everything acknowledged, read, copied and in sync."""
EQUAL_TIMEOUT_S = 20.0
DUMP_TIMEOUT_S = 120
KAFKA_LIBS = Path(__file__).resolve().parents[3] / "build" / "interop" / "kafka-4.3.1"
BAD_OUTPUT = ("Traceback (most recent call last)", "AssertionError", "internal error")


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    rounds: int
    seconds: float
    seed: int
    brokers: int = 3
    port: int = 0
    deeds: frozenset[Deed] = frozenset(Deed)
    dump_every: int = 10
    keep: bool = False


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

    def __init__(self, root: Path, seed: int, options: Options, *, dumps: bool) -> None:
        self._rng = random.Random(seed)
        self._options, self._dumps = options, dumps
        self._root = root
        self.report = Report(seed)
        self._history = History()
        self._replicas = min(REPLICAS, options.brokers)
        self._partitions = {
            topic: [TopicPartition(topic, number) for number in range(count)] for topic, count in PARTITIONS.items()
        }
        self._writers: list[Client] = []
        self._readers: list[Reader] = []
        self._members: list[GroupMember] = []
        self._copiers: list[Copier] = []
        self._watchers: list[Client] = []
        deeds = set(options.deeds) - ({Deed.WIPE, Deed.CUT} if options.brokers == 1 else set())
        self._faults = draw(self._rng, options.seconds, PARTITIONS[LEDGER], deeds)
        self._brokers = ClusterProcesses(
            root,
            options.brokers,
            options.port or free_ports(3 * options.brokers),
            self._settings(),
            linked=any(fault.deed is Deed.CUT for fault in self._faults),
        )

    def _settings(self) -> dict[str, str]:
        settings = {
            "default.replication.factor": str(self._replicas),
            "min.insync.replicas": str(min(MIN_IN_SYNC, self._replicas)),
            "offsets.topic.replication.factor": str(self._replicas),
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": str(self._replicas),
            "transaction.state.log.min.isr": str(min(MIN_IN_SYNC, self._replicas)),
            "transaction.state.log.num.partitions": "4",
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
        report = self.report
        try:
            self._start()
            executor = Executor(self._brokers, LEDGER, GROUP, "copier-0")
            executor.run(self._faults, self._options.seconds)
            report.done = executor.done
            report.failures += executor.failures
            self._mend()
            report.felt = felt(self._history, executor.failovers)
            if not report.failures:
                self._check()
        except (BrokersFailed, BarnabasError, OSError) as error:
            report.failures.append(f"{type(error).__name__}: {error}")
        finally:
            self._stop_clients()
            self._brokers.stop_all()
        report.failures += self._brokers.ended
        self._check_output()
        self._fill_report()
        return report

    # --- the beginning ----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        for broker in self._brokers.ids:
            self._brokers.start(broker)
        self._brokers.wait_until_ready()
        with barnabas.Admin(bootstrap_servers=self._brokers.bootstrap, **BACKOFF) as admin:
            admin.create_topics([NewTopic(topic, count, self._replicas) for topic, count in PARTITIONS.items()])
        bootstrap, history = self._brokers.bootstrap, self._history
        timeout_ms = self._rng.choice((1_500, 6_000))

        def seeded() -> random.Random:
            return random.Random(self._rng.random())

        for make, name in ((Writer, "writer-0"), (Writer, "writer-1"), (ConfluentWriter, "librdkafka")):
            self._writers.append(make(name, bootstrap, LEDGER, PARTITIONS[LEDGER], history, seeded(), interval_s=0.03))
        self._writers.append(
            Writer("hasty", bootstrap, SCRATCH, PARTITIONS[SCRATCH], history, seeded(), interval_s=0.02, acks="1")
        )
        self._writers += [
            Feeder(f"feeder-{number}", bootstrap, FEED, PARTITIONS[FEED], history, seeded()) for number in range(2)
        ]
        ledger, scratch, feed, copy = (self._partitions[topic] for topic in PARTITIONS)
        self._readers += [
            Reader("reader", bootstrap, [*ledger, *scratch], history),
            Reader("committed-reader", bootstrap, [*feed, *copy], history, read_committed=True),
            ConfluentReader("librdkafka-reader", bootstrap, [*ledger, *feed], history, read_committed=True),
        ]
        self._members += [
            GroupMember(f"member-{number}", bootstrap, LEDGER, GROUP, history, session_timeout_ms=timeout_ms)
            for number in range(2)
        ]
        history.copies.update(zip(copy, feed, strict=True))
        self._copiers += [
            Copier(f"copier-{number}", bootstrap, FEED, COPY, COPIERS, history, seeded(), session_timeout_ms=timeout_ms)
            for number in range(2)
        ]
        self._watchers += [
            EndWatcher("ends", bootstrap, [*ledger, *scratch, *feed], history),
            GroupWatcher("offsets", bootstrap, GROUP, history),
        ]
        for client in self._clients():
            client.start()

    def _clients(self) -> list[Client]:
        return [*self._writers, *self._readers, *self._members, *self._copiers, *self._watchers]

    # --- the end ----------------------------------------------------------------------------------------------------

    def _mend(self) -> None:
        """Waits until all replicas are in sync, everything is acknowledged, and readers and copiers are at the end."""
        began_s = time.monotonic()
        for broker in self._brokers.ids:
            self._brokers.thaw(broker)
            if not self._brokers.running(broker) and not self._brokers.ended:
                self._brokers.start(broker)
        self._wait_until("the replicas are in sync", self._brokers.out_of_sync)
        self.report.mended_s = time.monotonic() - began_s
        self._finish(self._writers)
        self._wait_until("every transaction has ended", self._open_transactions)
        self._history.log = self._read_all(read_committed=False)
        self._wait_until("the readers are at the end", self._behind)
        self._finish([*self._readers, *self._members])
        self._wait_until("the copiers are at the end", self._not_copied)
        self._finish([*self._copiers, *self._watchers])
        self._wait_until("every transaction has ended", self._open_transactions)
        self._history.log = self._read_all(read_committed=False)
        self._history.committed_log = self._read_all(read_committed=True)

    def _wait_until(self, what: str, left: Callable[[], list[str]]) -> None:
        deadline = time.monotonic() + MENDED_TIMEOUT_S
        found = ["nobody answers"]
        while time.monotonic() < deadline and not self._failures():
            try:
                found = left()
            except BarnabasError as error:
                found = [str(error)]
            if not found:
                return
            time.sleep(0.1)
        shown = "; ".join(found[:6])
        self.report.failures.append(f"not after {MENDED_TIMEOUT_S:.0f} s: {what}: {len(found)}: {shown}")
        raise BrokersFailed("; ".join(self._failures()) or "the cluster did not mend")

    def _failures(self) -> list[str]:
        return [failure for client in self._clients() for failure in client.failures[:3]] + self._brokers.ended

    def _finish(self, clients: list[Client]) -> None:
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.finish(MENDED_TIMEOUT_S)
        if failures := self._failures():
            raise BrokersFailed("; ".join(failures))

    def _stop_clients(self) -> None:
        for client in self._clients():
            client.stopping.set()

    def _ends(self, *, read_committed: bool) -> dict[TopicPartition, int]:
        every = [topic_partition for partitions in self._partitions.values() for topic_partition in partitions]
        isolation = "read_committed" if read_committed else "read_uncommitted"
        with barnabas.Consumer(
            bootstrap_servers=self._brokers.bootstrap, isolation_level=isolation, **BACKOFF
        ) as consumer:
            return consumer.end_offsets(every, timeout=5.0)

    def _open_transactions(self) -> list[str]:
        ends, stable = self._ends(read_committed=False), self._ends(read_committed=True)
        return [
            f"{topic_partition}: last stable offset {stable[topic_partition]}, end {end}"
            for topic_partition, end in ends.items()
            if stable[topic_partition] != end
        ]

    def _behind(self) -> list[str]:
        """Returns the readers that have not got the last record of a partition."""
        ledger = {topic_partition: self._history.log[topic_partition] for topic_partition in self._partitions[LEDGER]}
        scratch = {topic_partition: self._history.log[topic_partition] for topic_partition in self._partitions[SCRATCH]}
        reader, _, librdkafka = self._readers
        found = [
            f"{one.name} in {topic_partition}"
            for one, logs in ((reader, {**ledger, **scratch}), (librdkafka, ledger))
            for topic_partition, records in logs.items()
            if records and not one.has_read(topic_partition, records[-1].offset)
        ]
        got = {(run.topic_partition, run.records[-1].offset) for run in self._history.runs if run.group and run.records}
        found += [
            f"{GROUP} in {topic_partition}"
            for topic_partition, records in ledger.items()
            if records and (topic_partition, records[-1].offset) not in got
        ]
        return found

    def _not_copied(self) -> list[str]:
        feed = self._partitions[FEED]
        log = self._read_all(read_committed=True, partitions=[*feed, *self._partitions[COPY]])
        return [
            f"{copy}: {len(log[copy])} of {len(log[source])}"
            for copy, source in self._history.copies.items()
            if len(log[copy]) < len(log[source])
        ]

    def _read_all(
        self, *, read_committed: bool, partitions: list[TopicPartition] | None = None
    ) -> dict[TopicPartition, list[Record]]:
        ends = self._ends(read_committed=read_committed)
        wanted = partitions or list(ends)
        found: dict[TopicPartition, list[Record]] = {topic_partition: [] for topic_partition in wanted}
        with barnabas.Consumer(
            bootstrap_servers=self._brokers.bootstrap,
            auto_offset_reset="none",
            isolation_level="read_committed" if read_committed else "read_uncommitted",
            **BACKOFF,
        ) as consumer:
            consumer.assign(wanted)
            for topic_partition in wanted:
                consumer.seek(topic_partition, 0)
            deadline = time.monotonic() + MENDED_TIMEOUT_S
            left = set(wanted)
            while left and time.monotonic() < deadline:
                for record in consumer.poll(0.05, max_records=5_000):
                    topic_partition = TopicPartition(record.topic, record.partition)
                    found[topic_partition].append(
                        record_of(record.offset, record.leader_epoch, record.key, record.value)
                    )
                left = {each for each in left if consumer.position(each) < ends[each]}
        if left:
            raise BrokersFailed(f"{sorted(left)} could not be read to their ends")
        return found

    # --- the check --------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self.report.failures += map(str, check(self._history))
        self._compare_replicas()
        if self._dumps:
            self._dump()

    def _compare_replicas(self) -> None:
        """Every replica has the same bytes; those of internal topics, too, once the followers have the last ones."""
        deadline = time.monotonic() + EQUAL_TIMEOUT_S
        left = [
            (TopicPartition(topic.name, partition.partition), partition.replicas)
            for topic in self._brokers.topics().values()
            for partition in topic.in_order()
        ]
        while left:
            different = []
            for topic_partition, replicas in left:
                logs = {broker: log_bytes(self._log_dir(broker, topic_partition)) for broker in replicas}
                if what := difference(logs):
                    different.append((topic_partition, replicas, what))
            if different and time.monotonic() > deadline:
                self.report.failures += [f"replicas differ: {where}: {what}" for where, _, what in different]
                return
            left = [(topic_partition, replicas) for topic_partition, replicas, _ in different]
            time.sleep(0.2 if left else 0.0)

    def _log_dir(self, broker: int, topic_partition: TopicPartition) -> Path:
        return self._brokers.data_dir(broker) / f"{topic_partition.topic}-{topic_partition.partition}"

    def _dump(self) -> None:
        """Kafka's DumpLogSegments reads a replica, where Kafka is."""
        if not (KAFKA_LIBS / ".jars").exists() and not list(KAFKA_LIBS.glob("*.jar")):
            return
        if shutil.which("java") is None:
            return
        broker = self._rng.choice(self._brokers.ids)
        files = sorted(self._log_dir(broker, self._partitions[FEED][0]).glob("*.log"))
        command = ["java", "-cp", f"{KAFKA_LIBS}/*", "org.apache.kafka.tools.DumpLogSegments", "--print-data-log"]
        done = subprocess.run(
            [*command, "--files", ",".join(map(str, files))],
            capture_output=True,
            text=True,
            timeout=DUMP_TIMEOUT_S,
            check=False,
        )
        told = done.stdout.count("| offset: ")
        wanted = len(self._history.log[self._partitions[FEED][0]])
        if done.returncode or "isvalid: false" in done.stdout or told < wanted:
            last = (done.stderr or done.stdout)[-300:]
            self.report.failures.append(f"DumpLogSegments told {told} of {wanted} records: {last}")

    def _check_output(self) -> None:
        for broker in self._brokers.ids:
            output = self._brokers.output(broker)
            for bad in BAD_OUTPUT:
                if bad in output:
                    after = output[output.index(bad) :]
                    self.report.failures.append(f"broker {broker} printed: {after[:1500]}")
                    break

    def _fill_report(self) -> None:
        history, report = self._history, self.report
        report.acknowledged = sum(map(len, history.acknowledged.values()))
        report.read = sum(len(run.records) for run in history.runs)
        report.copied = sum(copier.copied for copier in self._copiers)
        gap = longest_gap(history)
        report.gap = f"{gap.seconds:.2f} s ({gap.topic_partition})"


def run(options: Options, root: Path, say: Callable[[str], None]) -> int:
    """Returns 1 if a round has failed; all rounds are run, and what has failed is kept if asked for."""
    logging.getLogger("barnabas").setLevel(logging.CRITICAL)  # of clients, which say that brokers are down
    every: list[Felt] = []
    failed = 0
    for number in range(options.rounds):
        seed = options.seed + number
        directory = root / f"seed-{seed}"
        dumps = bool(options.dump_every) and not number % options.dump_every
        one = Round(directory, seed, options, dumps=dumps)
        report = one.run()
        every += report.felt
        say(str(report))
        for failure in report.failures[:20]:
            say(f"  {failure}")
        if report.failures:
            failed += 1
            command = f"tests/faults cluster --seconds {options.seconds:g} --seed {seed} --rounds 1"
            say(f"  again: PYTHONPATH=. python {command}")
        if not (report.failures and options.keep):
            shutil.rmtree(directory, ignore_errors=True)
    for line in summary(every):
        say(line)
    say(f"{options.rounds} rounds, {failed} failed")
    return min(failed, 1)
