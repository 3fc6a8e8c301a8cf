"""Each of these bugs, planted on purpose, is found by the simulation: otherwise its silence would mean nothing."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.log.log_segment import LogSegment
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import BatchHeader
from barnabas.replication import follower, partition
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.partition import Partition
from barnabas.replication.replica import FollowerFetch, IsrChange
from replication.planted_bugs import (
    Plant,
    a_new_follower_truncates_to_its_high_watermark,
    a_replica_joins_too_early,
    broker_epochs_are_ignored,
    high_watermark_before_the_isr_has_it,
    high_watermark_by_the_isr_without_the_proposed_members,
    nothing_is_truncated,
    wait_for_nobody,
)
from replication.simulated_cluster import Options
from replication.test_simulation import simulate

SEEDS = 300


def a_shrunk_isr_counts_before_the_controller_agrees(patch: pytest.MonkeyPatch) -> None:
    propose = LeaderState.propose

    def be_rash(self: LeaderState, change: IsrChange) -> None:
        propose(self, change)
        self.maximal_isr = frozenset(member.broker_id for member in change.new_isr)

    patch.setattr(LeaderState, "propose", be_rash)


def unknown_epochs_of_the_leader_are_trusted(patch: pytest.MonkeyPatch) -> None:
    """The protocol before KIP-279: the follower truncates to the leader's offset, whatever epoch it is of."""
    patch.setattr(
        follower, "truncate_to_diverging_epoch",
        lambda log, epoch, end_offset: log.truncate_to(min(end_offset, log.log_end_offset)),
    )  # fmt: skip


def late_responses_are_appended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_is_current", lambda self, fetch: not self.is_leader)


def positions_of_an_earlier_leadership_stay(patch: pytest.MonkeyPatch) -> None:
    """The segment's list of the latest batches has a gap where the broker was a follower."""
    append_run = LogSegment.append_run

    def keep_them(self: LogSegment, data: memoryview, headers: Sequence[BatchHeader]) -> None:
        kept = list(self._ring_last_offsets), list(self._ring_positions)
        append_run(self, data, headers)
        self._ring_last_offsets, self._ring_positions = kept

    patch.setattr(LogSegment, "append_run", keep_them)


def the_high_watermark_moves_below_min_isr(patch: pytest.MonkeyPatch) -> None:
    isr_changed = Partition._isr_changed

    def ignore_it(self: Partition) -> None:
        isr_changed(self)
        self.is_under_min_isr = False

    patch.setattr(Partition, "_isr_changed", ignore_it)


def a_refused_change_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Where the controller's answer is lost, the change may have been made."""
    patch.setattr(partition, "_NOT_MADE", Exception)
    wait_for_nobody(patch)


def unflushed_records_of_the_leader_count(patch: pytest.MonkeyPatch) -> None:
    advance = Partition._advance_high_watermark

    def hasty(self: Partition, now: float) -> bool:
        flush_behind, self._flush_behind = self._flush_behind, None
        try:
            return advance(self, now)
        finally:
            self._flush_behind = flush_behind

    patch.setattr(Partition, "_advance_high_watermark", hasty)


def unflushed_records_of_a_follower_count(patch: pytest.MonkeyPatch) -> None:
    next_fetch = Partition.next_fetch

    def hasty(self: Partition) -> FollowerFetch | None:
        flush_behind, self._flush_behind = self._flush_behind, None
        try:
            return next_fetch(self)
        finally:
            self._flush_behind = flush_behind

    patch.setattr(Partition, "next_fetch", hasty)


def epochs_without_records_stay(patch: pytest.MonkeyPatch) -> None:
    truncate_to = UnifiedLog.truncate_to

    def keep_them(self: UnifiedLog, offset: int) -> bool:
        return offset < self.log_end_offset and truncate_to(self, offset)

    patch.setattr(UnifiedLog, "truncate_to", keep_them)


def a_follower_out_of_range_stays_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(follower, "reset_to_leader", lambda log, leader_start_offset, leader_end_offset: None)


PLANTED: dict[Plant, Options] = {
    a_follower_out_of_range_stays_there: Options(deletions=True),
    high_watermark_before_the_isr_has_it: Options(),
    high_watermark_by_the_isr_without_the_proposed_members: Options(min_insync_replicas=1, steps=300),
    a_shrunk_isr_counts_before_the_controller_agrees: Options(min_insync_replicas=1),
    a_replica_joins_too_early: Options(),
    broker_epochs_are_ignored: Options(min_insync_replicas=1, steps=300),
    nothing_is_truncated: Options(),
    a_new_follower_truncates_to_its_high_watermark: Options(),
    unknown_epochs_of_the_leader_are_trusted: Options(steps=300),
    late_responses_are_appended: Options(),
    positions_of_an_earlier_leadership_stay: Options(steps=400),
    the_high_watermark_moves_below_min_isr: Options(),
    a_refused_change_is_forgotten: Options(min_insync_replicas=1, steps=300),
    unflushed_records_of_the_leader_count: Options(fsync=True, min_insync_replicas=1),
    unflushed_records_of_a_follower_count: Options(fsync=True),
    epochs_without_records_stay: Options(),
}


@pytest.mark.source
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS):
        try:
            simulate(tmp_path / str(seed), seed, PLANTED[plant])
        except Exception as error:
            print(f"seed {seed}: {error!r}")
            return
    pytest.fail(f"not found in {SEEDS} seeds")
