from pathlib import Path
from struct import pack

import pytest

from barnabas.log.directories.disk import Disk
from barnabas.log.indexes.transaction_index import AbortedTransaction, CorruptTransactionIndex, TransactionIndex

ABORTED = [AbortedTransaction(1, 0, 10, 11), AbortedTransaction(2, 5, 20, 12), AbortedTransaction(3, 12, 30, 31)]


@pytest.fixture
def index(tmp_path: Path) -> TransactionIndex:
    index = TransactionIndex(str(tmp_path / "00000000000000000000.txnindex"), Disk())
    for aborted in ABORTED:
        index.append(aborted)
    return index


def test_an_entry_has_34_bytes_in_kafkas_order(index: TransactionIndex) -> None:
    expected = b"".join(pack(">hqqqq", 0, *aborted) for aborted in ABORTED)
    assert Path(index.path).read_bytes() == expected


def test_entries_survive_loading(index: TransactionIndex) -> None:
    again = TransactionIndex.load(index.path, Disk())
    assert list(again.entries) == ABORTED


@pytest.mark.parametrize(
    ("start", "end", "found", "complete"),
    [(0, 100, [0, 1, 2], False), (0, 11, [0], True), (11, 12, [1], True), (21, 31, [2], True), (31, 40, [], False)],
)
def test_collect_finds_what_touches_the_range(
    index: TransactionIndex, start: int, end: int, found: list[int], complete: bool
) -> None:
    aborted, done = index.collect(start, end)
    assert aborted == [ABORTED[number] for number in found]
    assert done == complete


def test_truncation_drops_later_markers(index: TransactionIndex) -> None:
    index.truncate_to(20)
    assert list(index.entries) == ABORTED[:1]
    assert Path(index.path).stat().st_size == 34
    index.append(ABORTED[2])
    again = TransactionIndex.load(index.path, Disk())
    assert list(again.entries) == [ABORTED[0], ABORTED[2]]


@pytest.mark.parametrize("content", [bytes(33), pack(">hqqqq", 1, 1, 0, 10, 11), 2 * pack(">hqqqq", 0, 1, 0, 10, 11)])
def test_rubbish_is_corruption(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "0.txnindex"
    path.write_bytes(content)
    with pytest.raises(CorruptTransactionIndex):
        TransactionIndex.load(str(path), Disk())
