"""One broker: this module makes its parts and connects them.

The start opens the listeners, so that a port in use is noticed first, then the registry, the logs with their recovery,
the controller, the partitions and the coordinators. Only then are connections accepted. Without a registry the logs are
opened first, and a registry is made from them. The stop goes the other way and ends with checkpoints and the
clean-shutdown file.
"""

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from barnabas.broker.batch_checks import BatchChecks
from barnabas.broker.cleaner.log_cleaner import LogCleaner
from barnabas.broker.connections.advertised_addresses import (
    AdvertisedAddresses,
    NamedBroker,
    advertised_names,
    problem_with,
    with_host_name,
)
from barnabas.broker.connections.connection_limits import ConnectionLimitsUpdater
from barnabas.broker.controller_thread import ControllerThread
from barnabas.broker.coordinators.groups import GroupCoordinatorService
from barnabas.broker.coordinators.marker_channel import BrokerMarkerChannel
from barnabas.broker.coordinators.transaction_router import TransactionRouter
from barnabas.broker.coordinators.transactions import make_transaction_coordinator
from barnabas.broker.fetch_sessions import FetchSessionCache
from barnabas.broker.metadata_copier import MetadataCopier
from barnabas.broker.periodic_tasks import schedule_tasks
from barnabas.broker.process.failure_log import FailureLog
from barnabas.broker.process.resource_limits import connection_descriptors
from barnabas.broker.produce.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from barnabas.broker.produce.batch_validator import BatchValidator
from barnabas.broker.produce.produce_queues import ProduceQueues
from barnabas.broker.purgatory import DelayedOperationPurgatory
from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.broker.requests.late_responses import run_handler
from barnabas.broker.requests.sliced_responses import SlicedResponses
from barnabas.broker.scheduler import Scheduler
from barnabas.broker.startup.adoption import Adoption, some
from barnabas.broker.startup.directory_age import DirectoryDoubts
from barnabas.broker.startup.directory_check import REGISTRY_FILE, registry_path
from barnabas.broker.startup.refused_start import tell_who_has_the_node_id
from barnabas.broker.startup.registry_age import image_not_older_than_copies, refuse_epochs_not_given
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.config.broker import BrokerConfig
from barnabas.config.endpoints import Endpoint
from barnabas.config.log_config import LogConfig
from barnabas.controller.controller import Controller
from barnabas.coordinator.group.group_coordinator import GroupCoordinator
from barnabas.coordinator.transaction.producer_id_manager import ProducerIdManager
from barnabas.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from barnabas.errors import (
    BarnabasError,
    ClientError,
    DirectoryUnusable,
    KafkaError,
    KafkaStorageError,
    RequestTimedOut,
)
from barnabas.late_imports import import_late, keep_descriptor
from barnabas.log.directories.data_directory import Belongs
from barnabas.log.directories.disk import Disk
from barnabas.log.directories.space_reserve import ReserveLocks, SpaceReserve
from barnabas.log.log_manager import Judge, LogManager
from barnabas.metadata.delta import MetadataChange, change_between
from barnabas.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.network.acceptor import Acceptor, open_listener
from barnabas.network.connection import RequestConnection
from barnabas.network.time_slicing import TimeSlicer
from barnabas.registry.content import RegistryContent
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.processes import begin_process, describe_process, end_process
from barnabas.registry.registry import (
    BrokerRegistration,
    Evidence,
    LastRegistration,
    Registry,
    how_to_found_anew,
    node_id_in_use,
    start_with_registry,
)
from barnabas.replication.group_commit import GroupCommit
from barnabas.replication.partition import GIVEN_UP
from barnabas.replication.replica import IsrChange
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.replication.replication_quotas import ReplicationQuotas
from barnabas.thread_pool import ThreadPool
from barnabas.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.cluster.follower_fetch_sessions import FollowerFetchSessions
    from barnabas.broker.cluster.member import ClusterMember
    from barnabas.broker.log_dir_moves import LogDirMoves
    from barnabas.broker.peers.peer_connections import PeerConnections

__all__ = ["Broker", "StartInterrupted"]

AUTO_CREATED_PARTITIONS_MAX: Final = 100
"""The bound for one Metadata request. To make a log takes half a millisecond of the event loop."""
_REPORT_INTERVAL_S: Final = 1.0
_MEET_AGAIN_S: Final = 1.0
"""The time until a broker that could not join a cluster tries again."""
_SESSIONS_WAITED: Final = 2
"""The sessions for which a start waits for the end of a former one: ZooKeeper ends it some ticks late, and it may have
been agreed upon with another setting."""
_SESSION_LOOK_S: Final = 0.1
_REGISTRY_WRITE_BYTES: Final = 128 * 1024
_START_BYTES: Final = 512 * 1024
_STOP_BYTES: Final = 256 * 1024
"""The free space that a write to the registry, a start and a stop need. The reserve is used if necessary."""


class StartInterrupted(BarnabasError):
    """The broker was stopped before it was ready."""


class Broker:
    """A running broker on an event loop. All methods are called on the loop's thread."""

    registry: Registry
    log_manager: LogManager
    log_cleaner: LogCleaner
    controller: ControllerThread
    replica_manager: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    add_partitions_to_txn: AddPartitionsToTxnManager
    produce_queues: ProduceQueues
    producer_ids: ProducerIdManager

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        *,
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk | None = None,
        lost_directories: Collection[UUID] = (),
        accepted_directories: Collection[UUID] = (),
        inline: bool = False,
        boot: str | None = None,
    ) -> None:
        """`lost_directories` are the ids of registered data directories that are lost: the broker starts without
        them. `accepted_directories` are those of old copies that are to be served. With `inline` the controller runs in
        the caller's thread, for tests that call handlers without a loop.
        `boot` is the id of the machine's boot, for tests in which brokers are to be on several machines."""
        self.config = config
        self._lost_directories = lost_directories
        self._accepted_directories = accepted_directories
        self._doubts: DirectoryDoubts | None = None
        self._last_registration = LastRegistration()
        self._inline = inline
        self._boot = boot
        self.loop = loop
        self.clock = clock
        self._disk = disk
        self.log = logging.getLogger("barnabas.broker")
        self.failures = FailureLog(self.log, clock)
        self.node_id = config.node_id
        self.cluster_id = ""
        self.dispatcher = Dispatcher(self)
        self.time_slicer = TimeSlicer(loop)
        self.sliced_responses = SlicedResponses(self.time_slicer, self.log)
        self.purgatory = DelayedOperationPurgatory(loop, self.time_slicer.after_requests)
        self.batch_validator = BatchValidator(loop, self.failures)
        self.fetch_sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots, clock)
        self.metadata_cache: dict[tuple[int, int], dict[str, tuple[TopicImage, bytes]]] = {}
        self.endpoints: tuple[Endpoint, ...] = ()
        """The endpoints of `listeners`, with port 0 replaced by the port that the system chose."""
        self._executor = ThreadPool(2, "barnabas-disk")
        self._readers = ThreadPool(4, "barnabas-read")
        """Reads pages into the page cache. These threads do nothing else, so that no commit waits for a read of old
        records."""
        self._scheduler = Scheduler(loop, self._executor, self.failures)
        self._copier = MetadataCopier(list(config.data_dirs), lambda: self._image, loop, self._executor, self.log)
        data_dirs = [os.path.abspath(path) for path in config.data_dirs]
        shared = os.path.dirname(os.path.abspath(config.registry_file)) if config.registry_file else data_dirs[0]
        self._reserve_locks = ReserveLocks(shared)
        self._reserves = {path: self._new_reserve(path) for path in data_dirs}
        self._acceptor: Acceptor | None = None
        self._connection_limits = ConnectionLimitsUpdater(loop, self.log)
        self._unopened: list[socket.socket] = []
        """The sockets of the listeners, until connections are accepted."""
        self._cluster: ClusterMember | None = None
        self._meets_others = False
        self._committer: ThreadPool | None = None
        """Syncs for durability=fsync. The thread does nothing else, so that no commit waits for the deletion of a
        file."""
        self._reported_at = clock.monotonic()
        self.interrupted = False
        """Set by a signal handler: a start that is recovering logs ends with StartInterrupted."""
        self.ended: asyncio.Future[None] = loop.create_future()
        """Done when this broker cannot go on, as when its registration is gone: whoever runs it has to stop it."""
        self.stopped = False

    # --- start and stop ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when the broker is ready to serve requests. Raises UsageError, StartInterrupted, RegistryUnreachable.
        Another object is needed for another start."""
        config = self.config
        with contextlib.ExitStack() as undo:
            keep_descriptor()
            listeners = [
                (open_listener(e.host, e.port, config.socket_listen_backlog_size), e) for e in config.endpoints
            ]
            for sock, _ in listeners:
                undo.callback(sock.close)
            self.endpoints = tuple(e._replace(port=sock.getsockname()[1]) for sock, e in listeners)
            self._addresses = AdvertisedAddresses(config, self.endpoints)
            limits = self._connection_limits.start(config)
            # The logs are opened before the registration: their lock reveals a second broker on the same directory.
            with start_with_registry():
                self._open_registry_and_logs(undo)
            self._start_controller(undo)
            flush_behind = None
            if config.durability == "fsync":
                self._committer = ThreadPool(1, "barnabas-commit")
                flush_behind = GroupCommit(self.loop, self._committer, self.log)
            self._replication_quotas = ReplicationQuotas(self.loop, self.config)
            self.replica_manager = ReplicaManager(
                self.node_id,
                self.log_manager,
                self._log_config_of,
                self.log,
                replica_lag_time_max_ms=config.replica_lag_time_max_ms,
                flush_behind=flush_behind,
                quotas=self._replication_quotas,
                later=self.time_slicer.call_soon,
            )
            undo.callback(self.replica_manager.close, completely=False)
            checks = self._batch_checks = BatchChecks(self.loop, self._readers, self.failures)
            self.replica_manager.on_suspicion.append(checks.suspect)
            self._group_service = GroupCoordinatorService(self)
            self.groups = self._group_service.coordinator
            self._marker_channel = BrokerMarkerChannel(self)
            self.transactions = make_transaction_coordinator(self, self._marker_channel)
            self._transaction_router = TransactionRouter(self)
            self.add_partitions_to_txn = AddPartitionsToTxnManager(
                self._transaction_router, lambda: self.config.transaction_partition_verification_enable
            )
            self.produce_queues = ProduceQueues(self.add_partitions_to_txn, self.log)
            self.replica_manager.apply(self.image)
            self._note_given_up()
            self.log_cleaner = LogCleaner(
                self.log_manager,
                lambda: self.config,
                loop=self.loop,
                clock=self.clock,
                executor=self._executor,
                log=self.log,
            )
            self.log_cleaner.manager.on_failure = checks.suspect_log
            self.replica_manager.on_deletion.append(self.log_cleaner.logs_changed)
            self._controller.subscribe(self.controller.publish(self.metadata_changed))
            self._controller.cordoned = self._cordoned_brokers
            undo.callback(self._copier.cancel)
            acceptor = self._acceptor = Acceptor(
                self.loop,
                self.dispatcher,
                limits,
                self.log,
                descriptors_max=connection_descriptors,
                in_thread=partial(self.loop.run_in_executor, self._readers),
                time_slicer=self.time_slicer,
            )
            if self._cluster is not None:
                self._controller.on_read = self.controller.publish(self._cluster.registry_read)
                self._unopened += [sock for sock, _ in listeners]
                self._cluster.start()
                self._cluster.once_joined(partial(self._accept, acceptor, listeners))
            else:
                self._accept(acceptor, listeners)
            undo.pop_all()
        self._copier.image_changed()
        self._refill_reserves()
        self.log_cleaner.start()
        if any(self.log_manager.futures):
            self.log_dir_moves.resume()
        schedule_tasks(self, self._scheduler, self._executor, self._refill_reserves)
        if advertised_names(config):
            # The DNS may be slow: nothing waits for this thread, not even a stop, and without it the broker serves.
            with contextlib.suppress(RuntimeError):
                threading.Thread(target=self._check_advertised_names, name="barnabas-names", daemon=True).start()

    def _accept(self, acceptor: Acceptor, listeners: Sequence[tuple[socket.socket, Endpoint]]) -> None:
        """Accepts connections of clients. In a cluster the controller has taken this broker in by then: a broker that
        knows no live one, not even itself, would tell clients so, and librdkafka would forget all that it knows."""
        for sock, endpoint in listeners:
            if not self.stopped:
                acceptor.listen(sock, endpoint.name)
        self._unopened.clear()

    def stop(self) -> None:
        """Closes connections and logs; all acknowledged records are in the page cache or on the disk.

        All steps run, even if one before them fails. Raises KafkaStorageError at the end if a log could not be closed:
        the next start recovers it.
        """
        if self.stopped:
            return
        self.stopped = True
        with contextlib.ExitStack() as steps:  # the last callback runs first
            steps.callback(end_process, self._process)
            steps.callback(self._refill_reserves)
            steps.callback(self.registry.close)
            steps.callback(self._controller.stop)
            steps.callback(self._close_logs)
            steps.callback(self._make_room, _STOP_BYTES)
            for executor in (self._executor, self._committer, self._readers):
                if executor is not None:
                    steps.callback(executor.shutdown, wait=True)
            steps.callback(self._stop_moves)
            steps.callback(self.controller.shutdown)
            steps.callback(self.batch_validator.shutdown)
            steps.callback(self.log_cleaner.stop)
            steps.callback(self.groups.shutdown)
            steps.callback(self.transactions.shutdown)
            steps.callback(self._copier.close)
            if self._cluster is not None:
                steps.callback(self._cluster.close)
            steps.callback(self._close_listeners)
            steps.callback(self._scheduler.stop)
            steps.callback(self._batch_checks.stop)
            steps.callback(self.replica_manager.close, completely=True)

    def _close_logs(self) -> None:
        self.log_manager.shutdown(broker_epoch=self._controller.broker_epoch)

    def abandon(self) -> None:
        """Closes sockets, files and locks without writing anything, as the end of the process would. For tests: the
        caller ends the event loop at once."""
        self.stopped = True
        self.replica_manager.close(completely=False)
        self._scheduler.stop()
        self._copier.cancel()
        self._close_listeners()
        if self._cluster is not None:
            self._cluster.close()
        self.log_cleaner.process.close()
        self.batch_validator.shutdown()
        self.controller.shutdown()
        self._stop_moves()
        for executor in (self._executor, self._committer, self._readers):
            if executor is not None:
                executor.shutdown(wait=True, cancel_futures=True)
        self.log_manager.abandon()
        self.registry.abandon()
        end_process(self._process)

    def _stop_moves(self) -> None:
        if "log_dir_moves" in vars(self):  # made when the first replica is moved
            self.log_dir_moves.close()

    def _close_listeners(self) -> None:
        for sock in self._unopened:
            sock.close()
        if self._acceptor is not None:
            self._acceptor.close()

    def _make_data_directories(self) -> None:
        for directory in self.config.data_dirs:
            try:
                os.makedirs(directory, exist_ok=True)
            except OSError as error:
                raise DirectoryUnusable(
                    f"log.dirs: {directory} cannot be made: {error.strerror}; choose another with --data-dir"
                ) from None

    def _open_registry_and_logs(self, undo: contextlib.ExitStack) -> None:
        self.log_manager = LogManager(
            self.config.data_dirs,
            self.clock,
            disk=self._disk,
            boot_id=self._boot,
            recovery_threads=self.config.num_recovery_threads_per_data_dir,
            durability=self.config.durability,
        )
        self.log_manager.claim_directories()
        undo.callback(self.log_manager.release_directories)
        undo.callback(self._give_reserves_back)
        self._make_room(_START_BYTES)
        directories = self.log_manager.directories
        is_remote = self.config.zookeeper_connect is not None
        path = None if is_remote else registry_path(directories, self.config.registry_file)
        if is_remote or path is not None:
            self._open_registry(path, None, undo)
            image = self._image = self.registry.load().image
            for directory in directories:
                directory.check_identity(image.cluster_id, self.node_id)
            used = [directory.path for directory in directories if directory.used]
            name = self.config.zookeeper_connect or str(path)
            way_out = how_to_found_anew(name, used, in_zookeeper=is_remote)
            image = self._image = image_not_older_than_copies(self.registry, image, used, way_out)
            recorded = self.registry.directories(self.node_id)
            self._require_free_node_id(image, recorded)
            self._settle_doubts(image, recorded)
            self._make_data_directories()
            self._open_logs(
                image,
                lambda tp, topic_id: image.has_replica(self.node_id, tp.topic, tp.partition, topic_id),
                lambda logs: refuse_epochs_not_given(image, logs, name, way_out),
                undo,
            )
            self._settle_damage(image)
        else:
            self._make_data_directories()
            adoption = Adoption(self.config)
            self._open_logs(adoption.settings, None, lambda _: None, undo)
            self._open_registry(Path(directories[0].path) / REGISTRY_FILE, adoption.founding(self.log_manager), undo)
            self._image = self.registry.load().image
        self.cluster_id = self.log_manager.cluster_id

    def _settle_doubts(self, image: MetadataImage, recorded: Mapping[UUID, str]) -> None:
        """Raises UsageError if the logs may lack records, and it is not certain that others have these."""
        self._last_registration = self.registry.last_registration(self.node_id)
        try:
            doubts = DirectoryDoubts(
                image,
                self.node_id,
                recorded,
                self._last_registration,
                self.log_manager.directories,
                lost=self._lost_directories,
                accepted=self._accepted_directories,
            )
        except OSError as error:
            raise self.log_manager.unusable(error) from error
        self._doubts = doubts
        self.log_manager.lost_logs = doubts.lost_logs
        doubts.lost_replicas(image, self.registry.dead_brokers())

    def _settle_damage(self, image: MetadataImage) -> None:
        """Raises NotYet if logs that were opened are damaged, and nobody alive has all of their records."""
        assert self._doubts is not None
        logs = self.log_manager
        damaged = {tp: logs.directory_of(tp) for tp, log in logs.logs.items() if log.lacks}
        if self._doubts.note_damaged(image, damaged):
            self._doubts.lost_replicas(image, self.registry.dead_brokers())
        self._doubts.tell()

    def _require_free_node_id(self, image: MetadataImage, recorded: Mapping[UUID, str]) -> None:
        """Raises UsageError if the node id is another running broker's, before it is written into new directories."""
        registered = image.brokers.get(self.node_id)
        if registered is None:
            return
        is_another = bool(recorded) and recorded.keys().isdisjoint(self.log_manager.directory_paths())
        session = self.registry.session(self.node_id)
        if session is Evidence.RUNS or (session is Evidence.UNSEEN and is_another):
            raise node_id_in_use(self.node_id, describe_process(registered.process), session)

    def _outlast_former_session(self) -> None:
        """Waits until ZooKeeper has ended the session of the process that this broker was before. It cannot be seen:
        most likely its machine was started anew, or its container made anew. A copy of it that runs elsewhere keeps its
        session: raises NotYet."""
        registered = self._image.brokers.get(self.node_id)
        process = describe_process(registered.process if registered is not None else "")
        until = time.monotonic() + self.config.zookeeper_session_timeout_ms / 1000 * _SESSIONS_WAITED
        is_told, directories = False, list(self.log_manager.directory_paths().values())
        while (session := self.registry.session(self.node_id, directories)) is Evidence.UNSEEN:
            if time.monotonic() >= until:
                raise node_id_in_use(self.node_id, process, session)
            if not is_told:
                self.log.warning(
                    "broker %d was %s, which cannot be seen from here: waiting until its session with ZooKeeper ends",
                    *(self.node_id, process),
                )
                is_told = True
            if self.interrupted:
                raise StartInterrupted("stopped while it waited for the end of its former session")
            time.sleep(_SESSION_LOOK_S)

    def _open_registry(self, path: Path | None, founding: RegistryContent | None, undo: contextlib.ExitStack) -> None:
        """Opens the registry in a file; without a path the one in ZooKeeper."""
        self._registry_reserve: SpaceReserve | None = None
        if path is None:
            from barnabas.broker.startup.zookeeper_start import open_zookeeper

            self.registry = open_zookeeper(self.config, self.log_manager.directories, self._boot)
        else:
            # The registry and the thread that refills must share one object: what it has lent is not refilled.
            reserve = self._reserve_beside(path)
            room = partial(reserve.lent, _REGISTRY_WRITE_BYTES)
            self.registry = EmbeddedRegistry(path, founding=founding, room=room, node_id=self.node_id, boot=self._boot)
        undo.callback(self.registry.close)
        undo.push(partial(tell_who_has_the_node_id, self.config, self.registry))
        self._secret = self.registry.cluster_secret()

    def _reserve_beside(self, registry: Path) -> SpaceReserve:
        """Returns the reserve in the directory of the registry, which brokers share as they do the registry."""
        directory = os.path.abspath(registry.parent)
        own = self._registry_reserve = self._reserves.get(directory)
        if own is not None:
            return own
        shared = self._reserves[directory] = self._new_reserve(directory)
        shared.ensure(_START_BYTES)
        return shared

    def _new_reserve(self, directory: str) -> SpaceReserve:
        return SpaceReserve(directory, self.config.log_dir_reserve_bytes, self._reserve_locks)

    def _make_room(self, wanted: int) -> None:
        for reserve in self._reserves.values():
            reserve.ensure(wanted)

    def _give_reserves_back(self) -> None:
        for reserve in self._reserves.values():
            reserve.give_back()

    def _refill_reserves(self) -> None:
        """Sets space aside again in the directories that have some. May block; safe in any thread."""
        for reserve in self._reserves.values():
            reserve.refill()

    def _open_logs(
        self, image: MetadataImage, belongs: Belongs | None, judge: Judge, undo: contextlib.ExitStack
    ) -> None:
        """Opens the logs with the settings of `image`. LogManager.startup explains `belongs` and `judge`."""
        self._take_dynamic_settings(image)
        self.log_manager.set_producer_expiration(self.config.producer_id_expiration_ms)
        try:
            self.log_manager.startup(
                lambda topic: self.config.log_config(image.topic_config(topic)),
                node_id=self.node_id,
                cluster_id=image.cluster_id or None,
                belongs=belongs,
                judge=judge,
                progress=self._report_recovery,
                tells_losses=True,
            )
            undo.callback(self.log_manager.abandon)  # not as after a stop: others may not know yet what is lost
        except KafkaStorageError as error:
            raise DirectoryUnusable(f"{error.message}; make room or mend the disk, then start again") from None

    def _start_controller(self, undo: contextlib.ExitStack) -> None:
        """Registers the broker. Partitions whose logs are lost get a new leader epoch: clients know the records of the
        present one."""
        controller = self._controller = Controller(self.registry, self.config)
        is_remote = self.config.zookeeper_connect is not None
        self._process = begin_process(several_machines=is_remote, boot=self._boot)
        undo.callback(end_process, self._process)
        peer_endpoint = None
        if is_remote or self.config.registry_file is not None or self._image.brokers.keys() - {self.node_id}:
            member = self._join_cluster()
            undo.callback(member.close)
            peer_endpoint = member.endpoint
        if is_remote:
            with start_with_registry():
                self._outlast_former_session()
        registration = BrokerRegistration(
            self.node_id,
            self.log_manager.directory_paths(),
            self._advertised_endpoints(),
            self.config.broker_rack or None,
            peer_endpoint,
            self._process,
            self.log_manager.may_have_lost_records,
            tuple(str(topic_partition) for topic_partition, _ in self._without_logs()),
            registration_id=uuid4().hex,
        )
        self.log_manager.note_next_registration(registration.registration_id, self._last_registration.registration_id)
        undo.callback(controller.stop)
        complete = self._with_lost_replicas if self._doubts is not None and self._doubts.exist else None
        controller.start(registration, complete, self.log_manager.note_registration)
        self._image = controller.image
        empty = [tp for tp, partition in self._without_logs() if partition.leader == self.node_id]
        if empty:
            self.log.warning(
                "%d partitions have no log here and begin anew, empty: %s", len(empty), some(list(map(str, empty)))
            )
        kept = self._doubts.kept if self._doubts is not None else ()
        renewed = list(dict.fromkeys((*empty, *kept, *self._ending_early())))
        if renewed:
            controller.renew_leadership(renewed)
            self._image = controller.image
        self.log_manager.note_registration(controller.broker_epoch, accepted=True)
        self.controller = ControllerThread(controller, self.loop, runs_inline=self._controller_runs_inline)
        if is_remote:
            self.registry.watch(self._wake_controller)
        self.producer_ids = ProducerIdManager(
            self.loop, lambda: self.controller.call(Controller.allocate_producer_ids), partial(run_handler, self.loop)
        )

    def _with_lost_replicas(self, registration: BrokerRegistration, image: MetadataImage) -> BrokerRegistration:
        """Completes the registration where data directories are missing or old. Raises what `DirectoryDoubts` does."""
        assert self._doubts is not None
        lost = self._doubts.lost_replicas(image, self.registry.dead_brokers())
        return registration._replace(lost_replicas=lost, lacks_records=True)

    def _note_given_up(self) -> None:
        """Notes that the damaged replicas were given up by the registration: they are copied anew in the present leader
        epoch, on which nobody counts on what they had."""
        for topic_partition in () if self._doubts is None else self._doubts.given_up:
            if (replica := self.replica_manager.get(*topic_partition)) is not None:
                replica.damaged_epoch = GIVEN_UP

    def _without_logs(self) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        """Yields the partitions with a replica on this broker that has no log."""
        for name, topic in self.image.topics.items():
            for index, partition in enumerate(topic.partitions):
                topic_partition = TopicPartition(name, index)
                if self.node_id in partition.replicas and self.log_manager.get(topic_partition) is None:
                    yield topic_partition, partition

    def _ending_early(self) -> Iterator[TopicPartition]:
        """Yields the partitions that this broker leads, and whose logs end before records that clients may have had."""
        for topic_partition, log in self.log_manager.logs.items():
            if any(hole.next_offset > log.log_end_offset for hole in log.holes):
                partition = self.image.partition(*topic_partition)
                if partition is not None and partition.leader == self.node_id:
                    yield topic_partition

    def _wake_controller(self) -> None:
        """Has the controller look at a registry that has changed by itself. Called from any thread."""
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self.loop.call_soon_threadsafe(self._check_now)

    def _check_now(self) -> None:
        if not self.stopped:
            self.controller.check()

    def _controller_runs_inline(self) -> bool:
        reserve = self._registry_reserve
        return self._inline or (reserve is not None and reserve.is_needed(_REGISTRY_WRITE_BYTES))

    def _report_recovery(self, done: int, total: int, latest: TopicPartition) -> None:
        """Logs the progress of a recovery that takes longer than a second."""
        if self.interrupted:
            raise StartInterrupted(f"stopped before the broker was ready: {done} of {total} logs were loaded")
        now = self.clock.monotonic()
        if now - self._reported_at > _REPORT_INTERVAL_S:
            self._reported_at = now
            self.log.info("loading logs: %d of %d, %s is done", done, total, latest)

    # --- other brokers ----------------------------------------------------------------------------------------------

    @property
    def cluster(self) -> "ClusterMember | None":
        """This broker's membership in a cluster of several; None for one broker alone."""
        return self._cluster

    @property
    def peers(self) -> "PeerConnections | None":
        """The connections to the other brokers of the cluster; None for one broker alone."""
        return None if self._cluster is None else self._cluster.peers

    def _join_cluster(self) -> "ClusterMember":
        """Opens the listener for other brokers. Raises UsageError if its address is not free."""
        made: type[ClusterMember] = import_late("barnabas.broker.cluster.member").ClusterMember
        in_thread = partial(self.loop.run_in_executor, self._readers)
        self._cluster = made(self, self._secret, disk=self._executor, in_thread=in_thread)
        return self._cluster

    async def _meet_others(self) -> None:
        """Joins the cluster that this broker has become by the registration of another one."""
        if self.stopped or self._cluster is not None:
            return
        try:
            endpoint = self._join_cluster().endpoint
            await self.controller.call(lambda controller: controller.set_peer_endpoint(endpoint))
        except (BarnabasError, OSError) as error:
            self.log.error("other brokers have registered, but cannot reach this one: %s", error)
            if self._cluster is not None:
                self._cluster.close()
                self._cluster = None
            self.loop.call_later(_MEET_AGAIN_S, lambda: run_handler(self.loop, self._meet_others()))
            return
        if self._cluster is not None and not self.stopped:
            self._cluster.start()
            self.check_registry()

    @cached_property
    def log_dir_moves(self) -> "LogDirMoves":
        made: type[LogDirMoves] = import_late("barnabas.broker.log_dir_moves").LogDirMoves
        return made(
            self.replica_manager,
            self.log_manager,
            self.loop,
            self.log,
            config=lambda: self.config,
            run=partial(run_handler, self.loop),
            logs_changed=self.log_cleaner.logs_changed,
        )

    @cached_property
    def follower_fetch_sessions(self) -> "FollowerFetchSessions":
        module = import_late("barnabas.broker.cluster.follower_fetch_sessions")
        made: type[FollowerFetchSessions] = module.FollowerFetchSessions
        return made(self.replica_manager, self.clock)

    def submit_isr_change(self, change: IsrChange) -> None:
        if self._cluster is not None:
            self._cluster.isr_changes.submit(change)

    def check_registry(self) -> None:
        if self._cluster is None or self._cluster.is_controller:
            self.controller.check()

    async def leave_cluster(self) -> None:
        """Has the partitions that this broker leads led by others, before it stops."""
        if self._cluster is not None:
            await self._cluster.leave()

    # --- metadata ---------------------------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        return self._image

    def metadata_changed(self, change: MetadataChange) -> None:
        """Takes over an image, from this broker's controller or from the one of the cluster."""
        if self.stopped:
            return  # the logs are closed, and others may own the directories: the next start reads the registry
        if change.image.version <= self._image.version:
            return  # the other way was faster
        own = change.image.brokers.get(self.node_id)
        if own is None or own.epoch > self._controller.broker_epoch:
            self._end_replaced()
            return  # what is said of this node id there does not hold for this process
        if change.since != self._image.version:  # the two ways take turns, and each knows its own images only
            change = change_between(self._image, change.image)
        self._image = change.image
        self.registry.note_version(change.image.version, change.image.controller_epoch)
        self._copier.image_changed()
        if change.brokers_configured:
            self._take_dynamic_settings(change.image)
            self._replication_quotas.set_rates(self.config)
            if self._acceptor is not None:
                self._connection_limits.follow(self.config, self._acceptor.set_limits)
            self.log_manager.set_producer_expiration(self.config.producer_id_expiration_ms)
        if change.brokers:
            self.metadata_cache.clear()  # the replicas on other brokers are offline now
        for encoded_topics in self.metadata_cache.values():
            for name in change.topics:
                encoded_topics.pop(name, None)
        before = self.replica_manager.image
        # Settings first: a smaller ISR must not commit by the min.insync.replicas of before.
        if change.brokers_configured:
            self.replica_manager.config_changed(change.image.topics)
        elif change.topics_configured:
            self.replica_manager.config_changed(change.topics_configured)
        self.replica_manager.apply(change.image, change.topics)
        if change.brokers:
            self.replica_manager.brokers_changed()
        if change.topics:
            self.log_cleaner.logs_changed()
        if before is not None:
            self._group_service.topics_changed(before, change.image, change.topics)
        if self._cluster is not None:
            self._cluster.image_changed(change)
        elif len(change.image.brokers) > 1 and not self._meets_others:
            self._meets_others = True  # from now on: _meet_others tries until it has
            # later: the controller may be in the middle of a call, on this thread
            self.loop.call_soon(lambda: run_handler(self.loop, self._meet_others()))
        if self.peers is not None:
            if change.brokers:
                self._transaction_router.brokers_changed()
                self._marker_channel.brokers_changed()
            self.transactions.leaders_changed()

    def _end_replaced(self) -> None:
        """Ends this broker. Its session was over when another process registered with its node id, or an administrator
        removed the registration; the next start makes a new one."""
        self.end(f"the registration of broker {self.node_id} is gone, or another process's")

    def end(self, reason: str) -> None:
        if not self.ended.done():
            self.log.error("%s: this broker ends", reason)
            self.ended.set_result(None)

    def _take_dynamic_settings(self, image: MetadataImage) -> None:
        self.config = self.config.update_dynamic(image.broker_config(""), image.broker_config(str(self.node_id)))
        self.log_manager.cordoned = self.config.cordoned_dirs

    def _cordoned_brokers(self) -> Set[BrokerId]:
        """Returns the brokers that take no new replicas. Called in the controller's thread."""
        duties = None if self._cluster is None else self._cluster.duties
        others = set() if duties is None else duties.cordoned - {self.node_id}
        return others | {self.node_id} if self.config.is_cordoned else others

    def _log_config_of(self, topic: str) -> LogConfig:
        return self.config.log_config(self.image.topic_config(topic))

    async def auto_create_topics(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Creates missing topics. Returns the errors of those that cannot be created.

        No more than AUTO_CREATED_PARTITIONS_MAX partitions at once: clients ask again for the other topics.
        """
        chosen = list(islice(names, max(AUTO_CREATED_PARTITIONS_MAX // self.config.num_partitions, 1)))
        try:
            if self._cluster is not None:
                return await self._cluster.create_missing_topics(chosen)
            results = await self.controller.call(lambda controller: controller.auto_create_topics(chosen))
        except KafkaError as error:
            return dict.fromkeys(chosen, error)
        except ClientError as error:
            return dict.fromkeys(chosen, RequestTimedOut(str(error)))
        return {name: result for name, result in results.items() if isinstance(result, KafkaError)}

    # --- addresses --------------------------------------------------------------------------------------------------

    def _advertised_endpoints(self) -> tuple[Endpoint, ...]:
        if self.config.advertised_endpoints or self.config.zookeeper_connect is None:
            return self.config.advertised_endpoints or self.endpoints
        return tuple(map(with_host_name, self.endpoints))

    def advertised_brokers(self, connection: RequestConnection, *, include_fenced: bool = False) -> list[NamedBroker]:
        """Returns (node id, host, port, rack) of the live brokers for a client of this connection."""
        return self._addresses.brokers(self.image, connection, include_fenced=include_fenced)

    def _check_advertised_names(self) -> None:
        for setting, host in advertised_names(self.config):
            problem = problem_with(setting, host)
            if problem is not None:
                self.log.warning("%s", problem)
