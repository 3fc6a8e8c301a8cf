"""Kafka's files open here, and Kafka reads ours.

`golden/txn-0` was written by Apache Kafka 4.3.1: a producer with 13 committed transactions, then one with eight aborted
and twelve committed, and a batch of an open one; two starts of the broker, the second ended cleanly.
`tests/interop/test_taken_over.py` opens what the newest release writes.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.log.log_loader import LogState, Verification, load_log
from barnabas.log.producers.producer_snapshot import read_snapshot
from barnabas.types import TopicPartition
from bench.peers import KAFKA_VERSION
from jvm import JVM

GOLDEN = Path(__file__).parent / "golden" / "txn-0"
_BUILT = Path(__file__).parents[2] / f"build/interop/kafka-{KAFKA_VERSION}"
KAFKA_LIBS = Path(os.environ.get("BARNABAS_KAFKA_LIBS", _BUILT))
needs_kafka = pytest.mark.skipif(
    not any(KAFKA_LIBS.glob("kafka-tools-*.jar")) or shutil.which("java") is None,
    reason="needs java and the jars of Apache Kafka (BARNABAS_KAFKA_LIBS)",
)


WRITTEN_MS = 1_795_242_640_780
"""The time at which Kafka wrote the last batch: the file's last change."""


@pytest.fixture
def golden(rig, tmp_path: Path) -> Path:
    rig.clock.now_ms = WRITTEN_MS
    path = Path(shutil.copytree(GOLDEN, tmp_path / "txn-0"))
    os.utime(path / f"{0:020d}.log", ns=(WRITTEN_MS * 1_000_000, WRITTEN_MS * 1_000_000))
    return path


def load(rig, path: Path, verification: Verification):
    state = LogState(verification, recovery_point=366 if verification is Verification.NONE else 0, high_watermark=366)
    return load_log(str(path), TopicPartition("txn", 0), LogConfig(), rig.environment, state)


@pytest.mark.parametrize("verification", list(Verification))
def test_a_log_of_kafkas_opens(rig, golden: Path, verification: Verification) -> None:
    log = load(rig, golden, verification)
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset) == (0, 365, 366, 366)
    assert str(log.topic_id) == "5055f980-4ae4-467f-b3d5-13f19b41ecc0"
    assert log.leader_epochs.entries == [(0, 0), (2, 144)]
    assert len(log.aborted_transactions(0, 366)) == 8
    (producer,) = log.active_producers()
    assert [producer.to_snapshot()] == read_snapshot(str(GOLDEN / f"{366:020d}.snapshot"))
    assert log.active_segment.read(0, log.active_segment.size) == (GOLDEN / f"{0:020d}.log").read_bytes()


@pytest.mark.parametrize("kept", [True, False], ids=["indexes", "no-indexes"])
def test_what_is_built_again_is_what_kafka_had(rig, golden: Path, kept: bool) -> None:
    if not kept:
        for suffix in (".index", ".timeindex", ".txnindex"):
            (golden / f"{0:020d}{suffix}").unlink()
    log = load(rig, golden, Verification.FULL)
    log.close()
    name = f"{0:020d}.txnindex"
    assert (golden / name).read_bytes() == (GOLDEN / name).read_bytes()
    name = f"{366:020d}.snapshot"
    assert (golden / name).read_bytes() == (GOLDEN / name).read_bytes()


def test_the_zeros_of_a_killed_kafka_are_no_obstacle(rig, golden: Path) -> None:
    for suffix in (".index", ".timeindex"):
        os.truncate(golden / f"{0:020d}{suffix}", 10 * 1024 * 1024 // 12 * 12)
    log = load(rig, golden, Verification.FULL)
    assert log.log_end_offset == 366
    log.close()
    assert os.path.getsize(golden / f"{0:020d}.index") < 100


def dump(*arguments: str) -> str:
    command = [*JVM, "-cp", f"{KAFKA_LIBS}/*", "org.apache.kafka.tools.DumpLogSegments", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@needs_kafka
def test_kafka_reads_our_files(rig) -> None:
    log = rig.log(segment_bytes=6000, index_interval_bytes=300)
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for number in range(60):
        stamp = rig.clock.now_ms + 10 * number
        rig.append(log, 1 + number % 5, epoch=number // 20, timestamp=stamp, size=200, compression=codecs[number % 5])
        rig.send(log, 7, number)
    for number in range(4):
        options = {"producer_id": 8, "producer_epoch": 0, "base_sequence": number, "transactional": True}
        rig.append(log, epoch=2, **options)
        log.append_as_leader(rig.marker(8, committed=number % 2 == 0), 2, origin="coordinator")
    end, segments = log.log_end_offset, log.segments
    assert len(segments) > 2
    log.close()

    files = ",".join(segment.path(".log") for segment in segments)
    text = dump("--files", files, "--deep-iteration")
    assert text.count("isvalid: true") == 60 + 60 + 8
    assert "isvalid: false" not in text
    assert f"lastOffset: {end - 1} " in text

    files = ",".join(segment.path(suffix) for segment in segments for suffix in (".index", ".timeindex"))
    assert dump("--files", files, "--index-sanity-check").count("passed sanity check") == 2 * len(segments)
    assert "mismatch" not in dump("--files", files).lower()

    text = dump("--files", log.producers.snapshot_path(end) + "," + segments[-1].path(".txnindex"))
    assert "producerId: 7 producerEpoch: 0" in text
    assert text.count("lastStableOffset") == 2
