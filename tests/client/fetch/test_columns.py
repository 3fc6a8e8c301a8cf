"""Records as columns, and as Arrow batches."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter

from barnabas.client.fetch import columns, record_batch
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.errors import UsageError
from barnabas.records.batch import HEADER_SIZE, set_crc
from barnabas.records.builder import build_batch
from barnabas.records.compiled.consumer_records import ConsumerRecord
from barnabas.records.compiled.record_walk import write_record
from barnabas.records.record import Record
from barnabas.types import TopicPartition
from client.fetch.all_records import T0, WHERE, arrow_all, batch_all, read_all, some

pytestmark = pytest.mark.usefixtures("consumer_kernels")


sparse = st.lists(st.none() | st.binary(max_size=5), min_size=1, max_size=40)


@settings(max_examples=100, deadline=None)
@given(sparse, sparse)
def test_nulls_among_values(keys: list[bytes | None], values: list[bytes | None]) -> None:
    """The bitmap begins where nulls and others meet, wherever that is."""
    records = [Record(i, T0, key, value) for i, (key, value) in enumerate(zip(keys, values, strict=False))]
    data = build_batch(records)
    assert batch_all(CompletedFetch(WHERE, data, 0)) == records
    assert arrow_all(CompletedFetch(WHERE, data, 0)) == records


def test_arrow_without_headers_does_not_look_at_them() -> None:
    data = build_batch([Record(0, T0, None, b"v", (("h", b"x"),)), Record(0, T0, b"k", None)])
    assert arrow_all(CompletedFetch(WHERE, data, 0), with_headers=False) == [
        Record(0, T0, None, b"v"),
        Record(1, T0, b"k", None),
    ]


def test_arrow_header_names_that_are_not_utf8() -> None:
    batch = bytearray(build_batch([Record(0, T0, None, b"v", (("h", b"x"),))]))
    batch[batch.index(b"h", HEADER_SIZE)] = 0xFF
    set_crc(batch)
    assert arrow_all(CompletedFetch(WHERE, bytes(batch), 0)) == [Record(0, T0, None, b"v", (("\ufffd", b"x"),))]


def test_without_pyarrow_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    fetch = CompletedFetch(WHERE, build_batch(some(1)), 0)
    with pytest.raises(UsageError, match=r"pip install 'barnabas\[arrow\]'"):
        fetch.read_arrow()


def test_many_records_in_one_arrow_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_multiples", {})
    monkeypatch.setattr(columns, "_COUNT_MAX", 10)
    data = build_batch(some(50))
    assert len(arrow_all(CompletedFetch(WHERE, data, 0))) == 50
    assert columns._multiples == {}
    assert len(arrow_all(CompletedFetch(WHERE, build_batch(some(9)), 0))) == 9
    assert {step: len(kept) for step, kept in columns._multiples.items()} == {2: 36, len(WHERE.topic): 40}
    for length in range(20):
        longer = TopicPartition("t" * length, 0)
        batch = CompletedFetch(longer, build_batch(some(3)), 0).read_arrow()
        assert batch is not None
        assert batch.column("topic").to_pylist() == [longer.topic] * 3
        assert len(columns._multiples) <= columns._STEPS_MAX


def test_more_records_than_one_arrow_batch_can_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_multiples", {})
    monkeypatch.setattr(columns, "PLACE_MAX", 200)
    fetch = CompletedFetch(WHERE, build_batch(some(50)), 0)
    for _ in range(2):
        with pytest.raises(UsageError, match="too many records for one Arrow batch: seek"):
            fetch.read_arrow()
    assert fetch.next_offset == 0
    assert len(read_all(CompletedFetch(WHERE, build_batch(some(50)), 0))) == 50


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (2**63 - 100, 2**40), (-(2**63), -1), (-5, -(2**63))])
def test_a_time_beyond_64_bits_is_refused(base: int, delta: int) -> None:
    """Machine integers would go round, plain ones would go on; with LogAppendTime nobody looks at it."""
    out = BytesWriter()
    write_record(out, 0, delta, None, b"v", ())
    data = out.getvalue()
    for log_append in (False, True):
        cursor = record_batch.RecordCursor(
            record_batch.RecordOrigin("t", 0, 0, int(log_append)), data, 0, len(data), 1, 0, base, 7, 0, 0
        )
        table = columns.RecordColumns(False)
        records: list[ConsumerRecord] = []
        if log_append:
            cursor.read(records, 1)
            table.add_batch(data, 0, len(data), 1, 0, base, 7, True, 0, 0)
            assert records[0].timestamp == int.from_bytes(table.timestamps.getvalue(), "little") == 7
            continue
        with pytest.raises(ValueError, match="over 64 bits"):
            cursor.read(records, 1)
        with pytest.raises(ValueError, match="over 64 bits"):
            table.add_batch(data, 0, len(data), 1, 0, base, 7, False, 0, 0)
        assert records == []


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 2, 1), (-(2**63), 2**63 - 1), (5, -(2**63)), (-(2**63) + 1, -1)])
def test_times_at_the_ends_of_64_bits(base: int, delta: int) -> None:
    out = BytesWriter()
    write_record(out, 0, delta, None, b"v", ())
    data = out.getvalue()
    records: list[ConsumerRecord] = []
    cursor = record_batch.RecordCursor(record_batch.RecordOrigin("t", 0, 0, 0), data, 0, len(data), 1, 0, base, 7, 0, 0)
    cursor.read(records, 1)
    table = columns.RecordColumns(False)
    table.add_batch(data, 0, len(data), 1, 0, base, 7, False, 0, 0)
    assert records[0].timestamp == int.from_bytes(table.timestamps.getvalue(), "little", signed=True) == base + delta


def test_arrow_batches_do_without_pandas() -> None:
    """pyarrow imports it, where it is installed, as soon as it makes an array of Python's objects."""
    code = """
import sys
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.types import TopicPartition
data = build_batch([Record(0, 5, None, b"v", (("h", b"x"),)), Record(1, 6, None, b"w", ())])
batch = CompletedFetch(TopicPartition("t", 0), data, 0).read_arrow(headers=True)
assert batch.num_rows == 2
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
