"""SIGKILL during produce, again and again on one data directory, each moment drawn from a seed.

After every restart: each acknowledged record is there exactly once, at the offset that was answered, in order per
producer and partition, and the consumer group goes on where its last acknowledged commit was.
"""

from __future__ import annotations

import random
import signal
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from bench.brokers import BrokerProcess
from workload import READ_TIMEOUT_S, GroupReader, Promises, Stream, Writer, create_topic, decode, read

SETTINGS = ("num.partitions=4", "group.initial.rebalance.delay.ms=0")
TOPIC = "crash"
GROUP = "crash-readers"
PARTITIONS = 6
WRITERS = 4
RECORDS_PER_WRITER = 6_000
SEGMENT_BYTES = 1 << 20  # the smallest that Kafka takes: many rolls


@dataclass(slots=True)
class RoundReport:
    """One round in figures, for the line that is printed."""

    number: int
    killed_after_s: float
    kills: int
    torn: bool
    restart_s: float = 0.0
    acknowledged: int = 0
    commits: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        torn = ", torn tail" if self.torn else ""
        state = "ok" if not self.failures else f"FAILED ({len(self.failures)})"
        return (
            f"round {self.number}: killed {self.kills}x after {self.killed_after_s:.2f} s{torn}, "
            f"first ack again {self.restart_s:.2f} s after the start, {self.acknowledged} acknowledged, "
            f"group {self.commits:+}: {state}"
        )


class CrashTest:
    """The broker's life over many rounds; what was read and checked before a round is not read again in it."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._acknowledged, self._slowest_s = 0, 0.0
        self._broker = broker
        self._seed = seed
        self._promises = Promises()
        self._checked_until = dict.fromkeys(range(PARTITIONS), 0)
        self._next_sequence: dict[Stream, int] = {}
        self._commits: dict[int, int] = {}
        self._writers: dict[int, Writer] = {}

    def prepare(self) -> None:
        self._broker.start()
        self._broker.first_ack_s()
        create_topic(self._broker.address, TOPIC, PARTITIONS, **{"segment.bytes": str(SEGMENT_BYTES)})

    def run_round(self, number: int) -> RoundReport:
        rng = random.Random(f"{self._seed}:{number}")
        report = RoundReport(number, rng.uniform(0.02, 1.0), 2 if rng.random() < 0.25 else 1, rng.random() < 0.25)
        self._promises.acknowledged.clear()
        self._renew_writers(number, rng)
        reader = GroupReader(self._broker.address, TOPIC, GROUP)
        reader.start()
        for writer in self._writers.values():
            writer.start(RECORDS_PER_WRITER)
        time.sleep(report.killed_after_s)
        self._kill_and_restart(rng, report)
        time.sleep(rng.uniform(0.0, 0.3))
        for writer in self._writers.values():
            writer.stop()
        report.failures += self._promises.errors
        self._promises.errors.clear()
        report.acknowledged = sum(len(records) for records in self._promises.acknowledged.values())
        report.failures += self._check_new_records()
        reader.wait_for_commit(READ_TIMEOUT_S)
        reader.stop()
        report.commits = sum(offset - self._commits.get(at, 0) for at, offset in reader.committed.items())
        report.failures += reader.errors
        report.failures += self._check_group(reader)
        self._acknowledged += report.acknowledged
        self._slowest_s = max(self._slowest_s, report.restart_s)
        return report

    def stop(self) -> None:
        """Nothing of it outlives a round."""

    def summary(self) -> str:
        slowest = f"slowest restart to first acknowledged record {self._slowest_s:.2f} s"
        return f"{self._acknowledged} acknowledged records, each there once, in order; {slowest}"

    def check_all(self) -> list[str]:
        """Reads the whole log again: every stream is complete and in order from its first record."""
        failures: list[str] = []
        seen: dict[Stream, int] = {}
        for partition in range(PARTITIONS):
            for _, stream, sequence in self._records(partition, 0):
                if sequence != seen.get(stream, 0):
                    failures.append(f"whole log: {_at(stream)} has {sequence} where {seen.get(stream, 0)} belongs")
                seen[stream] = sequence + 1
        failures += [
            f"whole log: {_at(stream)} ends at {seen.get(stream, 0)}, not at {count}"
            for stream, count in self._promises.sent.items()
            if seen.get(stream, 0) != count
        ]
        return failures

    def _renew_writers(self, number: int, rng: random.Random) -> None:
        """Most producers live on from round to round, some start anew with a fresh producer id."""
        for index in range(WRITERS):
            if index not in self._writers or rng.random() < 0.3:
                name = f"writer-{index}-{number}"
                self._writers[index] = Writer(
                    name, self._broker.address, TOPIC, PARTITIONS, random.Random(rng.random()), self._promises
                )

    def _kill_and_restart(self, rng: random.Random, report: RoundReport) -> None:
        for kill in range(report.kills):
            if kill:  # the second one hits the recovery
                time.sleep(rng.uniform(0.0, 0.5))
            self._broker.stop(signal.SIGKILL)
            if report.torn and not kill:
                self._tear_a_tail(rng)
            self._broker.start()
        report.restart_s = self._broker.first_ack_s()

    def _tear_a_tail(self, rng: random.Random) -> None:
        """Adds the beginning of a batch to an active segment, as a write that was cut short leaves it."""
        segments = self._broker.log_files(TOPIC, rng.randrange(PARTITIONS))
        if segments:
            position, next_offset, last_batch = _last_batch(segments[-1])
            if last_batch:
                torn = bytearray(last_batch[: rng.randrange(1, len(last_batch))])
                torn[:8] = struct.pack(">q", next_offset)[: len(torn[:8])]
                with segments[-1].open("r+b") as segment:
                    segment.seek(position)
                    segment.write(torn)

    def _check_new_records(self) -> list[str]:
        failures: list[str] = []
        found: dict[Stream, dict[int, int]] = {}
        for partition in range(PARTITIONS):
            for offset, stream, sequence in self._records(partition, self._checked_until[partition]):
                expected = self._next_sequence.get(stream, 0)
                if sequence != expected:
                    what = "doubled or out of order" if sequence < expected else "after a gap"
                    failures.append(f"{_at(stream)}: offset {offset} has {sequence}, {what}; {expected} belongs there")
                self._next_sequence[stream] = sequence + 1
                found.setdefault(stream, {})[sequence] = offset
                self._checked_until[partition] = offset + 1
        for stream, records in self._promises.acknowledged.items():
            there = found.get(stream, {})
            lost = [sequence for sequence in records if sequence not in there]
            if lost:
                failures.append(f"{_at(stream)}: {len(lost)} acknowledged records lost, first {min(lost)}")
            moved = [
                sequence
                for sequence, offset in records.items()
                if offset >= 0 and there.get(sequence, offset) != offset
            ]
            if moved:
                failures.append(
                    f"{_at(stream)}: {len(moved)} records at another offset than answered, first {min(moved)}"
                )
        return failures

    def _check_group(self, reader: GroupReader) -> list[str]:
        failures = [
            f"group: partition {partition} resumed at {reader.first_offsets[partition]}, committed was {committed}"
            for partition, committed in self._commits.items()
            if reader.first_offsets.get(partition, committed) != committed
        ]
        self._commits.update(reader.committed)
        asked = Consumer({"bootstrap.servers": self._broker.address, "group.id": GROUP, "log_level": 0})
        answered = asked.committed([TopicPartition(TOPIC, partition) for partition in self._commits], timeout=30)
        asked.close()
        for entry in answered:
            if entry.offset < self._commits[entry.partition]:
                promised = self._commits[entry.partition]
                failures.append(
                    f"group: partition {entry.partition} has commit {entry.offset}, acknowledged was {promised}"
                )
            self._commits[entry.partition] = entry.offset  # a commit may count without its answer
        return failures

    def _records(self, partition: int, start: int) -> Iterator[tuple[int, Stream, int]]:
        """(offset, stream, sequence) of a partition from ``start`` to its high watermark."""
        for message in read(self._broker.address, TOPIC, partition, start):
            value = message.value()
            assert value is not None
            name, sequence = decode(value)
            yield message.offset() or 0, (name, partition), sequence


def _last_batch(segment: Path) -> tuple[int, int, bytes]:
    """(end of the last whole batch, offset after it, the batch's bytes); empty bytes for an empty segment."""
    data = segment.read_bytes()
    position, next_offset, last = 0, 0, b""
    while position + 61 <= len(data):
        base_offset, length = struct.unpack_from(">qi", data, position)
        end = position + 12 + length
        if length <= 0 or end > len(data):
            break
        (delta,) = struct.unpack_from(">i", data, position + 23)
        next_offset, last, position = base_offset + delta + 1, data[position:end], end
    return position, next_offset, last


def _at(stream: Stream) -> str:
    return f"{stream[0]} in partition {stream[1]}"
