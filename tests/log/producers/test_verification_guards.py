"""Guards of transactions that are being asked for: which one goes when there are too many, or when time has passed."""

from contextlib import nullcontext

import pytest

from barnabas.errors import ConcurrentTransactions, KafkaError, OutOfOrderSequenceNumber
from barnabas.log.producers.verification_guards import Sender, VerificationGuard, VerificationGuards
from barnabas.records.batch import read_header
from barnabas.records.builder import build_batch
from barnabas.records.record import Record


def begin(guards: VerificationGuards, producer_id: int, now_ms: int = 0, sequence: int = 0) -> VerificationGuard:
    return guards.begin(Sender(producer_id, 0, sequence), starts_at_zero=False, now_ms=now_ms)


def test_a_guard_is_the_producers_until_it_ends() -> None:
    guards = VerificationGuards()
    guard = begin(guards, 7)
    assert begin(guards, 7) is guard
    assert begin(guards, 8) is not guard
    guards.end(7)
    assert not guards.holds(7, guard)
    assert begin(guards, 7) is not guard


def test_the_one_that_was_not_asked_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.log.producers.verification_guards.GUARDS_MAX", 2)
    guards = VerificationGuards()
    first, second = begin(guards, 1), begin(guards, 2)
    assert begin(guards, 1) is first
    third = begin(guards, 3)
    assert guards.holds(1, first), "it is in use: its batch would be refused for good"
    assert not guards.holds(2, second)
    assert guards.holds(3, third)
    assert len(guards) == 2


def test_one_that_is_in_use_makes_no_room_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.log.producers.verification_guards.GUARDS_MAX", 2)
    guards = VerificationGuards()
    first, second = begin(guards, 1), begin(guards, 2)
    begin(guards, 2)
    assert guards.holds(1, first)
    assert guards.holds(2, second)


def test_those_of_long_ago_go_unless_they_were_asked_for_again() -> None:
    guards = VerificationGuards()
    first, second = begin(guards, 1, 100), begin(guards, 2, 100)
    begin(guards, 1, 500)
    guards.remove_started_before(200)
    assert guards.holds(1, first)
    assert not guards.holds(2, second)


def test_a_refusal_ends_its_own_guard_only() -> None:
    guards = VerificationGuards()
    old = begin(guards, 1)
    guards.end(1)
    new = begin(guards, 1)
    guards.refuse(1, old)
    assert guards.holds(1, new)
    guards.refuse(1, new)
    assert len(guards) == 0


@pytest.mark.parametrize(
    ("own_epochs", "guard_epoch", "marker_epoch", "stays"),
    [(True, 4, 5, False), (True, 5, 5, True), (True, 6, 5, True), (False, 5, 5, False), (False, 6, 5, False)],
)
def test_the_guard_of_the_next_transaction_outlives_the_marker_of_the_last_one(
    own_epochs: bool, guard_epoch: int, marker_epoch: int, stays: bool
) -> None:
    guards = VerificationGuards()
    guard = guards.begin(Sender(7, guard_epoch, 0), starts_at_zero=own_epochs, now_ms=0)
    guards.end_before(7, marker_epoch)
    guards.end_before(8, marker_epoch)
    assert guards.holds(7, guard) is stays


@pytest.mark.parametrize(
    ("seen", "sequence", "error"),
    [
        ([0, 64], 64, ConcurrentTransactions),
        ([64, 0], 64, ConcurrentTransactions),
        ([64], 64, OutOfOrderSequenceNumber),
        ([0], 0, None),
        ([0, 64], 0, None),
    ],
    ids=["refused before", "came before", "lost before", "first", "first again"],
)
def test_a_batch_waits_for_the_one_before_that_was_refused(
    seen: list[int], sequence: int, error: type[KafkaError] | None
) -> None:
    guards = VerificationGuards()
    for each in seen:
        guard = guards.begin(Sender(1, 5, each), starts_at_zero=True, now_ms=0)
    batch = read_header(
        build_batch([Record(0, 1, None, b"x")], producer_id=1, producer_epoch=5, base_sequence=sequence)
    )
    with nullcontext() if error is None else pytest.raises(error):
        guard.check_sequence(batch, known=False)
