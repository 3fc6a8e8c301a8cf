"""Records of fetched batches as light objects, a few at a time."""

from typing import Any

import pytest
from walks import Walks

from barnabas.records.builder import build_batch
from barnabas.records.record import Record

T0 = 1_700_000_000_000
COUNT = 10


def cursor(walks: Walks, data: bytes, *, minimum: int = 0, append_timestamp: int = -1) -> Any:
    """A cursor over `data`, a batch of COUNT records from offset 100 on."""
    origin = walks.consumer.RecordOrigin("t", 3, 7, 0 if append_timestamp < 0 else 1)
    return walks.consumer.RecordCursor(
        origin, data, 61, len(data), COUNT, 100, T0, append_timestamp, minimum, 100 + COUNT - 1
    )


@pytest.fixture(scope="module")
def batch() -> bytes:
    records = [Record(0, T0 + n, None if n == 1 else b"k%d" % n, b"v", (("h", b"%d" % n),)) for n in range(COUNT)]
    return build_batch(records, base_offset=100)


def test_as_many_are_read_as_are_asked_for(walks: Walks, batch: bytes) -> None:
    reading, found = cursor(walks, batch), []
    for limit, left in ((3, 7), (0, 7), (-1, 7), (100, 0), (5, 0)):
        reading.read(found, limit)
        assert reading.left == left
    assert [record.offset for record in found] == list(range(100, 110))
    assert [record.timestamp for record in found] == list(range(T0, T0 + COUNT))
    assert (found[0].key, found[1].key) == (b"k0", None)


def test_a_record_has_what_its_batch_says(walks: Walks, batch: bytes) -> None:
    found: list[Any] = []
    cursor(walks, batch).read(found, 1)
    (record,) = found
    assert (record.topic, record.partition, record.leader_epoch, record.timestamp_type) == ("t", 3, 7, 0)
    assert record.headers == (("h", b"0"),)
    same = walks.consumer.make_record("t", 3, 100, T0, 0, b"k0", b"v", (("h", b"0"),), 7)
    assert record == same
    assert hash(record) == hash(same)
    assert record != walks.consumer.make_record("t", 3, 100, T0, 0, b"k0", b"other", (("h", b"0"),), 7)
    assert "offset=100" in repr(record)


def test_records_below_the_first_wanted_offset_are_left_out(walks: Walks, batch: bytes) -> None:
    found: list[Any] = []
    cursor(walks, batch, minimum=107).read(found, 100)
    assert [record.offset for record in found] == [107, 108, 109]


def test_all_get_the_time_of_their_append(walks: Walks, batch: bytes) -> None:
    found: list[Any] = []
    cursor(walks, batch, append_timestamp=5).read(found, 100)
    assert {(record.timestamp, record.timestamp_type) for record in found} == {(5, 1)}


def test_records_before_a_broken_one_are_read(walks: Walks, batch: bytes) -> None:
    at = batch.index(b"k4")
    reading, found = cursor(walks, batch[: at - 1] + b"\x7f" + batch[at:]), []
    for _ in range(2):
        with pytest.raises(ValueError, match="offset 104 has a key of length"):
            reading.read(found, 100)
        assert [record.offset for record in found] == [100, 101, 102, 103]
        assert reading.left == 6
