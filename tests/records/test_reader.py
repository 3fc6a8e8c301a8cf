import pytest
from poisons import T0, patched, raw_batch, record_bytes, varint

from barnabas.errors import CorruptMessage
from barnabas.records.builder import build_batch
from barnabas.records.compression import CODECS
from barnabas.records.reader import iter_any, iter_entries, iter_records, read_records
from barnabas.records.record import Record

RECORDS = [
    Record(5, T0, b"k", b"v", (("a", b"1"), ("a", None), ("", b""))),
    Record(6, T0 + 2**40, None, b""),
    Record(7, -1, b"", None),
]


@pytest.mark.parametrize("compression", CODECS)
def test_reads_what_was_built(compression: str) -> None:
    batch = build_batch(RECORDS, base_offset=5, compression=compression)
    assert list(iter_records(batch)) == RECORDS
    assert list(iter_records(memoryview(bytearray(batch + b"more")))) == RECORDS


def test_compacted_batches_have_gaps() -> None:
    section = record_bytes(0) + record_bytes(5) + record_bytes(9)
    batch = raw_batch(section, 3, base_offset=100, last_offset_delta=20)
    assert [record.offset for record in read_records(batch)] == [100, 105, 109]


def test_batch_emptied_by_compaction() -> None:
    assert read_records(raw_batch(b"", 0, base_offset=100, last_offset_delta=20)) == []


def test_header_names_that_are_no_utf8() -> None:
    section = record_bytes(0, headers=varint(1) + varint(2) + b"a\xff" + varint(-1))
    assert read_records(raw_batch(section, 1))[0].headers == (("a\ufffd", None),)


def test_checksum_is_looked_at_unless_told_otherwise() -> None:
    batch = patched(build_batch(RECORDS), crc=1)
    with pytest.raises(CorruptMessage, match="checksum"):
        read_records(batch)
    assert len(read_records(batch, check_crc=False)) == 3


@pytest.mark.parametrize("compression", CODECS)
def test_bound(compression: str) -> None:
    batch = build_batch([Record(0, T0, None, bytes(100_000))], compression=compression)
    if compression == "none":  # what lies uncompressed in the buffer already costs nothing more
        assert len(read_records(batch, max_bytes=10)) == 1
        return
    with pytest.raises(CorruptMessage, match="more than 50000 bytes"):
        read_records(batch, max_bytes=50_000)


@pytest.mark.parametrize("compression", CODECS)
def test_every_truncation(compression: str) -> None:
    batch = build_batch(RECORDS, compression=compression)
    for size in range(len(batch)):
        with pytest.raises(CorruptMessage):
            read_records(batch[:size])


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize(
    "changes",
    [{"record_count": 4}, {"record_count": 2}, {"record_count": -1}, {"record_count": 2**31 - 1}, {"attributes": 6}],
)
def test_header_that_lies(compression: str, changes: dict[str, int]) -> None:
    batch = build_batch(RECORDS, compression=compression)
    if "record_count" in changes or compression != "none":
        with pytest.raises(CorruptMessage):
            read_records(patched(batch, **changes))


def test_entries_refuse_rubbish() -> None:
    assert list(iter_entries(b"")) == []
    assert list(iter_entries(b"\0" * 16)) == []
    for rubbish in (bytes(100), b"\xff" * 100):
        with pytest.raises(CorruptMessage):
            list(iter_entries(rubbish))


def test_control_batches_are_left_out_of_mixed_buffers() -> None:
    control = build_batch([Record(0, T0, b"\0\0\0\1", b"")], control=True)
    assert len(list(iter_any(control + build_batch(RECORDS)))) == 3
