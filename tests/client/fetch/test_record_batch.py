"""Batches of records, as sequences and as columns."""

import pytest

from barnabas.client.fetch.columns import record_schema
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.fetch.record_batch import RecordBatch
from barnabas.errors import UsageError
from barnabas.records.builder import build_batch
from barnabas.records.compiled.consumer_records import make_record
from barnabas.records.record import Record
from client.fetch.all_records import T0, WHERE, some

pytestmark = pytest.mark.usefixtures("consumer_kernels")


def test_a_batch_is_a_sequence() -> None:
    data = build_batch(some(3), base_offset=5)
    batch = CompletedFetch(WHERE, data, 6).read_batch()
    assert batch is not None
    assert repr(batch) == "<RecordBatch of topic-3: 2 records>"
    assert [batch[0].offset, batch[-1].offset] == [6, 7]
    assert [record.offset for record in batch[1:]] == [7]
    assert batch[0] is next(iter(batch))
    assert batch.index(batch[1]) == 1
    with pytest.raises(IndexError):
        batch[2]


def test_records_of_a_batch_know_their_own_origin() -> None:
    data = build_batch(some(1), partition_leader_epoch=4) + build_batch(
        some(1), base_offset=1, partition_leader_epoch=5
    )
    batch = CompletedFetch(WHERE, data, 0).read_batch()
    assert batch is not None
    assert [record.leader_epoch for record in batch] == [4, 5]


def test_a_batch_as_arrow() -> None:
    records = [Record(i, T0 + i, None, b"v%d" % i, (("h", b"x"),)) for i in range(3)]
    data = build_batch(records, compression="lz4") + build_batch(records, base_offset=3)
    batch = CompletedFetch(WHERE, data, 0).read_batch()
    assert batch is not None
    for headers_wanted in (False, True):
        found = batch.to_arrow(headers=headers_wanted)
        assert found.schema == record_schema(headers=headers_wanted)
        assert found.equals(CompletedFetch(WHERE, data, 0).read_arrow(headers=headers_wanted))
    assert found.column("headers").to_pylist() == [[{"key": "h", "value": b"x"}]] * 6


def test_a_batch_of_records_that_were_changed() -> None:
    records = [make_record("topic", 3, offset, key="k", value=offset) for offset in range(2)]
    batch = RecordBatch.of(WHERE, records)
    assert (list(batch), batch.keys(), batch.values()) == (records, ["k", "k"], [0, 1])
    with pytest.raises(UsageError, match=r"Consumer\.arrow"):
        batch.to_arrow()
