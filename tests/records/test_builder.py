import pytest

from barnabas.errors import UsageError
from barnabas.records.batch import crc_of, read_header
from barnabas.records.builder import BatchBuilder, build_batch
from barnabas.records.compression import CODECS
from barnabas.records.reader import read_records
from barnabas.records.record import Record

T0 = 1_700_000_000_000


def test_size_is_exact_before_compression() -> None:
    builder = BatchBuilder()
    assert builder.size_bytes == 61
    for i in range(300):
        builder.append(b"k" * i, None if i % 7 == 0 else b"v" * i, T0 + i * 1000, (("h", b"x" * i),) if i % 3 else ())
        assert len(builder) == i + 1
    assert len(builder.build()) == builder.size_bytes


def test_offsets_and_timestamps_are_the_batch_s_own() -> None:
    batch = build_batch(
        [Record(99, T0 + 5, b"a", b""), Record(3, T0 - 5, None, None), Record(0, -1, b"", b"c")], base_offset=40
    )
    assert read_records(batch) == [
        Record(40, T0 + 5, b"a", b""),
        Record(41, T0 - 5, None, None),
        Record(42, -1, b"", b"c"),
    ]
    header = read_header(batch)
    assert (header.base_timestamp, header.max_timestamp) == (T0 + 5, T0 + 5)


@pytest.mark.parametrize("compression", CODECS)
def test_header_says_what_was_asked_for(compression: str) -> None:
    batch = build_batch(
        [Record(0, T0, b"k", b"v" * 1000)] * 3,
        compression=compression,
        producer_id=7,
        producer_epoch=2,
        base_sequence=100,
        transactional=True,
        partition_leader_epoch=9,
    )
    header = read_header(batch)
    assert header.crc == crc_of(batch)
    assert header.size_bytes == len(batch)
    assert CODECS[header.compression_type] == compression
    assert header[9:] == (7, 2, 100, 3)
    assert header.is_transactional
    assert not header.is_control
    assert header.partition_leader_epoch == 9
    assert header.last_offset_delta == 2


def test_append_and_extend_are_the_same() -> None:
    records = [Record(0, T0 + i, b"%d" % i, b"v", (("é", None),)) for i in range(20)]
    one, other = BatchBuilder(), BatchBuilder()
    for record in records:
        one.append(record.key, record.value, record.timestamp, record.headers)
    other.extend(records[:1])
    other.extend(iter(records[1:]))
    other.extend([])
    assert one.build() == other.build()


def test_log_append_time() -> None:
    batch = build_batch([Record(0, T0, None, b"v")], log_append_time=T0 + 77)
    assert read_header(batch).is_log_append_time
    assert read_records(batch)[0].timestamp == T0 + 77


def test_builder_without_records() -> None:
    header = read_header(BatchBuilder().build())
    assert (header.record_count, header.last_offset_delta, header.max_timestamp) == (0, -1, -1)


def test_unknown_compression_is_the_caller_s_mistake() -> None:
    with pytest.raises(UsageError, match="use one of none, gzip, snappy, lz4, zstd"):
        BatchBuilder(compression="brotli")
