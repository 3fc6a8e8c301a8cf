"""`barnabas perf`: producing, consuming and latency, measured from what the broker answers.

The client is this package's synchronous one, in one process: the figures are what a plain Python client gets from a
broker. Where the client is the limit, a C client gets more.
"""

import random
import sys
import time
from typing import Annotated, Any, Final

from barnabas.cli.app import App, Argument, Option
from barnabas.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Json,
    Timeout,
    connect,
)
from barnabas.cli.output import CommandFailed, print_json
from barnabas.cli.produce import ACKS, CODECS
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.simple_consumer import SimpleConsumer
from barnabas.client.simple_producer import Delivery, SimpleProducer
from barnabas.errors import KafkaError, TopicAlreadyExists
from barnabas.types import TopicPartition

app = App("Measure producing, consuming and latency.")

TOPIC: Final = "barnabas-perf"
PAYLOADS: Final = 512
PROGRESS_S: Final = 1.0
POLL_EVERY: Final = 256

Topic = Annotated[str, Argument("TOPIC", f"Made if it does not exist ({TOPIC}).")]
Acks = Annotated[str, Option("--acks", choices=tuple(ACKS), help="Who must have a record; all also means idempotent.")]


@app.command()
def producer(
    topic: Topic = TOPIC,
    records: Annotated[int, Option("--records", "-n", minimum=1, help="How many.")] = 500_000,
    size: Annotated[int, Option("--size", "-s", minimum=0, help="Bytes of each value.")] = 100,
    rate: Annotated[float | None, Option("--rate", minimum=1, help="Records per second at most.")] = None,
    partitions: Annotated[int, Option("--partitions", "-p", minimum=1, help="Of a topic that is made.")] = 4,
    acks: Acks = "all",
    compression: Annotated[str, Option("--compression", "-z", choices=CODECS, help="Of batches.")] = "none",
    batch_bytes: Annotated[int, Option("--batch-bytes", minimum=1, help="Largest batch.")] = 256 * 1024,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Write records as fast as they are acknowledged, or at a rate. Counted are acknowledged records."""
    tally = _ProducerTally(quiet=json)
    payloads = _payloads(size)
    with connect(bootstrap, timeout) as cluster:
        _ensure_topic(cluster, topic, partitions)
        with SimpleProducer(
            cluster,
            acks=ACKS[acks],
            compression=compression,
            batch_bytes=batch_bytes,
            delivery_timeout_s=timeout,
            on_delivery=tally.take,
        ) as sender:
            tally.begin()
            _send_at_rate(sender, topic, payloads, records, rate, tally)
            sender.flush()
            tally.end()
    if tally.failure is not None:
        raise CommandFailed(f"{tally.failed} records were not written: {tally.failure}")
    _report(tally.report() | {"topic": topic, "size": size, "acks": acks, "compression": compression}, json)


def _send_at_rate(
    sender: SimpleProducer,
    topic: str,
    payloads: list[bytes],
    records: int,
    rate: float | None,
    tally: "_ProducerTally",
) -> None:
    began = time.perf_counter()
    for number in range(records):
        sender.send(topic, payloads[number % PAYLOADS])
        if number % POLL_EVERY == 0:
            sender.poll()
            tally.show_progress()
            if tally.failure is not None:
                return
        if rate is not None:
            ahead = began + (number + 1) / rate - time.perf_counter()
            if ahead > 0.001:
                sender.flush()
                time.sleep(max(began + (number + 1) / rate - time.perf_counter(), 0))


@app.command()
def consumer(
    topic: Topic = TOPIC,
    records: Annotated[int | None, Option("--records", "-n", minimum=1, help="Stop after so many.")] = None,
    headers_only: Annotated[
        bool, Option("--headers-only", help="Do not decode records: count them by their batches' headers.")
    ] = False,
    fetch_bytes: Annotated[int, Option("--fetch-bytes", minimum=1, help="Most of one partition in one answer.")] = 1
    << 20,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Read a topic from its beginning to its end as it is now."""
    with connect(bootstrap, timeout) as cluster:
        admin = Admin(cluster)
        partitions = [TopicPartition(topic, number) for number in cluster.topic(topic).partitions]
        marks = {tp: mark for tp, mark in admin.watermarks(partitions).items() if mark[1] > mark[0]}
        meter = _Meter(quiet=json)
        positions = {tp: start for tp, (start, _) in marks.items()}
        with SimpleConsumer(cluster, positions, partition_max_bytes=fetch_bytes, timeout_s=timeout) as reader:
            meter.begin()
            while reader.positions and (records is None or meter.records < records):
                for fetched in reader.poll():
                    count = fetched.record_count if headers_only else sum(1 for _ in fetched.records())
                    meter.add(count, fetched.size_bytes)
                    if fetched.next_offset >= marks[fetched.partition][1]:
                        reader.positions.pop(fetched.partition, None)
                meter.show_progress()
            meter.end()
    _report(meter.report() | {"topic": topic, "decoded": not headers_only}, json)


@app.command()
def latency(
    topic: Topic = TOPIC,
    records: Annotated[int, Option("--records", "-n", minimum=1, help="How many, one at a time.")] = 2_000,
    size: Annotated[int, Option("--size", "-s", minimum=0, help="Bytes of each value.")] = 100,
    acks: Acks = "all",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Write one record, wait until a waiting consumer has it, and so on: until acknowledged, and until read."""
    payloads = _payloads(size)
    acknowledged: list[float] = []
    read: list[float] = []
    progress = _Meter(quiet=json)
    with connect(bootstrap, timeout) as cluster, connect(bootstrap, timeout) as second:
        _ensure_topic(cluster, topic, 1)
        where = TopicPartition(topic, 0)
        end = Admin(cluster).watermarks([where])[where][1]
        failures: list[Exception] = []
        sender = SimpleProducer(
            cluster,
            acks=ACKS[acks],
            delivery_timeout_s=timeout,
            on_delivery=lambda delivery: _take_latency(delivery, acknowledged, failures),
        )
        with sender, SimpleConsumer(second, {where: end}, timeout_s=timeout) as reader:
            reader.poll(0.0)  # its first fetch waits at the broker from now on
            progress.begin()
            for number in range(records):
                began = time.perf_counter()
                sender.send(topic, payloads[number % PAYLOADS], partition=0)
                sender.flush()
                if failures:
                    raise failures[0]
                _await_record(reader, where, end + number, timeout)
                read.append(time.perf_counter() - began)
                progress.add(1, size)
                progress.show_progress()
            progress.end()
    report = {"records": len(read), "seconds": progress.seconds, "acknowledged_ms": _percentiles(acknowledged)}
    _report(report | {"read_ms": _percentiles(read), "topic": topic, "size": size, "acks": acks}, json)


def _take_latency(delivery: Delivery, latencies: list[float], failures: list[Exception]) -> None:
    if delivery.error is not None:
        failures.append(delivery.error)
    latencies.append(delivery.latency_s)


def _await_record(reader: SimpleConsumer, where: TopicPartition, offset: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while reader.positions[where] <= offset:
        reader.poll(max(deadline - time.monotonic(), 0.0))
        if time.monotonic() > deadline:
            raise CommandFailed(f"{where}: the record at offset {offset} was not readable within {timeout:g} s")


# --- parts ----------------------------------------------------------------------------------------------------------


def _payloads(size: int) -> list[bytes]:
    """Letters and digits, half as random as they could be: compressible like text, and the same in every run."""
    source = random.Random(42)
    alphabet = b"abcdefghijklmnopqrstuvwxyz012345"
    return [bytes(source.choices(alphabet, k=size)) for _ in range(PAYLOADS)]


def _ensure_topic(cluster: Cluster, topic: str, partitions: int) -> None:
    admin = Admin(cluster)
    view = admin.describe_topics([topic])[topic]
    if not isinstance(view, KafkaError):
        return
    result = admin.create_topics([NewTopic(topic, partitions)])[topic]
    if isinstance(result, KafkaError) and not isinstance(result, TopicAlreadyExists):
        raise result


class _Meter:
    """Counts, and once a second a line of progress on standard error."""

    def __init__(self, *, quiet: bool) -> None:
        self.records = 0
        self.size = 0
        self.seconds = 0.0
        self._quiet = quiet
        self._began = self._shown = time.perf_counter()
        self._shown_records = 0

    def begin(self) -> None:
        self._began = self._shown = time.perf_counter()

    def end(self) -> None:
        self.seconds = max(time.perf_counter() - self._began, 1e-9)

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.size += size

    def show_progress(self) -> None:
        now = time.perf_counter()
        if self._quiet or now - self._shown < PROGRESS_S:
            return
        rate = (self.records - self._shown_records) / (now - self._shown)
        print(f"{now - self._began:6.1f} s  {self.records:>12,} records  {rate:>12,.0f} records/s", file=sys.stderr)
        self._shown, self._shown_records = now, self.records

    def report(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "bytes": self.size,
            "seconds": round(self.seconds, 4),
            "records_per_second": round(self.records / self.seconds),
            "megabytes_per_second": round(self.size / self.seconds / 1e6, 2),
        }


class _ProducerTally(_Meter):
    """Deliveries: records, bytes of batches as sent, and how long batches were on their way."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self.failed = 0
        self.failure: Exception | None = None
        self._latencies: list[float] = []

    def take(self, delivery: Delivery) -> None:
        if delivery.error is not None:
            self.failed += delivery.record_count
            self.failure = self.failure or delivery.error
            return
        self.add(delivery.record_count, delivery.size_bytes)
        self._latencies.append(delivery.latency_s)

    def report(self) -> dict[str, Any]:
        return super().report() | {"batches": len(self._latencies), "batch_ms": _percentiles(self._latencies)}


def _percentiles(seconds: list[float]) -> dict[str, float]:
    """In milliseconds."""
    ordered = sorted(seconds) or [0.0]

    def at(part: float) -> float:
        return round(ordered[min(int(len(ordered) * part), len(ordered) - 1)] * 1e3, 3)

    return {"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p999": at(0.999), "max": round(ordered[-1] * 1e3, 3)}


def _report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    for name, value in report.items():
        if isinstance(value, dict):
            value = "  ".join(f"{part} {number:g}" for part, number in value.items())
        elif isinstance(value, int) and not isinstance(value, bool):
            value = f"{value:,}"
        print(f"{name:<22}  {value}")
