"""The log that every broker has to clean."""

from barnabas.records.batch import read_header
from barnabas.records.reader import read_records
from bench.compaction import batches


def test_the_same_seed_makes_the_same_log() -> None:
    made = list(batches(20_000, 100, 5, "lz4", 1000, seed=1))
    assert made == list(batches(20_000, 100, 5, "lz4", 1000, seed=1))
    assert made != list(batches(20_000, 100, 5, "lz4", 1000, seed=2))
    assert sum(map(len, made[:-1])) < 20_000 <= sum(map(len, made))
    headers = [read_header(batch) for batch in made]
    assert [header.base_offset for header in headers[1:]] == [header.next_offset for header in headers[:-1]]
    records = [record for batch in made for record in read_records(batch)]
    assert len({record.key for record in records}) == 5
    assert {len(record.value or b"") for record in records} == {100}
    assert [record.offset for record in records] == list(range(len(records)))
