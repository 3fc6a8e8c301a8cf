"""The counts of the demo's consumers."""

import pytest

from barnabas.cli.demo.tally import GroupReading, ProgressBar, Tally, measured
from barnabas.pipeline.demo.flights import checksum
from barnabas.records.compiled.consumer_records import make_record
from barnabas.records.consumer_record import ConsumerRecord


def record(partition: int, offset: int, value: bytes = b'{"id":5,"x":1}') -> ConsumerRecord:
    return make_record("t", partition, offset, 1000, key=b"UA", value=value)


def test_a_tally_counts_gaps_and_doubles_by_partition() -> None:
    tally = Tally("consumer-1")
    tally.take([record(0, 0), record(0, 1), record(1, 7)])
    assert tally.first == tally.last > 0
    tally.take([record(0, 3), record(0, 3, b"no flight"), record(1, 8)])
    assert (tally.records, tally.seen) == (6, []), "they are examined when all are read"
    tally.examine()
    assert tally.gaps == 2
    assert tally.by_partition == {0: 4, 1: 2}
    assert tally.size == 5 * (2 + 14) + 2 + 9
    assert tally.seen[0][1] == checksum(b"UA", b'{"id":5,"x":1}', 1000)
    assert [number for number, _ in tally.seen] == [5, 5, 5, 5, -1, 5]


def test_a_group_is_done_when_each_partition_is_read_to_its_end() -> None:
    reading = GroupReading({0: 3, 1: 1})
    reading.take([record(0, 0), record(0, 1)])
    reading.take([record(1, 0), record(2, 9)])
    assert not reading.complete
    reading.take([record(0, 2)])
    assert reading.complete
    assert GroupReading({}).complete


def test_figures_of_a_stage() -> None:
    assert measured(100, 3_000_000, 2.0) == {
        "records": 100,
        "bytes": 3_000_000,
        "seconds": 2.0,
        "records_per_second": 50,
        "megabytes_per_second": 1.5,
    }
    assert measured(0, 0, 0.0)["records_per_second"] == 0, "nothing is divided by zero"


@pytest.mark.parametrize("shown", [True, False])
def test_a_bar_moves_by_what_it_is_told(shown: bool, capsys: pytest.CaptureFixture[str]) -> None:
    if shown:
        pytest.importorskip("rich")
    with ProgressBar("producing", 10, shown=shown) as advance:
        advance(4)
        advance(6)
    assert ("producing" in capsys.readouterr().out) is shown
