"""Batches by Hypothesis: what is built can be checked and read, and what is damaged is refused or reads the same."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import KafkaError
from barnabas.records import builder, reader, validation
from barnabas.records.batch import BatchHeader, crc_of, iter_headers, pack_header, read_header, set_crc
from barnabas.records.builder import build_batch
from barnabas.records.compiled import record_walk
from barnabas.records.compression import CODECS, DamagedData, DecompressedTooLarge, compress, decompress
from barnabas.records.legacy import build_message, build_wrapper
from barnabas.records.reader import iter_any, read_records
from barnabas.records.record import Record
from barnabas.records.validation import AppendPolicy, ValidatedBatch, validate_produce, validate_replicated
from source_forms import RECORD_WALK

NOW = 1_800_000_000_000
ANY_TIME = AppendPolicy(timestamp_after_max_ms=2**63 - 1, max_message_bytes=10_000_000)

codecs = st.sampled_from(CODECS)
fields = st.none() | st.binary(max_size=200)
timestamps = st.just(-1) | st.integers(0, NOW * 2) | st.integers(NOW - 100, NOW + 100)
headers = st.lists(st.tuples(st.text(max_size=12), fields), max_size=4).map(tuple)
records = st.lists(st.builds(Record, st.just(0), timestamps, fields, fields, headers), min_size=1, max_size=20)


@pytest.fixture(autouse=True, params=["as installed", "source"], scope="module")
def record_kernel(request: pytest.FixtureRequest) -> object:
    chosen = record_walk if request.param == "as installed" else RECORD_WALK
    for module in (builder, reader, validation):
        module.record_walk = chosen  # type: ignore[attr-defined]
    yield chosen
    for module in (builder, reader, validation):
        module.record_walk = record_walk  # type: ignore[attr-defined]


def numbered(items: list[Record], base_offset: int) -> list[Record]:
    return [item._replace(offset=base_offset + i) for i, item in enumerate(items)]


@settings(max_examples=50)
@given(records, codecs, st.integers(0, 2**62))
def test_built_batches_read_back(items: list[Record], codec: str, base_offset: int) -> None:
    batch = build_batch(items, compression=codec, base_offset=base_offset)
    assert read_records(batch) == numbered(items, base_offset)
    header = read_header(batch)
    assert header.crc == crc_of(batch)
    assert header.max_timestamp == max(item.timestamp for item in items)
    assert pack_header(header) == batch[:61]


@settings(max_examples=50)
@given(records, codecs)
def test_built_batches_are_accepted_as_they_are(items: list[Record], codec: str) -> None:
    batch = build_batch(items, compression=codec)
    accepted = validate_produce(memoryview(batch), ANY_TIME, NOW)
    assert bytes(accepted.payload) == batch
    assert accepted.max_timestamp == max(item.timestamp for item in items)
    assert accepted.record_count == len(items)


@settings(max_examples=50)
@given(records, codecs, st.sampled_from([*CODECS[1:], "uncompressed", "producer"]), st.booleans())
def test_rewritten_batches_hold_the_same_records(
    items: list[Record], codec: str, target: str, append_time: bool
) -> None:
    policy = AppendPolicy(compression_type=target, log_append_time=append_time, timestamp_after_max_ms=2**63 - 1)
    accepted = validate_produce(build_batch(items, compression=codec), policy, NOW)
    wanted = numbered(items, 0)
    if append_time:
        wanted = [item._replace(timestamp=NOW) for item in wanted]
    assert read_records(accepted.payload) == wanted
    assert accepted.header == read_header(accepted.payload)
    assert accepted.header.crc == crc_of(accepted.payload)
    assert accepted.header.is_log_append_time == append_time
    wanted_codec = codec if target == "producer" else target.replace("uncompressed", "none")
    assert CODECS[accepted.header.compression_type] == wanted_codec
    # what a leader appended passes at a follower
    assert len(validate_replicated(accepted.payload)) == 1


@settings(max_examples=50)
@given(records, codecs, st.booleans())
def test_policies_name_exactly_the_records_at_fault(items: list[Record], codec: str, compacted: bool) -> None:
    policy = AppendPolicy(compacted=compacted, timestamp_before_max_ms=50, timestamp_after_max_ms=50)
    at_fault = {
        i
        for i, item in enumerate(items)
        if (compacted and item.key is None) or (item.timestamp != -1 and abs(item.timestamp - NOW) > 50)
    }
    batch = build_batch(items, compression=codec)
    if not at_fault:
        validate_produce(batch, policy, NOW)
        return
    with pytest.raises(KafkaError) as caught:
        validate_produce(batch, policy, NOW)
    assert {reason.batch_index for reason in validation.record_errors_of(caught.value)} == at_fault
    keys_only = all(compacted and items[i].key is None for i in at_fault)
    assert caught.value.code == (87 if keys_only else 32)


@settings(max_examples=10)
@given(records, codecs)
def test_truncated_at_each_byte(items: list[Record], codec: str) -> None:
    batch = build_batch(items, compression=codec)
    for size in range(len(batch)):
        with pytest.raises(KafkaError):
            validate_produce(batch[:size], ANY_TIME, NOW)
        assert validate_replicated(batch[:size]) == []


@settings(max_examples=6)
@given(records, codecs, st.integers(1, 255), st.booleans())
def test_each_byte_changed(items: list[Record], codec: str, change: int, repair: bool) -> None:
    """A changed byte is refused, or (leader epoch, or with the checksum put right) gives a batch that can be read."""
    batch = build_batch(items, compression=codec)
    for position in range(len(batch)):
        changed = bytearray(batch)
        changed[position] ^= change
        if repair and position >= 21:
            set_crc(changed)
        accepted = accept(changed)
        if accepted is None:
            continue
        assert repair or position in range(12, 16), "only the leader epoch is unguarded"
        read = read_records(accepted.payload)
        assert [record.offset for record in read] == list(range(accepted.record_count))
        if not repair:
            assert read == numbered(items, 0)


def accept(data: bytes | bytearray) -> ValidatedBatch | None:
    try:
        return validate_produce(data, ANY_TIME, NOW)
    except KafkaError:
        return None


header_values = st.builds(
    BatchHeader,
    st.just(0) | st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.just(2) | st.integers(-128, 127),
    st.integers(0, 2**32 - 1),
    st.integers(0, 7) | st.integers(-(2**15), 2**15 - 1),
    st.integers(0, 30) | st.integers(-(2**31), 2**31 - 1),
    *[st.integers(-(2**63), 2**63 - 1)] * 3,
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 30) | st.integers(-(2**31), 2**31 - 1),
)


@settings(max_examples=150)
@given(header_values, records, codecs, st.booleans(), st.booleans())
def test_any_header_over_real_records(
    header: BatchHeader, items: list[Record], codec: str, fit: bool, append_time: bool
) -> None:
    section = build_batch(items, compression=codec)[61:]
    if fit:
        count = len(items)
        header = header._replace(
            base_offset=0,
            batch_length=49 + len(section),
            magic=2,
            attributes=header.attributes & ~7 | CODECS.index(codec),
            last_offset_delta=count - 1,
            record_count=count,
        )
    data = bytearray(pack_header(header) + section)
    set_crc(data)
    policy = AppendPolicy(log_append_time=append_time, timestamp_after_max_ms=2**63 - 1)
    try:
        accepted = validate_produce(data, policy, NOW)
    except KafkaError:
        return
    read = read_records(accepted.payload)
    assert len(read) == accepted.record_count == len(items)
    assert accepted.header.max_timestamp == accepted.max_timestamp == max(-1, *(record.timestamp for record in read))


@settings(max_examples=150)
@given(st.binary(max_size=400))
def test_rubbish_gives_kafka_errors_only(data: bytes) -> None:
    for work in (
        lambda: validate_produce(data, ANY_TIME, NOW),
        lambda: validate_replicated(data),
        lambda: read_records(data),
        lambda: list(iter_any(data)),
        lambda: list(iter_headers(data)),
    ):
        try:
            work()
        except KafkaError:
            continue


@settings(max_examples=150)
@given(st.binary(max_size=200), st.integers(0, 4), st.integers(0, 30))
def test_rubbish_for_records(data: bytes, codec: int, count: int) -> None:
    payload = compress(codec, data)
    header = BatchHeader(0, 49 + len(payload), 0, 2, 0, codec, count - 1, NOW, NOW, -1, -1, -1, count)
    batch = bytearray(pack_header(header) + payload)
    set_crc(batch)
    accepted = accept(batch)
    if accepted is not None:
        assert len(read_records(accepted.payload)) == count


@settings(max_examples=50)
@given(st.integers(0, 4), st.binary(max_size=2000))
def test_codecs_round_trip(codec: int, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@settings(max_examples=150)
@given(
    st.integers(0, 7),
    st.binary(max_size=300),
    st.sampled_from([b"", b"\x82SNAPPY\0", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"]),
)
def test_codecs_on_rubbish(codec: int, data: bytes, start: bytes) -> None:
    with contextlib.suppress(DamagedData, DecompressedTooLarge):
        assert len(decompress(codec, start + data, 1000)) <= 1000


legacy_records = st.lists(st.tuples(fields, fields, st.integers(0, NOW)), min_size=1, max_size=10)


@settings(max_examples=50)
@given(legacy_records, st.sampled_from([0, 1]), st.sampled_from([0, 1, 2, 3]), st.integers(1, 2**60))
def test_legacy_round_trip(
    items: list[tuple[bytes | None, bytes | None, int]], magic: int, codec: int, base: int
) -> None:
    wanted = [Record(base + i, item[2] if magic else -1, item[0], item[1]) for i, item in enumerate(items)]
    if codec:
        data = build_wrapper(wanted, codec=codec, magic=magic)
    else:
        data = b"".join(
            build_message(item.offset, item.key, item.value, magic=magic, timestamp=item.timestamp) for item in wanted
        )
    assert list(iter_any(data)) == wanted
    torn = data[:-1]
    assert list(iter_any(torn)) == (wanted[:-1] if codec == 0 else [])
