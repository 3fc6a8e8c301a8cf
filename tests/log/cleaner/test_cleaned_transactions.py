"""Transactions under the cleaner: aborted records go, and markers stay as long as they are needed.

Each test runs on the compiled kernels and on their source.
"""

from pathlib import Path

import pytest

from barnabas.log.cleaner.cleaner_protocol import CleanerConfig
from log.cleaner.cleaner_rig import CleanerRig

pytestmark = pytest.mark.usefixtures("kernels")


def test_a_log_whose_abort_index_lacks_an_entry_is_not_cleaned(rig: CleanerRig) -> None:
    """An aborted record must not replace a committed one."""
    options = {"producer_id": 11, "producer_epoch": 0, "transactional": True}
    rig.put(("a", "committed"))
    rig.put(("a", "aborted"), base_sequence=0, **options)
    rig.marker(11, commit=False)
    rig.roll()
    before = rig.values(committed=False)
    directory = Path(rig.log.directory)
    (directory / f"{0:020d}.txnindex").unlink()
    rig.clean()
    assert "aborted a transaction at offset 2, of which no .txnindex tells" in rig.uncleanable()
    assert rig.values(committed=False) == before
    rig.release()
    for path in directory.glob("*.snapshot"):  # what the message advises
        path.unlink()
    rig.start()
    rig.clean()
    assert rig.values() == [(0, "a", "committed")]


def test_aborted_records_go_and_supersede_nothing(rig: CleanerRig) -> None:
    rig.put(("a", "1"))
    rig.transaction(11, 0, ("a", "aborted"), ("b", "aborted"))
    rig.transaction(12, 0, ("c", "committed"))
    rig.marker(11, commit=False)
    rig.marker(12, commit=True)
    rig.roll()
    rig.clean()
    assert rig.values() == [(0, "a", "1"), (3, "c", "committed")]
    assert rig.values(committed=False) == rig.values()
    assert [entry.producer_id for entry in rig.log.aborted_transactions(0, 100)] == [11]


def test_an_aborted_transaction_before_the_first_dirty_offset_of_its_segment_is_known(rig: CleanerRig) -> None:
    """Its emptied batch stays, because it is the last one of its producer."""
    rig.transaction(11, 0, ("a", "aborted"))
    rig.marker(11, commit=False)
    rig.put(("a", "1"), ("b", "1"), ("a", "2"))
    rig.roll()
    rig.limits = CleanerConfig(dedupe_buffer_size=24 * 2, io_buffer_load_factor=1.0)  # ends within the last batch
    assert rig.clean() > 1
    assert not rig.uncleanable()
    assert rig.values() == [(3, "b", "1"), (4, "a", "2")]


def test_a_marker_stays_as_long_as_its_records_and_its_time(rig: CleanerRig) -> None:
    rig.transaction(11, 0, ("a", "aborted"))
    rig.marker(11, commit=False)
    rig.transaction(11, 1, ("b", "committed"))
    rig.marker(11, commit=True)
    rig.put(("end", "1"))
    rig.roll()
    rig.clean()
    assert [(h.base_offset, h.is_control) for h in rig.headers()] == [(1, True), (2, False), (3, True), (4, False)]
    assert not any(h.has_delete_horizon for h in rig.headers()), "the aborted records have only just gone"
    assert len(rig.log.aborted_transactions(0, 100)) == 1
    rig.put(("x", "1"))
    rig.roll()
    rig.clean()
    assert [h.base_offset for h in rig.headers() if h.has_delete_horizon] == [1]
    assert rig.log.aborted_transactions(0, 100) == []
    assert not rig.files(".txnindex")
    rig.clock.now_ms += 1000
    rig.clean()
    assert [h.base_offset for h in rig.headers()] == [2, 3, 4, 5]
    rig.put(("b", "superseded"))
    rig.roll()
    rig.clean()
    # the batch is the producer's last: it stays, and so does the marker
    assert [(h.base_offset, h.record_count) for h in rig.headers()] == [(2, 0), (3, 1), (4, 1), (5, 1), (6, 1)]
    assert rig.values() == [(4, "end", "1"), (5, "x", "1"), (6, "b", "superseded")]


def test_a_transaction_over_several_segments_and_passes(rig: CleanerRig) -> None:
    rig.transaction(11, 0, ("a", "1"))
    rig.roll()
    rig.put(("a", "2"))
    rig.transaction(11, 1, ("b", "1"))
    rig.roll()
    rig.marker(11, commit=False)
    rig.put(("c", "1"))
    rig.roll()
    rig.limits = CleanerConfig(dedupe_buffer_size=24, io_buffer_load_factor=1.0)
    rig.clean()
    assert rig.values() == [(1, "a", "2"), (4, "c", "1")]
    assert rig.values(committed=False) == rig.values()


def test_nothing_at_or_above_an_open_transaction_is_cleaned(rig: CleanerRig) -> None:
    rig.put(("a", "1"))
    rig.put(("a", "2"))
    rig.roll()
    rig.transaction(11, 0, ("a", "open"))
    rig.roll()
    rig.put(("a", "3"))
    rig.roll()
    rig.clean()
    assert rig.log.cleaned_offset == 2
    assert rig.offsets(committed=False) == [1, 2, 3]
    rig.marker(11, commit=True)
    rig.clean()
    assert rig.values() == [(3, "a", "3")]


def test_the_marker_of_a_producer_without_data_keeps_its_epoch(rig: CleanerRig) -> None:
    rig.transaction(11, 0, ("a", "1"))
    rig.marker(11, commit=False, epoch=4)  # fenced: only the marker tells of epoch 4
    rig.put(("a", "2"))
    rig.roll()
    for _ in range(4):
        rig.clean()
        rig.clock.now_ms += 5000
        rig.put(("x", "1"))
        rig.roll()
    assert any(h.is_control and h.producer_epoch == 4 for h in rig.headers())
    rig.restart()
    (entry,) = rig.log.active_producers()
    assert entry.producer_epoch == 4


def transaction(rig: CleanerRig, producer_id: int, sequence: int, *pairs: tuple[str, str | None]) -> int:
    options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
    return rig.put(*pairs, **options)
