"""Producers after a restart or a truncation: from the newest snapshot and the batches behind it."""

import os

import pytest

from barnabas.log.log_loader import Verification
from barnabas.log.producers.producer_state_manager import DEFAULT_PRODUCER_EXPIRATION_MS


@pytest.mark.parametrize("how", list(Verification))
@pytest.mark.parametrize("snapshot", [False, True])
def test_a_batch_of_old_records_is_recognised_after_a_restart(rig, how: Verification, snapshot: bool) -> None:
    log = rig.log()
    sent = [rig.send_old(log, number) for number in range(3)]
    if snapshot:
        log.take_snapshot()
    log = rig.reopen(log, how)
    for number in range(3):
        again = rig.send_old(log, number)
        assert again.duplicate
        assert again.first_offset == sent[number].first_offset


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_producer_expires_by_its_last_append_after_a_restart_too(rig, snapshot: bool) -> None:
    """By the time of their append in the snapshot, or by the last change of the segment."""
    log = rig.log()
    rig.send(log, 7, 0)
    written_ms = rig.clock.now_ms
    if snapshot:
        log.take_snapshot()
    else:
        os.utime(log.active_segment.path(".log"), ns=(written_ms * 10**6, written_ms * 10**6))
    rig.clock.now_ms += 2 * DEFAULT_PRODUCER_EXPIRATION_MS
    log = rig.reopen(log, Verification.TAIL)
    assert log.producers.remove_expired(written_ms + DEFAULT_PRODUCER_EXPIRATION_MS - 1) == 0
    assert log.producers.remove_expired(written_ms + DEFAULT_PRODUCER_EXPIRATION_MS) == 1


@pytest.mark.parametrize("how", [Verification.NONE, Verification.TAIL, Verification.FULL])
def test_all_five_are_known_after_a_restart(rig, how: Verification) -> None:
    log = rig.log()
    sent = [rig.send(log, 7, number) for number in range(8)]
    log.take_snapshot()
    sent += [rig.send(log, 7, number) for number in (8, 9)]
    log = rig.reopen(log, how)
    for number in range(5, 10):
        again = rig.send(log, 7, number)
        assert again.duplicate
        assert again.first_offset == sent[number].first_offset
    assert rig.send(log, 7, 10).first_offset == 10


def test_truncation_takes_producers_back(rig) -> None:
    log = rig.log()
    for number in range(5):
        rig.send(log, 7, number)
    log.roll()
    for number in range(5, 9):
        rig.send(log, 7, number)
    log.truncate_to(6)
    assert rig.send(log, 7, 5).duplicate
    assert not rig.send(log, 7, 6).duplicate
    log.truncate_to(2)
    assert not rig.send(log, 7, 2).duplicate
