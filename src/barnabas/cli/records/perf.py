"""`barnabas perf`: measures producing, consuming and latency with Barnabas' own clients in one process."""

import random
import time
from collections.abc import Callable
from typing import Annotated, Any, Final

from barnabas import Consumer, Producer
from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.output import CommandFailed, notice, print_json
from barnabas.cli.framework.resources import check_topic_name, watermarks
from barnabas.cli.records.produce import BATCH_BYTES, Acks, BatchBytes, Compression, producer_settings
from barnabas.client.admin.topics import NewTopic
from barnabas.client.errors import ItemsFailed
from barnabas.errors import UnknownTopicOrPartition
from barnabas.types import TopicPartition

app = App("Measure producing, consuming and latency.")

TOPIC: Final = "barnabas-perf"
PAYLOADS: Final = 512
PROGRESS_S: Final = 1.0
SAMPLE_EVERY: Final = 64
POLL_RECORDS: Final = 10_000

Topic = Annotated[
    str, Argument("TOPIC", f"The topic, {TOPIC} by default; created if it does not exist.", check=check_topic_name)
]


@app.command(example="barnabas perf producer --records 1000000 --size 100")
def producer(
    topic: Topic = TOPIC,
    records: Annotated[int, Option("-n", minimum=1, help="How many records to write.")] = 500_000,
    size: Annotated[int, Option("-s", minimum=0, help="The size of each value, in bytes.")] = 100,
    rate: Annotated[float | None, Option(minimum=1, help="The most records to write per second.")] = None,
    partitions: Annotated[int, Option("-p", minimum=1, help="The number of partitions, if the topic is created.")] = 4,
    acks: Acks = "all",
    compression: Compression = "none",
    batch_bytes: BatchBytes = BATCH_BYTES,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Write records as fast as they are acknowledged, or at a rate, and count the acknowledged ones."""
    tally = _ProducerTally(quiet=json)
    payloads = _payloads(size)
    settings = producer_settings(cluster, acks=acks, compression=compression, batch_bytes=batch_bytes)
    _ensure_topic(cluster, topic, partitions)
    with Producer(settings) as sender:
        sender.partitions_for(topic)
        tally.begin()
        _send_at_rate(sender, topic, payloads, records, rate, tally)
        sender.flush()
        tally.end()
        done = sender.metrics()
    if done["records_failed"]:
        why = tally.failure or "the broker's log says why"
        raise CommandFailed(f"{done['records_failed']} records were not written: {why}")
    tally.records, tally.size = done["records_taken"], done["records_taken"] * size
    report = tally.report() | {"requests": done["requests"], "record_ms": _percentiles(tally.latencies)}
    _report(report | {"topic": topic, "size": size, "acks": acks, "compression": compression}, json)


def _send_at_rate(
    sender: Producer, topic: str, payloads: list[bytes], records: int, rate: float | None, tally: "_ProducerTally"
) -> None:
    began = time.perf_counter()
    send = sender.send
    for number in range(records):
        if number % SAMPLE_EVERY:
            send(topic, payloads[number % PAYLOADS])
        else:
            send(topic, payloads[number % PAYLOADS], on_delivery=tally.sample(len(payloads[number % PAYLOADS])))
            tally.show_progress()
            if tally.failure is not None:
                return
        if rate is not None:
            ahead = began + (number + 1) / rate - time.perf_counter()
            if ahead > 0.001:
                time.sleep(ahead)


@app.command(example="barnabas perf consumer barnabas-perf")
def consumer(
    topic: Topic = TOPIC,
    records: Annotated[int | None, Option("-n", minimum=1, help="Stop after this number of records.")] = None,
    fetch_bytes: Annotated[
        int, Option(minimum=1, help="The most bytes of one partition that a broker sends at once.")
    ] = 1 << 20,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Read a topic from its beginning to its end as it is now, and count records and the bytes of keys and values."""
    with cluster.admin(beside_another=True) as admin:
        partitions = [TopicPartition(topic, number) for number in admin.describe_topics(topic)[topic].partitions]
        ends = {tp: end for tp, (start, end) in watermarks(admin, partitions).items() if end > start}
    meter = _Meter(quiet=json)
    with Consumer(_consumer_settings(cluster), max_partition_fetch_bytes=fetch_bytes) as reader:
        meter.begin()
        reader.assign(ends)
        left = set(ends)
        while left and (records is None or meter.records < records):
            found = reader.poll(cluster.timeout, POLL_RECORDS)
            meter.add(len(found), sum([len(record.key or b"") + len(record.value or b"") for record in found]))
            left = {tp for tp in left if reader.position(tp) < ends[tp]}
            meter.show_progress()
        meter.end()
    _report(meter.report() | {"topic": topic}, json)


def _consumer_settings(cluster: Cluster) -> dict[str, object]:
    settings = cluster.settings()
    return {**settings, "auto.offset.reset": "earliest", "default.api.timeout.ms": int(cluster.timeout * 1000)}


@app.command(example="barnabas perf latency --records 1000")
def latency(
    topic: Topic = TOPIC,
    records: Annotated[int, Option("-n", minimum=1, help="How many records to write, one at a time.")] = 2_000,
    size: Annotated[int, Option("-s", minimum=0, help="The size of each value, in bytes.")] = 100,
    acks: Acks = "all",
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Write one record after the other, and measure how long each takes to be acknowledged and to be read."""
    payloads = _payloads(size)
    acknowledged: list[float] = []
    read: list[float] = []
    progress = _Meter(quiet=json)
    _ensure_topic(cluster, topic, 1)
    tp = TopicPartition(topic, 0)
    settings = producer_settings(cluster, acks=acks, compression="none", batch_bytes=BATCH_BYTES, linger_ms=0)
    with Producer(settings) as sender, Consumer(_consumer_settings(cluster)) as reader:
        sender.partitions_for(topic)
        reader.assign([tp])
        reader.seek_to_end()
        reader.position(tp)
        reader.poll(0.0)  # from now on its first fetch waits at the broker
        progress.begin()
        for number in range(records):
            payload = payloads[number % PAYLOADS]
            began = time.perf_counter()
            sender.send(topic, payload, partition=0).result()
            acknowledged.append(time.perf_counter() - began)
            if not reader.poll(cluster.timeout):
                raise CommandFailed(f"{tp}: a record was not readable within {cluster.timeout:g} s")
            read.append(time.perf_counter() - began)
            progress.add(1, size)
            progress.show_progress()
        progress.end()
    report = {"records": len(read), "seconds": progress.seconds, "acknowledged_ms": _percentiles(acknowledged)}
    _report(report | {"read_ms": _percentiles(read), "topic": topic, "size": size, "acks": acks}, json)


# --- parts ----------------------------------------------------------------------------------------------------------


def _payloads(size: int) -> list[bytes]:
    """Returns letters and digits that compress like text and are the same in every run."""
    source = random.Random(42)
    alphabet = b"abcdefghijklmnopqrstuvwxyz012345"
    return [bytes(source.choices(alphabet, k=size)) for _ in range(PAYLOADS)]


def _ensure_topic(cluster: Cluster, topic: str, partitions: int) -> None:
    with cluster.admin(beside_another=True) as admin:
        try:
            admin.describe_topics(topic)
        except ItemsFailed as error:
            if not error.only(UnknownTopicOrPartition):
                raise
            admin.create_topics(NewTopic(topic, partitions))


class _Meter:
    """Counts records, and prints a line of progress on standard error once a second."""

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
        notice(f"{now - self._began:6.1f} s  {self.records:>12,} records  {rate:>12,.0f} records/s")
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
    """Counts deliveries by samples: each sample stands for the records up to the next one."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self.failure: BaseException | None = None
        self.latencies: list[float] = []

    def sample(self, size: int) -> Callable[[BaseException | None, Any], None]:
        """Returns the delivery callback of a record that is sent now."""
        sent = time.perf_counter()

        def delivered(error: BaseException | None, _: object) -> None:
            if error is not None:
                self.failure = self.failure or error
                return
            self.latencies.append(time.perf_counter() - sent)
            self.add(SAMPLE_EVERY, SAMPLE_EVERY * size)

        return delivered


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
