"""Batches behind one that was refused: all pairs of what was refused, what the log has and what comes."""

import pytest

from barnabas.errors import NotEnoughReplicas
from barnabas.log.producers.producer_state_manager import CachedBatch, ProducerEntry
from barnabas.records.batch import BatchHeader, read_header
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.replication.refused_batches import PRODUCERS_MAX, RefusedBatches
from barnabas.types import Offset, ProducerId


def header(sequence: int, *, producer: int = 7, epoch: int = 0) -> BatchHeader:
    records = [Record(0, 1_700_000_000_000, None, b"x", ())]
    return read_header(build_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence))


def written(last_sequence: int, *, epoch: int = 0) -> ProducerEntry:
    entry = ProducerEntry(ProducerId(7))
    entry.producer_epoch = epoch
    entry.batches.append(CachedBatch(last_sequence, last_sequence, Offset(0), Offset(0), 0))
    return entry


@pytest.fixture
def refused() -> RefusedBatches:
    return RefusedBatches()


def is_refused(refused: RefusedBatches, batch: BatchHeader, entry: ProducerEntry | None) -> bool:
    try:
        refused.check(batch, entry)
    except NotEnoughReplicas:
        return True
    return False


def test_what_is_behind_a_refused_batch_is_refused_until_that_is_there(refused: RefusedBatches) -> None:
    refused.note(header(5))
    assert is_refused(refused, header(6), written(4))
    assert is_refused(refused, header(7), written(4))
    assert not is_refused(refused, header(5), written(4))
    assert not is_refused(refused, header(7), written(5)), "the log says that there is a gap again"


def test_of_several_refused_batches_the_first_counts(refused: RefusedBatches) -> None:
    for sequence in (6, 5, 7):
        refused.note(header(sequence))
    assert is_refused(refused, header(8), written(4))


def test_a_new_producer_begins_with_its_first_batch(refused: RefusedBatches) -> None:
    refused.note(header(0))
    assert is_refused(refused, header(1), None)
    refused.note(header(0, epoch=1))
    assert is_refused(refused, header(1, epoch=1), written(9, epoch=0))


def test_a_refused_batch_that_another_leader_has_written_leaves_the_next_one_missing(refused: RefusedBatches) -> None:
    refused.note(header(5))
    refused.note(header(6))
    assert is_refused(refused, header(7), written(5))


@pytest.mark.parametrize(
    ("batch", "entry"),
    [
        (header(6), written(5)),
        (header(4), written(4)),
        (header(9), written(3)),
        (header(6, epoch=1), written(4)),
        (header(6, producer=8), None),
    ],
    ids=["no gap", "a duplicate", "another gap", "another epoch", "another producer"],
)
def test_what_a_refusal_does_not_explain(refused: RefusedBatches, batch: BatchHeader, entry: ProducerEntry) -> None:
    refused.note(header(5))
    assert not is_refused(refused, batch, entry)


def test_a_producer_that_never_sends_the_missing_batch_learns_of_the_gap(refused: RefusedBatches) -> None:
    refused.note(header(5))
    assert [is_refused(refused, header(6), written(4)) for _ in range(6)] == [True] * 4 + [False] * 2


def test_batches_without_sequences_are_not_noted(refused: RefusedBatches) -> None:
    refused.note(header(-1))
    refused.note(header(0, producer=-1))
    assert not is_refused(refused, header(1), None)
    assert not is_refused(refused, header(1, producer=-1), None)


def test_the_number_of_producers_is_bounded(refused: RefusedBatches) -> None:
    for producer in range(PRODUCERS_MAX):
        refused.note(header(0, producer=producer))
    refused.note(header(1, producer=0))
    refused.note(header(0, producer=PRODUCERS_MAX))
    assert not is_refused(refused, header(1, producer=1), None), "it was refused longest ago"
    assert is_refused(refused, header(1, producer=0), None)
    assert is_refused(refused, header(1, producer=PRODUCERS_MAX), None)
