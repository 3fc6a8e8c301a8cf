"""Bugs of starts and of bad disks, planted on purpose, that the simulation, a test or rounds of real processes find."""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from barnabas.broker import server
from barnabas.broker.batch_checks import BatchChecks
from barnabas.broker.cluster.storage_failures import StorageFailures
from barnabas.broker.loop_watchdog import LoopWatchdog
from barnabas.broker.peers import inter_broker_listener
from barnabas.broker.peers.inter_broker_listener import InterBrokerListener
from barnabas.broker.server import Broker
from barnabas.broker.startup import directory_age, recovery
from barnabas.broker.startup.directory_age import Age, DirectoryDoubts
from barnabas.broker.supervisor.supervisor import Supervisor
from barnabas.cli.cluster.health import disks
from barnabas.controller.auto_topics import Factor
from barnabas.controller.controller import Controller
from barnabas.errors import RecordListTooLarge
from barnabas.log import log_loader, log_manager
from barnabas.log.directories import disk
from barnabas.log.directories.disk import ResourcePool
from barnabas.log.log_segment import LogSegment
from barnabas.log.unified_log import UnifiedLog
from barnabas.metadata.image import MetadataImage
from barnabas.network.acceptor import Acceptor
from barnabas.registry import embedded
from barnabas.registry.broker_locks import BrokerLocks
from barnabas.registry.incarnation import settle_incarnation
from barnabas.registry.processes import is_of_another_boot
from barnabas.registry.registry import BrokerRegistration, Evidence, Known, RegistryUnavailable
from barnabas.registry.sqlite_file import SqliteFile
from barnabas.registry.zookeeper.deleted_nodes import DeletedNodes
from barnabas.replication.log_dir_move import LogDirMove, Work
from barnabas.replication.replica_manager import ReplicaManager


def replicas_are_given_up_whoever_is_there(patch: pytest.MonkeyPatch) -> None:
    """A broker that starts without its disk asks for nobody who has what was there."""
    decide = DirectoryDoubts._in_doubt

    def give_up(self: DirectoryDoubts, image: MetadataImage, dead: Any) -> Any:
        found = decide(self, image, dead)
        return type(found)([*found.others_decide, *found.waiting, *found.alone], {}, ())

    patch.setattr(DirectoryDoubts, "_in_doubt", give_up)


def old_directories_count_as_current(patch: pytest.MonkeyPatch) -> None:
    """Disks that were away for a start and copies of before lead again."""
    age_of = directory_age.age_of

    def believe(*args: Any, **kwargs: Any) -> Age:
        age = age_of(*args, **kwargs)
        return Age.CURRENT if age is Age.OLD else age

    patch.setattr(directory_age, "age_of", believe)


def an_old_registry_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Known, "is_newer_than", lambda *_: False)
    patch.setattr(server, "refuse_epochs_not_given", lambda *_: None)
    patch.setattr(directory_age, "age_of", lambda *_, **__: Age.CURRENT)


def a_disk_that_fails_is_told_to_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StorageFailures, "failed", lambda *_: None)


def a_loop_that_stands_still_keeps_its_roles(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LoopWatchdog, "_watch", lambda _: None)


def replicas_take_the_emptiest_directory(patch: pytest.MonkeyPatch) -> None:
    """All brokers of a machine the same one."""
    choose = log_manager.choose_directory
    patch.setattr(log_manager, "choose_directory", lambda topic_partition, _, uses: choose(topic_partition, None, uses))


def a_copied_registry_counts_as_the_original(patch: pytest.MonkeyPatch) -> None:
    """A broker of the copy takes the place of the one that it is a copy of."""

    def stay(db: SqliteFile, boot: str, locks: BrokerLocks) -> str:
        (found,) = db.row("SELECT incarnation FROM state")
        return found.partition(" ")[0] or settle_incarnation(db, boot, locks)

    patch.setattr(embedded, "settle_incarnation", stay)
    patch.setattr(Broker, "_require_free_node_id", lambda *_: None)
    patch.setattr(BrokerRegistration, "may_replace", lambda *_: True)


def replicas_that_share_a_disk_are_told_to_nobody(patch: pytest.MonkeyPatch) -> None:
    """As if brokers had no other disk."""
    patch.setattr(disks, "most_devices", lambda _: 1)


def what_the_registry_does_not_take_counts_as_made(patch: pytest.MonkeyPatch) -> None:
    """Whoever asks for a change is answered as if it were there."""
    persist = Controller._persist

    def believe(self: Controller, *args: Any) -> bool:
        try:
            return persist(self, *args)
        except RegistryUnavailable:
            return True

    patch.setattr(Controller, "_persist", believe)


def a_live_registration_is_taken_over(patch: pytest.MonkeyPatch) -> None:
    """By whoever has a copy of the directories, and the live broker ends."""
    patch.setattr(BrokerLocks, "hold", lambda *_: True)
    patch.setattr(BrokerRegistration, "may_replace", lambda *_: True)


def a_moved_log_keeps_its_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_manager, "mark_replaced", lambda *_: None)


def who_cannot_be_seen_is_judged_by_its_boot(patch: pytest.MonkeyPatch) -> None:
    """No lock tells brokers of other containers apart: they live for ever, or are dead at once."""

    def judge(self: BrokerLocks, node_id: int, process: str, has_lock: bool) -> Evidence:
        ended = not self._is_running(process) or is_of_another_boot(process)
        return Evidence.ENDED if ended else Evidence.RUNS

    patch.setattr(BrokerLocks, "evidence", judge)


def nothing_is_set_aside_for_the_registry(patch: pytest.MonkeyPatch) -> None:
    open_file = SqliteFile.__init__

    def open_without(self: SqliteFile, *args: Any, **kwargs: Any) -> None:
        open_file(self, *args, **kwargs)
        self._room = nullcontext

    patch.setattr(SqliteFile, "__init__", open_without)


def topics_get_as_many_replicas_as_there_are_brokers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Factor, "among", lambda self, registered: min(self.most, registered))


def a_broker_without_its_disk_ends_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Supervisor, "_concerns_all", lambda *_: True)


def silent_connections_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InterBrokerListener, "_on_accepted", lambda _: None)
    patch.setattr(inter_broker_listener, "Acceptor", partial(Acceptor, descriptors_max=lambda: 100))


def followers_refuse_batches_above_segment_bytes(patch: pytest.MonkeyPatch) -> None:
    roll_for = UnifiedLog._roll_for

    def refuse(self: UnifiedLog, size: int, *args: Any) -> LogSegment:
        if size > self._segment_bytes:
            raise RecordListTooLarge
        return roll_for(self, size, *args)

    patch.setattr(UnifiedLog, "_roll_for", refuse)


def all_logs_of_an_image_are_made_and_deleted_at_once(patch: pytest.MonkeyPatch) -> None:
    """The loop stands still for as long as many of them take."""
    patch.setattr(ReplicaManager, "_is_at_once", lambda _: True)


def directories_that_are_not_named_are_not_missed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_missing", lambda *_: {})


def holes_are_passed_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_loader, "holes_between", lambda *_: [])


def nobody_checks_what_readers_cannot_use(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchChecks, "suspect", lambda *_: None)


def what_is_deleted_in_zookeeper_stays_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeletedNodes, "are_some_missing", lambda *_: False)
    patch.setattr(DeletedNodes, "make_parents", lambda _: None)


def logs_keep_all_descriptors(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(disk, "_MIN_POOL", 64)
    patch.setattr(ResourcePool, "open", lambda _, open_file, path: open_file(path))


def a_move_agrees_with_its_log_only_after_truncations(patch: pytest.MonkeyPatch) -> None:
    agree, agreed = LogDirMove._agree, {}

    def agree_again(self: LogDirMove, log: UnifiedLog) -> Iterator[Work]:
        before, agreed[self] = agreed.get(self), self._source.truncations
        if before != agreed[self]:
            yield from agree(self, log)

    patch.setattr(LogDirMove, "_agree", agree_again)
