"""Each of these bugs, planted on purpose, is found by the simulation: otherwise its silence would mean nothing."""

from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.coordinators import transaction_markers
from barnabas.controller import isr_control
from barnabas.controller.isr_control import IsrRequest
from barnabas.metadata.image import MetadataImage, PartitionImage
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.registry import BrokerRegistration
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.types import FIRST_OFFSET, BrokerId, Offset
from replication.planted_bugs import (
    Plant,
    a_new_follower_truncates_to_its_high_watermark,
    a_replica_joins_too_early,
    broker_epochs_are_ignored,
    high_watermark_before_the_isr_has_it,
    high_watermark_by_the_isr_without_the_proposed_members,
    nothing_is_truncated,
)
from whole_cluster.simulation import Options, simulate

SEEDS = 1000


def isr_changes_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    """The controller makes each change that a leader proposes, whatever has happened since."""

    def check(image: MetadataImage, broker_id: BrokerId, partition: PartitionImage, request: IsrRequest) -> None: ...

    patch.setattr(isr_control, "_check", check)


def a_restart_leads_in_the_same_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    register = EmbeddedRegistry.register_broker

    def stay(self: EmbeddedRegistry, registration: BrokerRegistration) -> int | None:
        epoch = register(self, registration)
        with self._db.transaction():
            self._db.execute("UPDATE brokers SET fenced = 0 WHERE node_id = ?", (registration.node_id,))
        return epoch

    patch.setattr(EmbeddedRegistry, "register_broker", stay)
    patch.setattr(ReplicaManager, "_may_lead", lambda self: True)


def an_end_marker_is_dropped(patch: pytest.MonkeyPatch) -> None:
    """A partition is told to have its marker."""
    append, count = transaction_markers._MarkerWrite._append, 0

    def drop(self: Any, partition: Partition) -> Offset:
        nonlocal count
        count += 1
        return append(self, partition) if count % 7 else FIRST_OFFSET

    patch.setattr(transaction_markers._MarkerWrite, "_append", drop)


LOSSES = Options(
    faults={"wipe": 8, "slow link": 8, "restart": 6}, members=0, transactions=0, fault_interval_s=0.4, writers=4
)
LOSSES_AND_CUTS = Options(
    faults={"wipe": 8, "cut one way": 6, "cut": 4, "power": 0}, members=0, transactions=0, fault_interval_s=0.3
)
LOSSES_OF_ANY = replace(LOSSES, settings={"min.insync.replicas": 1})

PLANTED: dict[Plant, Options] = {
    high_watermark_before_the_isr_has_it: Options(),
    nothing_is_truncated: Options(),
    a_new_follower_truncates_to_its_high_watermark: Options(),
    isr_changes_without_compare_and_set: LOSSES_AND_CUTS,
    a_restart_leads_in_the_same_leader_epoch: Options(),
    high_watermark_by_the_isr_without_the_proposed_members: LOSSES_OF_ANY,
    broker_epochs_are_ignored: LOSSES,
    an_end_marker_is_dropped: Options(),
    a_replica_joins_too_early: LOSSES,
}
LATE: dict[Plant, int] = {isr_changes_without_compare_and_set: 150, broker_epochs_are_ignored: 40}
"""The seed to begin with where bugs are found late: 156 and 47 when this was written, after minutes."""


@pytest.mark.source
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(LATE.get(plant, 0), SEEDS):
        try:
            simulate(seed, PLANTED[plant])
        except Exception as error:
            print(f"seed {seed}: {error!r}")
            return
    pytest.fail(f"not found in {SEEDS} seeds")
