"""Bytes that other implementations wrote: `golden.txt` holds a name and a batch or message set in hex on each line.

java-v*: kafka-clients 4.4.0, its MemoryRecordsBuilder, base offset 100. librdkafka-v2-*: confluent-kafka 2.16 as an
idempotent producer, read from a segment of Apache Kafka's. Each has the four records of `expected`.
"""

from pathlib import Path

import pytest

from barnabas.records.batch import BatchHeader, crc_of, iter_headers, read_header
from barnabas.records.builder import build_batch, build_control_batch
from barnabas.records.compression import CODECS
from barnabas.records.legacy import LegacyMessage, iter_messages
from barnabas.records.reader import iter_any, iter_entries, read_records
from barnabas.records.record import Headers, Record
from barnabas.records.validation import AppendPolicy, validate_produce, validate_replicated

GOLDEN = {
    name: bytes.fromhex(data)
    for name, data in (line.split() for line in (Path(__file__).parent / "golden.txt").read_text().splitlines())
}
RECORD_SETS = [name for name in GOLDEN if "append-time" not in name and not name.endswith(("commit", "abort"))]
V2 = [name for name in RECORD_SETS if "-v2-" in name]
T0 = 1_700_000_000_000


def expected(name: str) -> list[Record]:
    lines = "".join(f"line {number * 7919 % 1000} " for number in range(200)).encode()
    values = (b"value-0", b"value-1", None, lines)
    base = 100 if name.startswith("java") else 0
    found = []
    for index, value in enumerate(values):
        headers: Headers = (("hé", b"x"), ("empty", None)) if index == 0 and "-v2-" in name else ()
        key = None if index == 1 else b"key-%d" % index
        timestamp = -1 if "-v0-" in name else T0 + index * 1000
        found.append(Record(base + index, timestamp, key, value, headers))
    return found


def test_all_are_there() -> None:
    assert len(GOLDEN) == 24
    assert len(V2) == 11


@pytest.mark.parametrize("name", RECORD_SETS)
def test_reads_what_was_written(name: str) -> None:
    assert list(iter_any(GOLDEN[name])) == expected(name)


@pytest.mark.parametrize("name", V2)
def test_header_and_checksum(name: str) -> None:
    header = read_header(GOLDEN[name])
    assert header.crc == crc_of(GOLDEN[name])
    assert header.size_bytes == len(GOLDEN[name])
    assert CODECS[header.compression_type] == name.split("-")[2]
    assert (header.record_count, header.last_offset_delta) == (4, 3)
    assert (header.base_timestamp, header.max_timestamp) == (T0, T0 + 3000)
    assert [found for found, _ in validate_replicated(GOLDEN[name] * 2)] == [header, header]
    if name.startswith("java"):
        assert (header.base_offset, header.partition_leader_epoch) == (100, 5)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4321, 7, 11)
        assert header.last_sequence == 14


@pytest.mark.parametrize("name", [name for name in V2 if name.startswith("librdkafka")])
def test_librdkafka_batches_are_taken_as_they_are(name: str) -> None:
    accepted = validate_produce(GOLDEN[name], AppendPolicy(compacted=False), T0)
    assert accepted.payload == GOLDEN[name]
    assert accepted.max_timestamp == T0 + 3000


@pytest.mark.parametrize("name", ["java-v2-none", "librdkafka-v2-none"])
def test_builds_the_same_bytes(name: str) -> None:
    header = read_header(GOLDEN[name])
    built = build_batch(
        expected(name),
        base_offset=header.base_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        partition_leader_epoch=header.partition_leader_epoch,
    )
    assert built == GOLDEN[name]


@pytest.mark.parametrize("committed", [True, False])
def test_builds_the_same_markers(committed: bool) -> None:
    golden = GOLDEN["java-v2-commit" if committed else "java-v2-abort"]
    built = build_control_batch(
        committed=committed,
        producer_id=4321,
        producer_epoch=7,
        coordinator_epoch=3,
        timestamp=T0,
        base_offset=100,
        partition_leader_epoch=5,
    )
    assert built == golden
    assert list(iter_any(golden)) == []
    assert len(read_records(golden)) == 1


def test_append_time_of_a_v1_wrapper() -> None:
    found = list(iter_any(GOLDEN["java-v1-append-time"]))
    assert [(record.offset, record.timestamp) for record in found] == [(100, T0 + 9999), (101, T0 + 9999)]


def test_wrappers_are_visible() -> None:
    (wrapper,) = iter_messages(GOLDEN["java-v1-lz4"])
    assert (wrapper.offset, wrapper.compression_type, wrapper.key, wrapper.is_valid) == (103, 3, None, True)


def test_mixed_file() -> None:
    order = ["java-v0-gzip", "java-v1-snappy", "java-v0-none", "java-v2-zstd", "java-v1-none", "java-v2-none"]
    whole = b"".join(GOLDEN[name] for name in order)
    wanted = [record for name in order for record in expected(name)]
    assert list(iter_any(whole)) == wanted
    assert list(iter_any(whole[:-1])) == wanted[:-4]
    entries = list(iter_entries(whole))
    assert [position for position, _, _ in entries][:2] == [0, len(GOLDEN["java-v0-gzip"])]
    assert sum(isinstance(entry, BatchHeader) for _, entry, _ in entries) == 2
    assert sum(isinstance(entry, LegacyMessage) for _, entry, _ in entries) == 10
    assert b"".join(bytes(data) for _, _, data in entries) == whole
    assert len(list(iter_headers(GOLDEN["java-v2-none"] + GOLDEN["java-v2-zstd"][:-1]))) == 1
