"""Aborted and open transactions of a log directory. No Spark."""

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from barnabas.spark.segments.segment_files import OFFSETS_END, find_segments
from barnabas.spark.segments.transactions import read_transactions

from .conftest import files_of, offsets, whole_file


def test_aborted_and_open_transactions(data: Path) -> None:
    files = files_of(data, "mixed-0")
    assert len(files) > 2
    everything = {o: n for n in range(30) for o in range(21 * n, 21 * n + 20)}  # a marker takes an offset too
    assert offsets([whole_file(file) for file in files]) == list(everything)
    transactions = read_transactions(files)
    assert transactions.last_stable_offset == 29 * 21
    assert len(transactions.aborted) == 10
    ranges = [
        whole_file(
            file,
            end=min(file.next_base_offset, transactions.last_stable_offset),
            aborted=transactions.aborted_between(file.base_offset, OFFSETS_END),
        )
        for file in files
    ]
    expected = [o for o, number in everything.items() if number % 3 and number < 29]
    assert offsets(ranges) == expected
    for path in (data / "mixed-0").glob("*.snapshot"):  # without them all headers are looked at
        path.rename(path.with_suffix(".aside"))
    try:
        assert read_transactions(files).last_stable_offset == 29 * 21
    finally:
        for path in (data / "mixed-0").glob("*.aside"):
            path.rename(path.with_suffix(".snapshot"))


def test_a_directory_of_kafkas() -> None:
    """See tests/log/test_kafka_files.py: 26 transactions have commit markers, eight abort markers, one is open."""
    files = find_segments(str(Path(__file__).parents[2] / "log" / "golden" / "txn-0"))
    transactions = read_transactions(files)
    assert (transactions.last_stable_offset, len(transactions.aborted)) == (365, 8)
    everything = offsets([whole_file(file) for file in files])
    markers = 26 + 8
    assert len(everything) == 366 - markers
    kept = offsets([whole_file(file, end=365, aborted=transactions.aborted) for file in files])
    dropped = {o for each in transactions.aborted for o in range(each.first_offset, each.last_offset)}
    assert kept == [o for o in everything if o < 365 and o not in dropped]
