"""Compacted logs between Barnabas and Apache Kafka: what one has cleaned, or was cleaning as it died, the other reads.

These need Apache Kafka itself, whatever broker the other tests run on.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from jvm import JVM

from .harness.broker import KAFKA_LIBS, BarnabasBroker, KafkaBroker, LocalBroker

pytestmark = pytest.mark.skipif(
    not any(KAFKA_LIBS.glob("kafka-tools-*.jar")) or shutil.which("java") is None,
    reason="needs java and the jars of Apache Kafka (BARNABAS_KAFKA_LIBS)",
)

TOPIC = "cities"
KEYS = 50
RECORDS = 6000
CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
CLEANING = {"log.cleaner.backoff.ms": "50", "log.segment.delete.delay.ms": "0"}
WAIT_S = 60.0

Found = dict[int, tuple[bytes, bytes | None, int]]
MakeBroker = Callable[..., LocalBroker]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeBroker]:
    made: list[LocalBroker] = []

    def start(kind: type[LocalBroker], name: str, **settings: str) -> LocalBroker:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        broker = kind(directory, settings)
        made.append(broker)
        broker.start()
        return broker

    yield start
    for broker in made:
        broker.stop()


def create(broker: LocalBroker, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, 1, config=CONFIG)])[TOPIC].result(60)
    deadline = time.monotonic() + WAIT_S  # Kafka makes the logs when it has answered
    while not all(directory(broker, number).exists() for number in range(partitions)):
        assert time.monotonic() < deadline, broker.last_words()
        time.sleep(0.05)


def produce(broker: LocalBroker, partition: int = 0, *, compression: str = "none", idempotent: bool = True) -> None:
    """About six megabytes, deletions among them; a few records at the end keep the rest out of the active segment."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": idempotent,
            "compression.type": compression,
            "batch.size": 20_000,
        }
    )
    rng = random.Random(1)
    for number in range(RECORDS):
        key, value = f"k{number * 7919 % KEYS}", rng.randbytes(500).hex()
        if number % 500 == 33:
            producer.produce(TOPIC, key=f"gone-{number}", value=None, partition=partition)
        else:
            producer.produce(TOPIC, key=key, value=value, partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def read(broker: LocalBroker, partition: int = 0) -> Found:
    """The records of a partition by offset."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False, "check.crcs": True}
    )
    try:
        end = end_offset(consumer, partition)
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        found: Found = {}
        while consumer.position([TopicPartition(TOPIC, partition)])[0].offset < end:
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None, message.error()
            found[message.offset()] = (message.key(), message.value(), message.timestamp()[1])
        return found
    finally:
        consumer.close()


def end_offset(consumer: Consumer, partition: int) -> int:
    """Kafka leads the partitions that it had a moment after it is ready."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=30)[1])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def latest(found: Found) -> dict[bytes, tuple[int, bytes | None]]:
    return {key: (offset, value) for offset, (key, value, _) in sorted(found.items())}


def directory(broker: LocalBroker, partition: int = 0) -> Path:
    return broker.data_dir / f"{TOPIC}-{partition}"


def log_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".log", ".index", ".timeindex", ".txnindex"))


def wait_until_cleaned(broker: LocalBroker, partition: int = 0) -> None:
    """Until everything but the active segment is in the checkpoint."""
    deadline = time.monotonic() + WAIT_S
    checkpoint = broker.data_dir / "cleaner-offset-checkpoint"
    while time.monotonic() < deadline:
        active = max(int(path.stem) for path in directory(broker, partition).glob("*.log"))
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        if f"{TOPIC} {partition} {active}" in lines and active > 0:
            return
        broker.check_alive()
        time.sleep(0.05)
    raise AssertionError(f"{TOPIC}-{partition} was not cleaned: {broker.last_words()}")


def dump(*arguments: str) -> str:
    command = [*JVM, "-cp", f"{KAFKA_LIBS}/*", "org.apache.kafka.tools.DumpLogSegments", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def replace_files(target: Path, source: Path) -> None:
    """The log of `source` in the directory of `target`, which keeps its topic id."""
    for path in target.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        if path.name != "partition.metadata":
            shutil.copy2(path, target / path.name)


def as_swap(folder: Path) -> None:
    """As if the broker had died between the first and the second step of swapping the first segment in."""
    first = log_files(folder)[0].stem
    for path in log_files(folder):
        if path.stem == first:
            path.rename(f"{path}.swap")


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_kafka_reads_what_barnabas_cleaned(make: MakeBroker, compression: str) -> None:
    ours = make(BarnabasBroker, "barnabas", **CLEANING)
    create(ours, 2)
    for partition in (0, 1):
        produce(ours, partition, compression=compression)
    written = latest(read(ours))
    for partition in (0, 1):
        wait_until_cleaned(ours, partition)
    found = read(ours)
    assert latest(found) == written
    assert len(found) < RECORDS // 2
    ours.stop()

    files = log_files(directory(ours))
    text = dump("--files", ",".join(str(path) for path in files if path.suffix == ".log"), "--deep-iteration")
    assert "isvalid: true" in text
    assert "isvalid: false" not in text
    assert "deleteHorizonMs: OptionalLong[" in text
    indexes = [str(path) for path in files if path.suffix in (".index", ".timeindex") and path.stat().st_size]
    text = dump("--files", ",".join(indexes), "--index-sanity-check")
    assert text.count("passed sanity check") == len(indexes)
    assert "mismatch" not in dump("--files", ",".join(indexes)).lower()

    kafka = make(KafkaBroker, "kafka", **{**CLEANING, "log.cleaner.enable": "false"})
    create(kafka, 2)
    kafka.stop()
    for partition in (0, 1):
        replace_files(directory(kafka, partition), directory(ours, partition))
    as_swap(directory(kafka, 1))
    kafka.start()
    assert read(kafka) == found
    assert latest(read(kafka, 1)) == written
    assert not [path for path in directory(kafka, 1).iterdir() if path.suffix == ".swap"]
    assert "rror" not in " ".join(line for line in kafka.last_words().splitlines() if "lean" in line)


def test_barnabas_goes_on_where_kafka_was_cleaning(make: MakeBroker, tmp_path: Path) -> None:
    kafka = make(KafkaBroker, "kafka", **{**CLEANING, "log.cleaner.enable": "false"})
    create(kafka)
    produce(kafka)
    everything = read(kafka)
    kafka.stop()
    before = tmp_path / "before"
    shutil.copytree(directory(kafka), before)

    properties = tmp_path / "kafka" / "server.properties"
    properties.write_text(properties.read_text().replace("log.cleaner.enable=false", "log.cleaner.enable=true"))
    kafka.start()
    wait_until_cleaned(kafka)
    assert latest(read(kafka)) == latest(everything)
    kafka.stop()
    first = log_files(directory(kafka))[0].stem
    cleaned = [path for path in log_files(directory(kafka)) if path.stem == first]

    for state, endings in {
        "first step": {".log": ".swap", ".index": ".cleaned", ".timeindex": ".cleaned"},
        "second step": {".log": ".swap", ".index": ".swap", ".timeindex": ".swap"},
    }.items():
        ours = make(BarnabasBroker, f"barnabas {state}", **{**CLEANING, "log.cleaner.enable": "false"})
        create(ours)
        ours.stop()
        replace_files(directory(ours), before)
        for path in cleaned:
            shutil.copy2(path, directory(ours) / f"{path.name}{endings[path.suffix]}")
        (ours.data_dir / "replication-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {RECORDS}\n")
        ours.start()
        found = read(ours)
        assert latest(found) == latest(everything), state
        assert (len(found) == len(everything)) is (state == "first step")
        assert set(found.items()) <= set(everything.items())
        assert not [path for path in directory(ours).iterdir() if path.suffix in (".swap", ".cleaned")]
        ours.stop()

    ours = make(BarnabasBroker, "barnabas on", **CLEANING)
    create(ours)
    ours.stop()
    replace_files(directory(ours), directory(kafka))
    with contextlib.closing(sqlite3.connect(ours.data_dir / "registry.db", isolation_level=None)) as registry:
        registry.execute("UPDATE partitions SET leader_epoch = 10")  # Kafka's brokers have begun some
    (ours.data_dir / "replication-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {RECORDS}\n")
    ours.start()
    produce(ours, idempotent=False)  # its producer ids begin anew, Kafka's are in the log
    wait_until_cleaned(ours)
    found = read(ours)
    assert {key: value for key, (_, value) in latest(found).items()} == {
        key: value for key, (_, value) in latest(everything).items()
    }
    assert len(found) < RECORDS
