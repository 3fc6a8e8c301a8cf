"""Measures compaction: its CPU beside Apache Kafka on the same log, and the latency of producers while it runs.

``python -m bench compaction speed`` writes a log into the directory of each broker, lets its cleaner clean it and
divides its bytes by the CPU seconds of the thread (Kafka) or process (Barnabas) that did it; a smaller log before it
warms the JVM. ``python -m bench compaction serving`` overwrites the same keys again and again while a second producer
measures how long an acknowledgement takes, first without a cleaner and then with it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented place
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from barnabas.config.log_config import LogConfig
from barnabas.log.log_loader import LogEnvironment, create_log
from barnabas.records.batch import read_header
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.records.validation import ValidatedBatch
from barnabas.types import TopicPartition
from bench import loads, report
from bench.brokers import CLOCK_TICKS_PER_SECOND, BrokerFailed, BrokerProcess, is_cleaner, make_broker, process_tree

SETTINGS = ("num.partitions=1", "log.cleaner.backoff.ms=50", "log.segment.delete.delay.ms=0")
SEGMENT_BYTES = 100 * 1024**2
BATCH_BYTES = 16_384
NEVER, AT_ONCE = "1.0", "0.001"
"""The dirty ratios with which a log is never cleaned, or at once."""
WAIT_S = 600.0
START_MS = 1_700_000_000_000
PROBES_PER_S = 500
COLUMNS = {
    "value": 6,
    "codec": 6,
    "batch": 6,
    "broker": 9,
    "MB": 6,
    "CPU s": 7,
    "MB/CPU s": 9,
    "wall s": 7,
    "left MB": 8,
}


class _Clock:
    def wall_ms(self) -> int:
        return START_MS

    def monotonic(self) -> float:
        return 0.0


# -- the same log for every broker -------------------------------------------------------------------------------------


def batches(size: int, value_bytes: int, keys: int, codec: str, batch_bytes: int, seed: int) -> Iterator[bytes]:
    """Batches of ``size`` bytes together, keys drawn evenly; values that shrink to about a half."""
    rng = random.Random(seed)
    values = [rng.randbytes(value_bytes // 2).hex().encode() for _ in range(500)]
    count = max(1, batch_bytes // (value_bytes + 30))
    written = offset = 0
    while written < size:
        records = [
            Record(0, START_MS + offset + n, b"key-%012d" % rng.randrange(keys), rng.choice(values))
            for n in range(count)
        ]
        batch = build_batch(records, base_offset=offset, compression=codec)
        offset += count
        written += len(batch)
        yield batch


def write_log(directory: Path, size: int, value_bytes: int, keys: int, codec: str, batch_bytes: int, seed: int) -> int:
    """Writes a log as a broker leaves it, in place of the directory's content. Returns its end offset."""
    kept = directory / "partition.metadata"
    metadata = kept.read_bytes()
    shutil.rmtree(directory)
    config = LogConfig(segment_bytes=SEGMENT_BYTES)
    log = create_log(str(directory), TopicPartition("bench", 0), config, LogEnvironment(_Clock()), None)
    for data in batches(size, value_bytes, keys, codec, batch_bytes, seed):
        header = read_header(data)
        log.append_as_leader(
            ValidatedBatch(header, data, header.max_timestamp, header.last_offset_delta, header.record_count), 0
        )
    log.roll()
    log.close(flush=False)
    kept.write_bytes(metadata)
    return log.log_end_offset


# -- brokers -----------------------------------------------------------------------------------------------------------


def create_topic(broker: BrokerProcess, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact", **config})])[topic].result(60)
    loads.wait_for_leaders(admin, topic, 1)


def set_dirty_ratio(broker: BrokerProcess, topic: str, ratio: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    entry = ConfigEntry("min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def wait_until_cleaned(broker: BrokerProcess, topic: str, end: int) -> None:
    checkpoint = broker.directory / "data" / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if checkpoint.exists() and f"{topic} 0 {end}" in checkpoint.read_text().splitlines():
            return
        if not broker.running:
            raise BrokerFailed(f"{broker.name} died")
        time.sleep(0.01)
    raise BrokerFailed(f"{broker.name} did not clean {topic} in {WAIT_S:.0f} s")


def cleaner_cpu_s(broker: BrokerProcess) -> float:
    """CPU of Kafka's cleaner threads, or of our cleaner process; 0 before there is one."""
    ticks = 0
    for pid in process_tree(broker.pid):
        all_threads = is_cleaner(pid)
        for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
            try:
                name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue  # it has ended meanwhile
            if all_threads or name.startswith("kafka-log-clean"):
                fields = rest.split()
                ticks += int(fields[11]) + int(fields[12])
    return ticks / CLOCK_TICKS_PER_SECOND


# -- speed -------------------------------------------------------------------------------------------------------------


def measure_speed(spec: str, root: Path, size: int, keys: int, case: str) -> tuple[float, float, float, float]:
    """(MB cleaned, CPU s, wall s, MB left) of a broker and a case."""
    value_bytes, codec, batch_bytes = case.split(":")
    broker = make_broker(spec, root, SETTINGS)
    try:
        broker.start()
        broker.first_ack_s()
        for topic in ("warm", "measured"):
            create_topic(broker, topic, **{"min.cleanable.dirty.ratio": NEVER, "segment.bytes": str(SEGMENT_BYTES)})
        broker.stop(15)
        ends = {}
        for topic, share in (("warm", 0.3), ("measured", 1.0)):
            ends[topic] = write_log(
                broker.directory / "data" / f"{topic}-0",
                int(size * share),
                int(value_bytes),
                keys,
                codec,
                int(batch_bytes),
                seed=int(share * 10),
            )
        marks = "".join(f"{topic} 0 {end}\n" for topic, end in ends.items())
        (broker.directory / "data" / "replication-offset-checkpoint").write_text(f"0\n{len(ends)}\n{marks}")
        broker.start()
        broker.first_ack_s()
        set_dirty_ratio(broker, "warm", AT_ONCE)
        wait_until_cleaned(broker, "warm", ends["warm"])
        cpu_s, began = cleaner_cpu_s(broker), time.perf_counter()
        set_dirty_ratio(broker, "measured", AT_ONCE)
        wait_until_cleaned(broker, "measured", ends["measured"])
        wall_s, cpu_s = time.perf_counter() - began, cleaner_cpu_s(broker) - cpu_s
        left = sum(path.stat().st_size for path in broker.log_files("measured"))
        return size / 1e6, cpu_s, wall_s, left / 1e6
    finally:
        broker.stop()
        broker.clear()


def speed(options: argparse.Namespace, root: Path) -> None:
    print(" ".join(name.rjust(width) for name, width in COLUMNS.items()))
    for case in options.cases.split(","):
        rates = {}
        for spec in options.brokers.split(","):
            value, codec, batch = case.split(":")
            megabytes, cpu_s, wall_s, left = measure_speed(spec, root, int(options.gb * 1e9), options.keys, case)
            rates[spec] = megabytes / cpu_s
            print(
                f"{value:>6} {codec:>6} {batch:>6} {spec:>9} {megabytes:6.0f} {cpu_s:7.2f} {rates[spec]:9.0f} "
                f"{wall_s:7.2f} {left:8.0f}",
                flush=True,
            )
        if {"kafka", "barnabas"} <= rates.keys():
            print(f"       {rates['barnabas'] / rates['kafka']:.1f} times as much per CPU second", flush=True)
    print(report.reference(options.brokers.split(",")).strip())


# -- serving -----------------------------------------------------------------------------------------------------------


class Overwriter:
    """Writes the same keys again and again at a steady rate, in a process of its own so that it slows down no other
    client."""

    def __init__(self, address: str, topic: str, live_bytes: int, value_bytes: int, bytes_per_s: float) -> None:
        arguments = [address, topic, str(live_bytes // value_bytes), str(value_bytes), str(bytes_per_s)]
        self._process = subprocess.Popen([sys.executable, "-m", "bench.compaction", *arguments], stdin=subprocess.PIPE)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def overwrite(address: str, topic: str, keys: int, value_bytes: int, bytes_per_s: float) -> None:
    """Runs the process of an Overwriter until its input ends."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "log_level": 0})
    rng = random.Random(1)
    values = [rng.randbytes(value_bytes) for _ in range(100)]
    began, written = time.monotonic(), 0
    while not ended.is_set():
        try:
            producer.produce(topic, rng.choice(values), key=b"key-%012d" % rng.randrange(keys))
            written += value_bytes
        except BufferError:
            producer.poll(0.1)
        if not written // value_bytes % 100:
            producer.poll(max(0.0, written / bytes_per_s - (time.monotonic() - began)))
    producer.flush(60)


def serving(options: argparse.Namespace, root: Path) -> None:
    settings = (*SETTINGS[:1], "log.cleaner.backoff.ms=500", "log.segment.delete.delay.ms=1000")
    live, rate = int(options.live_mb * 1e6), options.rate_mb * 1e6
    broker = make_broker("barnabas", root, settings)
    try:
        broker.start()
        broker.first_ack_s()
        loads.create_topic(broker, "probe", 1)
        config = {"segment.bytes": str(int(max(1 << 20, live / 4))), "min.cleanable.dirty.ratio": NEVER}
        create_topic(broker, "keys", **config)
        overwriter = Overwriter(broker.address, "keys", live, options.value_bytes, rate)
        time.sleep(2)
        written = 0.0
        for name, ratio, seconds in (("no cleaning", NEVER, options.seconds), ("cleaning", "0.5", 0)):
            set_dirty_ratio(broker, "keys", ratio)
            seconds = seconds or max(options.seconds, int((options.written_gb * 1e9 - written) / rate))
            before, cpu_before, began = loads.end_offsets(broker, "keys")[0], broker.cpu_s(), time.perf_counter()
            figures = loads.produce_latency(broker, "probe", PROBES_PER_S, seconds)
            wall_s = time.perf_counter() - began
            records = loads.end_offsets(broker, "keys")[0] - before
            written += records * options.value_bytes
            size = sum(path.stat().st_size for path in broker.log_files("keys"))
            print(
                f"{name:>12}: p50 {figures['p50_ms']:.2f} ms, p99 {figures['p99_ms']:.2f} ms over {wall_s:.0f} s; "
                f"{written / 1e9:.2f} GB written at {records * options.value_bytes / 1e6 / wall_s:.0f} MB/s, "
                f"{size / 1e6:.0f} MB in the log; CPU {100 * (broker.cpu_s() - cpu_before) / wall_s:.0f} %, "
                f"of it cleaner {cleaner_cpu_s(broker):.1f} s in all; memory {broker.memory_mb():.0f} MB",
                flush=True,
            )
        overwriter.stop()
    finally:
        broker.stop()
        broker.clear()


def main(options: argparse.Namespace) -> int:
    root = Path(tempfile.mkdtemp(prefix="barnabas-compaction-"))
    try:
        (speed if options.what == "speed" else serving)(options, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0


def _overwriter_main(arguments: Sequence[str]) -> None:
    address, topic, keys, value_bytes, bytes_per_s = arguments
    overwrite(address, topic, int(keys), int(value_bytes), float(bytes_per_s))


if __name__ == "__main__":
    _overwriter_main(sys.argv[1:])
