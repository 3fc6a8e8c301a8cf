"""Each of these bugs, planted on purpose, is found by the simulation: otherwise its silence would mean nothing."""

from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.coordinators import transaction_markers
from barnabas.broker.server import Broker
from barnabas.controller import isr_control
from barnabas.controller.isr_control import IsrRequest
from barnabas.metadata.delta import MetadataChange
from barnabas.metadata.image import MetadataImage, PartitionImage
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.registry import BrokerRegistration
from barnabas.registry.zookeeper import znodes
from barnabas.registry.zookeeper.session import Set
from barnabas.registry.zookeeper.zookeeper_registry import ZooKeeperRegistry
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.types import FIRST_OFFSET, BrokerId, Offset
from broker.planted_bugs import old_directories_count_as_current, replicas_are_given_up_whoever_is_there
from replication.planted_bugs import (
    Plant,
    a_new_follower_truncates_to_its_high_watermark,
    a_replica_joins_too_early,
    broker_epochs_are_ignored,
    high_watermark_before_the_isr_has_it,
    high_watermark_by_the_isr_without_the_proposed_members,
    nothing_is_truncated,
)
from whole_cluster.faults import WEIGHTS
from whole_cluster.simulation import DISKS, ZOOKEEPER, Options, simulate

SEEDS = 1000


def isr_changes_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    """The controller makes each change that a leader proposes, whatever has happened since."""

    def check(image: MetadataImage, broker_id: BrokerId, partition: PartitionImage, request: IsrRequest) -> None: ...

    patch.setattr(isr_control, "_check", check)


def a_restart_leads_in_the_same_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    register = EmbeddedRegistry.register_broker

    def stay(self: EmbeddedRegistry, registration: BrokerRegistration, *, upon: int | None = None) -> int | None:
        epoch = register(self, registration, upon=upon)
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


def the_state_in_zookeeper_is_written_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ZooKeeperRegistry, "_set_state", lambda self, planned: Set(znodes.STATE, planned.state.encoded()))


def a_change_is_taken_for_one_to_the_present_image(patch: pytest.MonkeyPatch) -> None:
    """Whichever image it was that it changed."""
    change = Broker.metadata_changed

    def take(self: Broker, found: MetadataChange) -> None:
        change(self, found._replace(since=self.image.version))

    patch.setattr(Broker, "metadata_changed", take)


LOSSES = Options(
    faults={"wipe": 8, "wipe at once": 0, "slow link": 8, "restart": 6},
    members=0,
    transactions=0,
    fault_interval_s=0.4,
    writers=4,
)
LOSSES_OF_ANY = replace(LOSSES, settings={"min.insync.replicas": 1})
LOSSES_BEHIND_SLOW_LINKS = Options(
    faults={**dict.fromkeys(WEIGHTS, 0), "wipe at once": 8, "slow link": 12}, members=0, fault_interval_s=0.3
)
"""What a broker has sent arrives when its peer has lost its records and is registered again."""

RENEWALS = Options(
    faults={"cut": 8, "isolate": 8, "cut one way": 8}, members=0, transactions=0, writers=1, fault_interval_s=0.3
)

OLD_DISKS = replace(DISKS, faults={"unmount": 12, "kill all": 8, "wipe": 0})
"""A disk that was away is back when nobody else is there."""

PLANTED: dict[Plant, Options] = {
    high_watermark_before_the_isr_has_it: Options(),
    nothing_is_truncated: Options(),
    a_new_follower_truncates_to_its_high_watermark: Options(),
    isr_changes_without_compare_and_set: replace(LOSSES_BEHIND_SLOW_LINKS, transactions=0),
    a_restart_leads_in_the_same_leader_epoch: Options(),
    high_watermark_by_the_isr_without_the_proposed_members: LOSSES_OF_ANY,
    broker_epochs_are_ignored: LOSSES_BEHIND_SLOW_LINKS,
    an_end_marker_is_dropped: Options(),
    a_replica_joins_too_early: replace(LOSSES, fault_interval_s=0.2),
    the_state_in_zookeeper_is_written_without_compare_and_set: ZOOKEEPER,
    a_change_is_taken_for_one_to_the_present_image: RENEWALS,
    replicas_are_given_up_whoever_is_there: DISKS,
    old_directories_count_as_current: OLD_DISKS,
}

FIRST: dict[Plant, int] = {
    isr_changes_without_compare_and_set: 19,
    high_watermark_by_the_isr_without_the_proposed_members: 79,
    a_replica_joins_too_early: 45,
    a_change_is_taken_for_one_to_the_present_image: 15,
}
"""The seed to begin with where those before have shown nothing. It saves time, and decides nothing."""


@pytest.mark.source
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant) -> None:
    """The seed that shows the bug shows nothing without it."""
    first = FIRST.get(plant, 0)
    for seed in range(first, first + SEEDS):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            try:
                simulate(seed, PLANTED[plant])
            except Exception as error:
                print(f"seed {seed}: {error!r}")
            else:
                continue
        simulate(seed, PLANTED[plant])
        return
    pytest.fail(f"not found in {SEEDS} seeds")
