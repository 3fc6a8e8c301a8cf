"""One broker: the only place that wires everything up.

Start: open the listeners (a busy port is known at once), registry, logs (recovering what was not closed; without a
registry they come first and make it), controller, partitions, coordinators, then accept. Stop: the same backwards, then
the marks and the clean-shutdown marker.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

from barnabas.broker.cleaner.log_cleaner import LogCleaner
from barnabas.broker.connections.advertised_addresses import (
    AdvertisedAddresses,
    NamedBroker,
    advertised_names,
    problem_with,
)
from barnabas.broker.connections.connection_limits import ConnectionLimitsUpdater
from barnabas.broker.coordinators.groups import GroupCoordinatorService
from barnabas.broker.coordinators.transactions import wire_transactions
from barnabas.broker.fetch_sessions import FetchSessionCache
from barnabas.broker.periodic_tasks import schedule_tasks
from barnabas.broker.process.failure_log import FailureLog
from barnabas.broker.process.resource_limits import connection_descriptors
from barnabas.broker.produce.batch_validator import BatchValidator
from barnabas.broker.produce.produce_queues import ProduceQueues
from barnabas.broker.purgatory import DelayedOperationPurgatory
from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.broker.requests.sliced_responses import SlicedResponses
from barnabas.broker.scheduler import Scheduler
from barnabas.broker.startup.adoption import Adoption, some
from barnabas.broker.startup.directory_check import REGISTRY_FILE, registry_path, require_directories
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.config.broker import BrokerConfig
from barnabas.config.endpoints import Endpoint
from barnabas.config.log_config import LogConfig
from barnabas.controller.controller import Controller, MetadataChange
from barnabas.errors import BarnabasError, KafkaError, KafkaStorageError, UnknownTopicOrPartition, UsageError
from barnabas.log.directories.data_directory import Belongs
from barnabas.log.directories.disk import Disk
from barnabas.log.directories.space_reserve import SpaceReserve
from barnabas.log.log_manager import LogManager
from barnabas.metadata.image import MetadataImage, TopicImage
from barnabas.metadata.topic_names import validate_topic_name
from barnabas.network.acceptor import Acceptor, open_listener
from barnabas.network.connection import Connection
from barnabas.network.time_slicing import TimeSlicer
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.registry import Founding
from barnabas.replication.group_commit import GroupCommit
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.types import TopicPartition

__all__ = ["Broker", "StartInterrupted"]

AUTO_CREATED_PARTITIONS_MAX: Final = 100
"""By one Metadata request. A new log takes the event loop half a millisecond."""
_REPORT_INTERVAL_S: Final = 1.0
_REGISTRY_WRITE_BYTES: Final = 128 * 1024
_START_BYTES: Final = 512 * 1024
_STOP_BYTES: Final = 256 * 1024
"""What has to be free, of the reserve if need be, before the registry is written to, a start, a stop."""


class StartInterrupted(BarnabasError):
    """The broker was told to stop before it was ready."""


class Broker:
    """A running broker on an event loop. All methods are called on the loop's thread."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        *,
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk | None = None,
        lost_directories: Collection[UUID] = (),
    ) -> None:
        """`lost_directories` are the ids of data directories without which the broker may start, though it had them."""
        self.config = config
        self._lost_directories = lost_directories
        self.loop = loop
        self.clock = clock
        self._disk = disk
        self.log = logging.getLogger("barnabas.broker")
        self.failures = FailureLog(self.log, clock)
        self.node_id = config.node_id
        self.cluster_id = ""
        self.dispatcher = Dispatcher(self)
        self.turns = TimeSlicer(loop)
        self.sliced_responses = SlicedResponses(self.turns, self.log)
        self.purgatory = DelayedOperationPurgatory(loop)
        self.produce_queues = ProduceQueues(self)
        self.batch_validator = BatchValidator(self)
        self.fetch_sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots, clock)
        self.metadata_cache: dict[tuple[int, int], dict[str, tuple[TopicImage, bytes]]] = {}
        self.endpoints: tuple[Endpoint, ...] = ()
        """Where this broker really listens: the ports of `listeners` with 0 replaced by what was given."""
        self._executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="barnabas-disk")
        self._readers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="barnabas-read")
        """Bring cold pages in, apart from the other disk work: a commit must not wait behind somebody's old records."""
        self._scheduler = Scheduler(loop, self._executor, self.failures)
        self._reserves = {
            path: SpaceReserve(path, config.log_dir_reserve_bytes) for path in map(os.path.abspath, config.data_dirs)
        }
        self._acceptor: Acceptor | None = None
        self._connection_limits = ConnectionLimitsUpdater(loop, self.log)
        self._committer: ThreadPoolExecutor | None = None
        """durability=fsync: nobody who waits for a commit waits for a file's deletion too."""
        self._reported_at = clock.monotonic()
        self.interrupted = False
        """Set from a signal handler: a start that still recovers logs ends with StartInterrupted."""
        self.stopped = False

    # --- start and stop ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Ready when it returns: a produce would succeed. Raises UsageError, StartInterrupted."""
        config = self.config
        with contextlib.ExitStack() as undo:
            listeners = [
                (open_listener(e.host, e.port, config.socket_listen_backlog_size), e) for e in config.endpoints
            ]
            for sock, _ in listeners:
                undo.callback(sock.close)
            self.endpoints = tuple(e._replace(port=sock.getsockname()[1]) for sock, e in listeners)
            self._addresses = AdvertisedAddresses(config, self.endpoints)
            limits = self._connection_limits.start(config)
            # The logs come before the registration: their lock tells a second broker on the same directory.
            self._open_registry_and_logs(undo)
            self._start_controller(undo)
            flush_behind = None
            if config.durability == "fsync":
                self._committer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="barnabas-commit")
                flush_behind = GroupCommit(self.loop, self._committer, self.log)
            self.replica_manager = ReplicaManager(
                self.node_id, self.log_manager, self._log_config_of, self.log, flush_behind=flush_behind
            )
            self.group_wiring = GroupCoordinatorService(self)
            self.groups = self.group_wiring.coordinator
            self.transactions = wire_transactions(self)
            self.replica_manager.apply(self.controller.image)
            self.log_cleaner = LogCleaner(self, self._executor)
            self.controller.subscribe(self._metadata_changed)
            self._acceptor = Acceptor(
                self.loop,
                self.dispatcher,
                limits,
                self.log,
                descriptors_max=connection_descriptors(),
                in_thread=partial(self.loop.run_in_executor, self._readers),
                turns=self.turns,
            )
            for sock, endpoint in listeners:
                self._acceptor.listen(sock, endpoint.name)
            undo.pop_all()
        self.refill_reserves()
        self.log_cleaner.start()
        schedule_tasks(self, self._scheduler, self._executor)
        if advertised_names(config):
            # The DNS may take its time: nobody waits for the answer, not even a stop.
            threading.Thread(target=self._check_advertised_names, name="barnabas-names", daemon=True).start()

    def stop(self) -> None:
        """Close connections and logs; everything acknowledged is on its way to the disk or there.

        Every step is taken, whatever became of those before it; then KafkaStorageError is raised if a log could not be
        closed: its next start recovers it.
        """
        if self.stopped:
            return
        self.stopped = True
        with contextlib.ExitStack() as steps:  # the last one first
            steps.callback(self.registry.close)
            steps.callback(self.controller.stop)
            steps.callback(self.log_manager.shutdown)
            steps.callback(self._make_room, _STOP_BYTES)
            for executor in (self._executor, self._committer, self._readers):
                if executor is not None:
                    steps.callback(executor.shutdown, wait=True)
            steps.callback(self.batch_validator.shutdown)
            steps.callback(self.log_cleaner.stop)
            steps.callback(self.groups.shutdown)
            steps.callback(self.transactions.shutdown)
            if self._acceptor is not None:
                steps.callback(self._acceptor.close)
            steps.callback(self._scheduler.stop)

    def _make_data_directories(self) -> None:
        for directory in self.config.data_dirs:
            try:
                os.makedirs(directory, exist_ok=True)
            except OSError as error:
                raise UsageError(
                    f"log.dirs: {directory} cannot be made: {error.strerror}; choose another with --data-dir"
                ) from None

    def _open_registry_and_logs(self, undo: contextlib.ExitStack) -> None:
        self.log_manager = LogManager(self.config.data_dirs, self.clock, disk=self._disk)
        self.log_manager.claim_directories()
        undo.callback(self.log_manager.release_directories)
        self._make_room(_START_BYTES)
        directories = self.log_manager.directories
        path = registry_path(directories)
        if path is not None:
            self._open_registry(path, None, undo)
            recorded = self.registry.directories(self.node_id)
            require_directories(recorded, directories, self._lost_directories)
            self._make_data_directories()
            image = self.registry.load().image
            self._open_logs(
                image,
                lambda tp, topic_id: image.has_replica(self.node_id, tp.topic, tp.partition, topic_id),
                undo,
            )
        else:
            self._make_data_directories()
            adoption = Adoption(self.config)
            self._open_logs(adoption.settings, None, undo)
            self._open_registry(Path(directories[0].path) / REGISTRY_FILE, adoption.founding(self.log_manager), undo)
        self.cluster_id = self.log_manager.cluster_id

    def _open_registry(self, path: Path, founding: Founding | None, undo: contextlib.ExitStack) -> None:
        # The same object that is refilled in a thread: it must not take what it has lent.
        reserve = self._reserves[str(path.parent)]
        room = partial(reserve.lent, _REGISTRY_WRITE_BYTES)
        self.registry = EmbeddedRegistry(path, self.clock, founding=founding, room=room)
        undo.callback(self.registry.close)

    def _make_room(self, wanted: int) -> None:
        for reserve in self._reserves.values():
            reserve.ensure(wanted)

    def refill_reserves(self) -> None:
        """Set space aside in the data directories again, where there is some. May block; safe in any thread."""
        for reserve in self._reserves.values():
            reserve.refill()

    def _open_logs(self, image: MetadataImage, belongs: Belongs | None, undo: contextlib.ExitStack) -> None:
        """With the settings of the image; see LogManager.startup for `belongs`."""
        self._take_dynamic_settings(image)
        self.log_manager.set_producer_expiration(self.config.producer_id_expiration_ms)
        try:
            self.log_manager.startup(
                lambda topic: self.config.log_config(image.topic_config(topic)),
                node_id=self.node_id,
                cluster_id=image.cluster_id or None,
                belongs=belongs,
                progress=self._report_recovery,
            )
            undo.callback(self.log_manager.shutdown)
        except KafkaStorageError as error:
            raise UsageError(f"{error.message}; make room or mend the disk, then start again") from None

    def _start_controller(self, undo: contextlib.ExitStack) -> None:
        """Register, and lead partitions whose logs are gone in a new leader epoch: clients know the records of the
        present one."""
        self.controller = Controller(self.registry, self.config, self.clock)
        self.controller.start(self._advertised_endpoints(), self.log_manager.directory_paths())
        undo.callback(self.controller.stop)
        empty = [
            (name, index)
            for name, topic in self.image.topics.items()
            for index, partition in enumerate(topic.partitions)
            if partition.leader == self.node_id and self.log_manager.get(TopicPartition(name, index)) is None
        ]
        if empty:
            self.log.warning(
                "%d partitions have no log here and begin anew, empty: %s",
                len(empty),
                some([f"{name}-{index}" for name, index in empty]),
            )
            self.controller.renew_leadership(empty)

    def _report_recovery(self, done: int, total: int, latest: TopicPartition) -> None:
        """Long recoveries show where they are; short ones keep still."""
        if self.interrupted:
            raise StartInterrupted(f"stopped before the broker was ready: {done} of {total} logs were recovered")
        now = self.clock.monotonic()
        if now - self._reported_at > _REPORT_INTERVAL_S:
            self._reported_at = now
            self.log.info("recovering logs: %d of %d, %s is done", done, total, latest)

    # --- metadata ---------------------------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """What this broker knows of the cluster now."""
        return self.controller.image

    def _metadata_changed(self, change: MetadataChange) -> None:
        if change.brokers_configured:
            self._take_dynamic_settings(change.image)
            if self._acceptor is not None:
                self._connection_limits.follow(self.config, self._acceptor.set_limits)
            self.log_manager.set_producer_expiration(self.config.producer_id_expiration_ms)
        for kept in self.metadata_cache.values():
            for name in change.topics:
                kept.pop(name, None)
        for name in change.topics:
            if name not in change.image.topics:
                for kept in self.metadata_cache.values():
                    kept.pop(name, None)
        before = self.replica_manager.image
        self.replica_manager.apply(change.image, change.topics)
        if change.topics:
            self.log_cleaner.logs_changed()
        if change.brokers_configured:
            self.replica_manager.config_changed(change.image.topics)
        elif change.topics_configured:
            self.replica_manager.config_changed(change.topics_configured)
        if before is not None:
            self.group_wiring.topics_changed(before, change.image, change.topics)

    def _take_dynamic_settings(self, image: MetadataImage) -> None:
        self.config = self.config.update_dynamic(image.broker_config(""), image.broker_config(str(self.node_id)))

    def _log_config_of(self, topic: str) -> LogConfig:
        return self.config.log_config(self.image.topic_config(topic))

    def auto_create_topics(self, names: Iterable[str], *, allowed: bool) -> dict[str, KafkaError]:
        """Create the missing topics that may come into being by being asked for; returns why others do not.

        No more than AUTO_CREATED_PARTITIONS_MAX at once: the rest do not exist yet, and their clients ask again.
        """
        errors = {name: _why_unknown(name) for name in names}
        if not (allowed and self.config.auto_create_topics_enable):
            return errors
        possible = [name for name, error in errors.items() if isinstance(error, UnknownTopicOrPartition)]
        chosen = possible[: max(AUTO_CREATED_PARTITIONS_MAX // self.config.num_partitions, 1)]
        try:
            results = self.controller.auto_create_topics(chosen)
        except KafkaError as error:
            return errors | dict.fromkeys(chosen, error)
        for name, result in results.items():
            if isinstance(result, KafkaError):
                errors[name] = result
            else:
                del errors[name]
        return errors

    # --- addresses --------------------------------------------------------------------------------------------------

    def _advertised_endpoints(self) -> tuple[Endpoint, ...]:
        return self.config.advertised_endpoints or self.endpoints

    def advertised_brokers(self, connection: Connection) -> list[NamedBroker]:
        """(node id, host, port, rack) of the live brokers, for a client that came over this connection."""
        return self._addresses.brokers(self.image, connection)

    def _check_advertised_names(self) -> None:
        for setting, host in advertised_names(self.config):
            problem = problem_with(setting, host)
            if problem is not None:
                self.log.warning("%s", problem)


def _why_unknown(name: str) -> KafkaError:
    """A topic that is not there: for now, or for ever because no topic can have the name."""
    try:
        validate_topic_name(name)
    except KafkaError as error:
        return error
    return UnknownTopicOrPartition(f"topic {name} does not exist")
