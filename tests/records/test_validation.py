"""Each payload of `poisons.py` against the answer that Apache Kafka 4.4.0 gave, and what the answers do not show."""

import json
from pathlib import Path
from typing import Any

import poisons
import pytest
from poisons import NOW, POLICIES, T0, Poison, patched, record_bytes, records
from test_compression import NOTHING

from barnabas.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, KafkaError, MessageTooLarge
from barnabas.records import validation
from barnabas.records.batch import crc_of, read_header
from barnabas.records.builder import build_batch
from barnabas.records.compiled.record_walk import PAUSE_RECORDS
from barnabas.records.compression import CODECS
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from barnabas.records.validation import (
    RECORD_ERRORS_MAX,
    AppendPolicy,
    TooMuchWork,
    ValidatedBatch,
    record_errors_of,
    validate_produce,
    validate_replicated,
)

VERDICTS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "verdicts.json").read_text())
COMPRESSED = CODECS[1:]

STRICTER: dict[str, int] = {
    # Kafka's own arithmetic overflows, it answers UNKNOWN_SERVER_ERROR (-1)
    "length 2^31-1": 87,
    "endless varint (none)": 87,
    "six byte length (none)": 87,
    # bytes after the compressed records: librdkafka refuses the lz4 ones, Go's reader the gzip ones
    "rubbish follows [gzip]": 87,
    "zero follows [gzip]": 87,
    "zero follows [snappy]": 87,
    "rubbish follows [lz4]": 87,
    "zero follows [lz4]": 87,
    "the same again follows [lz4]": 87,
    # a second xerial stream inside the first: only Java reads it
    "the same again follows [snappy]": -1,
    "records over two frames [snappy]": -1,
}
for codec in CODECS:
    STRICTER |= {f"{field} -2 ({codec})": 87 for field in ("key", "value", "header value")}
    STRICTER |= {f"offset delta {how} ({codec})": 87 for how in ("repeated", "skipped", "-1")}
    STRICTER |= {f"offset deltas {how} ({codec})": 87 for how in ("from 1", "swapped")}
    STRICTER[f"recoding meets a repeated delta ({codec})"] = 87
for codec in COMPRESSED:
    # the declared length of a compressed record is skipped over by Kafka and used by its consumers
    wrong = ("one more", "one less", "one less in the first", "one more in the first")
    STRICTER |= {f"length {how} ({codec})": 87 for how in wrong}


def verdict(poison: Poison) -> tuple[int, KafkaError | None, ValidatedBatch | None]:
    try:
        accepted = validate_produce(poison.data, POLICIES[poison.topic], NOW, zstd_allowed=poison.version >= 7)
    except KafkaError as error:
        return error.code, error, None
    return 0, None, accepted


@pytest.mark.parametrize("poison", poisons.all_poisons(), ids=lambda poison: poison.name)
def test_same_answer_as_kafka(poison: Poison) -> None:
    code, error, accepted = verdict(poison)
    kafka = VERDICTS[poison.name]
    assert code == STRICTER.get(poison.name, kafka["code"]), error
    if poison.name in STRICTER:
        assert kafka["code"] != code, "no longer stricter: take it off the list"
    elif error is not None:
        assert [reason.batch_index for reason in record_errors_of(error)] == kafka.get("record_errors", [])
    elif accepted is not None:
        check_stored(poison, accepted, kafka["stored"])


def check_stored(poison: Poison, accepted: ValidatedBatch, stored: str) -> None:
    ours = bytes(accepted.payload)
    assert accepted.header == read_header(ours)
    assert accepted.header.crc == crc_of(ours)
    if stored == "same":
        assert ours == poison.data[: len(ours)]
        return
    theirs = ours[:12] + bytes.fromhex(stored)
    wanted = read_header(theirs)
    assert accepted.header.attributes == wanted.attributes
    assert accepted.record_count == wanted.record_count
    assert accepted.offset_of_max_timestamp_delta == wanted.last_offset_delta
    if poison.topic == "append_time":
        assert accepted.max_timestamp == accepted.header.max_timestamp == NOW
        return
    assert accepted.max_timestamp == accepted.header.max_timestamp == wanted.max_timestamp
    assert read_records(ours) == read_records(theirs[:8] + (len(theirs) - 12).to_bytes(4, "big") + theirs[12:])


def test_every_payload_has_a_verdict() -> None:
    assert {poison.name for poison in poisons.all_poisons()} == set(VERDICTS)
    assert set(STRICTER) <= set(VERDICTS)


def test_payload_is_what_was_sent() -> None:
    batch = build_batch(records())
    assert validate_produce(batch, AppendPolicy(), NOW).payload is batch
    view = memoryview(b"frame " + batch)[6:]
    assert validate_produce(view, AppendPolicy(), NOW).payload is view


def test_bytearray_and_memoryview_give_the_same() -> None:
    batch = build_batch(records(), compression="lz4")
    for form in (batch, bytearray(batch), memoryview(batch), memoryview(bytearray(batch))):
        accepted = validate_produce(form, AppendPolicy(), NOW)
        assert accepted.header == read_header(batch)
        assert accepted.max_timestamp == T0 + 2


def test_reasons_name_record_and_rule() -> None:
    section = record_bytes(0) + record_bytes(1, key=None) + record_bytes(2, poisons.FUTURE - T0)
    policy = AppendPolicy(compacted=True)
    with pytest.raises(InvalidTimestamp) as caught:
        validate_produce(poisons.raw_batch(section, 3), policy, NOW)
    assert caught.value.message.startswith("2 of 3 records refused; record 1: it has no key")
    first, second = record_errors_of(caught.value)
    assert first == (1, "it has no key, and the topic is compacted")
    assert second.batch_index == 2
    assert str(poisons.FUTURE) in second.message


def test_reasons_are_bounded() -> None:
    batch = build_batch([Record(0, T0, None, b"")] * (RECORD_ERRORS_MAX + 5))
    with pytest.raises(InvalidRecord) as caught:
        validate_produce(batch, AppendPolicy(compacted=True), NOW)
    assert len(record_errors_of(caught.value)) == RECORD_ERRORS_MAX
    assert "or more" in caught.value.message


def test_append_time_bit_and_a_missing_key() -> None:
    section = record_bytes(0, key=None) + record_bytes(1)
    batch = poisons.raw_batch(section, 2, attributes=8, max_timestamp=-1)
    with pytest.raises(InvalidTimestamp) as caught:
        validate_produce(batch, AppendPolicy(compacted=True), NOW)
    assert [("no key" in reason.message) for reason in record_errors_of(caught.value)] == [True, False]
    batch = poisons.raw_batch(section, 2, attributes=8, max_timestamp=T0)
    with pytest.raises(InvalidRecord) as caught_key:
        validate_produce(batch, AppendPolicy(compacted=True), NOW)
    assert [reason.batch_index for reason in record_errors_of(caught_key.value)] == [0]


def test_no_reasons_for_a_broken_batch() -> None:
    with pytest.raises(CorruptMessage) as caught:
        validate_produce(patched(build_batch(records()), crc=1), AppendPolicy(), NOW)
    assert record_errors_of(caught.value) == ()


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_record_is_not_larger_than_allowed_without_compression(compression: str) -> None:
    """As Kafka: the record's own length counts, and only where the broker decompresses."""
    value = bytes(1000)
    batch = build_batch([Record(0, T0, b"k", b"small"), Record(1, T0, b"k", value)], compression=compression)
    size = len(record_bytes(1, key=b"k", value=value)) - 2  # without the length itself, a varint of two bytes
    validate_produce(batch, AppendPolicy(record_max_bytes=size), NOW)
    with pytest.raises(InvalidRecord, match=f"record 1 has {size} bytes, max.decompressed.message.bytes is {size - 1}"):
        validate_produce(batch, AppendPolicy(record_max_bytes=size - 1), NOW)
    plain = build_batch([Record(0, T0, b"k", value)])
    validate_produce(plain, AppendPolicy(record_max_bytes=10), NOW)


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])  # snappy shrinks nothing below a twentieth
def test_decompression_bomb(compression: str) -> None:
    bomb = build_batch([Record(0, T0, None, bytes(17_000_000))], compression=compression)
    with pytest.raises(MessageTooLarge, match="hold more than 16777216 bytes"):
        validate_produce(bomb, AppendPolicy(), NOW)
    validate_produce(bomb, AppendPolicy(max_message_bytes=8_500_100), NOW)


def test_append_time_keeps_what_the_checksum_covers_right() -> None:
    batch = build_batch(records(), producer_id=5, producer_epoch=1, base_sequence=7, transactional=True)
    accepted = validate_produce(batch, AppendPolicy(log_append_time=True), NOW)
    assert accepted.header.is_log_append_time
    assert accepted.header.is_transactional
    assert accepted.header.last_sequence == 9
    assert [record.timestamp for record in read_records(accepted.payload)] == [NOW] * 3


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", [*CODECS[1:], "uncompressed"])
def test_recoding_keeps_records_and_producer(source: str, target: str) -> None:
    batch = build_batch(records(40), compression=source, producer_id=5, producer_epoch=1, base_sequence=7)
    accepted = validate_produce(batch, AppendPolicy(compression_type=target), NOW)
    assert CODECS[accepted.header.compression_type] == target.replace("uncompressed", "none")
    assert read_records(accepted.payload) == read_records(batch)
    assert accepted.header.producer_id == 5
    assert accepted.header.base_sequence == 7


def test_replicated_batches() -> None:
    first, second = build_batch(records(2), base_offset=10), build_batch(records(3), base_offset=12, compression="zstd")
    found = validate_replicated(first + second + first[:-1])
    assert [header.base_offset for header, _ in found] == [10, 12]
    assert [bytes(batch) for _, batch in found] == [first, second]
    assert validate_replicated(b"") == []
    assert validate_replicated(first[:60]) == []


def test_replicated_batches_refuse_damage() -> None:
    batch = build_batch(records(2), base_offset=10)
    for broken in (patched(batch, crc=1), patched(batch, magic=1), patched(batch, batch_length=40)):
        with pytest.raises(CorruptMessage):
            validate_replicated(batch + broken)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_records_in_too_many_pieces_are_refused_with_a_reason(codec: str) -> None:
    _, head, piece, tail = next(kind for kind in NOTHING.values() if CODECS[kind[0]] == codec)
    batch = build_batch(records(), compression=codec)
    with pytest.raises(InvalidRecord, match=f"{codec}: the records are cut into more than 4196 pieces"):
        validate_produce(patched_records(batch, head + 5000 * piece + tail), AppendPolicy(), NOW)
    with pytest.raises(TooMuchWork):
        validate_produce(patched_records(batch, head + 5000 * piece + tail), AppendPolicy(), NOW, at_once=True)


def patched_records(batch: bytes, packed: bytes) -> bytes:
    return patched(batch[:8] + (49 + len(packed)).to_bytes(4, "big") + batch[12:61] + packed)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_takes_long_is_not_validated_at_once(codec: str) -> None:
    small = build_batch([Record(0, NOW, b"k", bytes(200_000), ())], compression=codec)
    assert validate_produce(small, AppendPolicy(), NOW, at_once=True).record_count == 1
    large = build_batch([Record(0, NOW, b"k", bytes(1_100_000), ())], compression=codec)
    with pytest.raises(TooMuchWork):
        validate_produce(large, AppendPolicy(), NOW, at_once=True)
    assert validate_produce(large, AppendPolicy(), NOW).record_count == 1
    recoded = AppendPolicy(compression_type="zstd" if codec == "gzip" else "gzip")
    with pytest.raises(TooMuchWork):
        validate_produce(small, recoded, NOW, at_once=True)
    plain = build_batch([Record(0, NOW, b"k", bytes(200_000), ())])
    with pytest.raises(TooMuchWork):
        validate_produce(plain, recoded, NOW, at_once=True)


@pytest.mark.source
def test_the_check_of_many_records_lets_other_threads_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[int] = []
    monkeypatch.setattr(validation, "_pause", lambda: pauses.append(1))
    batch = build_batch([Record(0, NOW, None, None, ())] * (2 * PAUSE_RECORDS + 1))
    policy = AppendPolicy(max_message_bytes=10_000_000)
    validate_produce(batch, policy, NOW, at_once=True)
    assert not pauses
    validate_produce(batch, policy, NOW)
    assert len(pauses) == 2
