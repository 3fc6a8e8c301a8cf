"""This broker as a member of a cluster: its listener for brokers, its connections to them, its heartbeats, and the
duties of the controller.

The image of a broker that is not the controller changes by the controller's pushes. It reads the registry itself only
at its start, and when the controller does not answer: then another one may have to be elected. Where the registry can
be copied with its incarnation, a broker also reads whether a new controller is one by its own registry.
"""

import asyncio
import codecs
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from importlib import import_module
from typing import Any, Final, Protocol

from barnabas.broker.cluster.controller_duties import ControllerDuties
from barnabas.broker.cluster.isr_changes import IsrChangeSender
from barnabas.broker.cluster.liveness import Liveness, ProcessLiveness, Watch
from barnabas.broker.cluster.metadata_messages import update_of
from barnabas.broker.cluster.replica_fetcher_manager import ReplicaFetcherManager
from barnabas.broker.cluster.session_doubts import SessionDoubts
from barnabas.broker.cluster.storage_failures import StorageFailures
from barnabas.broker.handlers import HANDLER_MODULES
from barnabas.broker.loop_watchdog import LoopWatchdog
from barnabas.broker.peers.controller_channel import ControllerChannel
from barnabas.broker.peers.forwarding import Forwarder
from barnabas.broker.peers.identity import PeerIdentity, place_of
from barnabas.broker.peers.inter_broker_listener import InterBrokerListener
from barnabas.broker.peers.peer_connections import PeerAddress, PeerConnections, Role
from barnabas.broker.requests.late_responses import run_handler
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.scheduler import Scheduler
from barnabas.broker.services import BrokerServices
from barnabas.config.broker import BrokerConfig
from barnabas.config.endpoints import Endpoint
from barnabas.connection.broker.cluster_connections import ConnectionSettings
from barnabas.controller.controller import Controller
from barnabas.errors import (
    BarnabasError,
    InconsistentClusterId,
    KafkaError,
    NotController,
    StaleControllerEpoch,
    error_for,
)
from barnabas.metadata.delta import MetadataChange
from barnabas.metadata.refused_broker import RefusedBroker
from barnabas.metadata.update import UpdateReceiver
from barnabas.network.connection import InThread, Parts
from barnabas.protocol.apis import SERVED, SERVED_TO_BROKERS, ApiKey, message_classes
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.peer_messages.create_missing_topics import (
    CreateMissingTopicsRequest,
    CreateMissingTopicsResponse,
)
from barnabas.protocol.peer_messages.push_metadata import PushMetadataRequest
from barnabas.registry.processes import is_running, is_visible
from barnabas.registry.registry import AFTER_LOSS, Registry, RegistryUnreachable
from barnabas.types import BrokerId
from barnabas.version import __version__

__all__ = ["ClusterMember"]

QUICK_S: Final = 0.05
"""The time to the next heartbeat while this broker is fenced, or after one that failed. It doubles up to
broker.heartbeat.interval.ms."""
HEARTBEAT_TIMEOUT_MIN_S: Final = 1.0
"""A heartbeat may have to open the connection first, which would be given up with it."""
CONTROLLER_CHECK_MS: Final = 500
"""The interval at which the controller looks for brokers whose session has timed out."""
ELECTION_MAX_S: Final = 1.0
"""The longest wait for the leaders that follow a dead broker."""
SHOWN_S: Final = 2.0
"""The time for which clients are still told the address of a broker that was fenced."""
DIRECTORY_CHECK_MS: Final = 2_000
"""The interval at which this broker looks for its data directories, and for the file of the registry."""
WAITING_S: Final = 5.0
"""The time after which a broker that the controller has not taken in says what it waits for."""
LEAVE_MAX_S: Final = 5.0
"""A controlled shutdown that takes longer is given up: the others notice that the process has ended."""

_BETWEEN_BROKERS: Final = (
    *(ApiKey.FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DESCRIBE_LOG_DIRS),
    *(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS),
)
"""The APIs of clients that brokers ask of each other."""

import_module("encodings.idna")  # says for what there is no room, where the look-up would call the codec unknown
codecs.lookup("idna")  # names are looked up by it: what found no memory for it once would never find another broker


def connection_settings(config: BrokerConfig) -> ConnectionSettings:
    """Returns the settings of connections to other brokers."""
    return ConnectionSettings(
        request_timeout_s=config.request_timeout_ms / 1000,
        setup_timeout_s=config.socket_connection_setup_timeout_ms / 1000,
        setup_timeout_max_s=config.socket_connection_setup_timeout_max_ms / 1000,
        backoff_s=0.02,
        backoff_max_s=0.5,
        receive_buffer_bytes=config.replica_socket_receive_buffer_bytes,
    )


class Member(BrokerServices, Protocol):
    """The broker, as its membership needs it."""

    registry: Registry

    def metadata_changed(self, change: MetadataChange) -> None:
        """Takes over a newer image."""


class ClusterMember:
    """Made on the event loop's thread, before the broker registers; used there."""

    def __init__(
        self,
        broker: Member,
        secret: bytes,
        *,
        disk: Executor,
        in_thread: InThread | None = None,
        liveness: Liveness | None = None,
        settings: ConnectionSettings | None = None,
    ) -> None:
        """Opens the listener for other brokers. `disk` runs what blocks. Raises UsageError if its address is not
        free."""
        self._broker = broker
        self._place = place_of(broker.config.data_dirs)
        self._liveness = liveness or ProcessLiveness(broker.loop)
        self._listener = InterBrokerListener(
            broker, secret, self._identity, log=broker.log, on_peer_lost=self._peer_lost, in_thread=in_thread
        )
        settings = settings or connection_settings(broker.config)
        self.peers = PeerConnections(self._address_of, self._identity, secret, broker.failures, settings)
        self.peers.on_peer_lost = self._peer_lost
        self.peers.on_peer_unreached = self._peer_unreached
        self._forwarder = Forwarder(self.peers, broker.node_id, lambda: broker.image.controller_id)
        self._controller = ControllerChannel(broker, self.peers)
        self.isr_changes = IsrChangeSender(broker, self._controller)
        self.duties: ControllerDuties | None = None
        """The duties of the controller, while this broker is."""
        self._receiver: UpdateReceiver | None = None
        self._confirmed: tuple[int, int, int] | None = None
        """Node id, registration's epoch and epoch of the last controller that this broker's registry has named."""
        self._fetchers: ReplicaFetcherManager | None = None
        self._has_resigned = False
        """Whether this broker has resigned as the controller, and no other one has taken the role since."""
        self._controller_watch: tuple[BrokerId, int, Watch] | None = None
        """The controller that is watched, and the epoch of its registration."""
        self._scheduler = Scheduler(broker.loop, disk, broker.failures)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.registry_loss = ""
        """The reason for which brokers that start would not find the registry; '' if they would."""
        self._failures = 0
        """The number of heartbeats since the last one that the controller answered."""
        self._last_answer: BrokerHeartbeatResponse | BarnabasError | None = None
        """The outcome of the last heartbeat."""
        self._in_heartbeat = False
        config = broker.config
        sessions_ms = [config.broker_session_timeout_ms]
        if config.zookeeper_connect is not None:
            sessions_ms.append(config.zookeeper_session_timeout_ms)
        self.role_may_move = config.zookeeper_connect is not None
        """Whether the controller's role may move to another broker while the process of this one lives."""
        self._doubts = SessionDoubts(broker.loop.time, min(sessions_ms) / 1000)
        self._watchdog: LoopWatchdog | None = None
        self._stands_down = False
        """Whether the watchdog gives the role of the controller up. Set before the registry knows, by the controller's
        thread."""
        self._stood_down_in_vain: float | None = None
        """The time at which that has failed. A later reading of the registry tells whether the role is lost."""
        self._is_leaving = False
        self._is_closed = False
        self._dying: dict[BrokerId, int] = {}
        """The brokers whose process has ended, with the epoch of their registration, while others are not elected yet
        in their place."""
        self._unknown_fencings = 0
        """The number of fencings by this broker as the controller of which not all live brokers are known to know."""
        self._elected: asyncio.Future[None] | None = None
        self._live: set[BrokerId] = set()
        """The brokers that were not fenced in the image before."""
        self._shown_until: dict[BrokerId, float] = {}
        self._joined: asyncio.Future[None] = broker.loop.create_future()

    @property
    def endpoint(self) -> Endpoint:
        """The address to which other brokers connect."""
        return self._listener.endpoint

    def refused_brokers(self) -> list[RefusedBroker]:
        """Returns those that this broker has refused lately, because they do not belong to the cluster."""
        return self._listener.refusals.kept()

    def note_refused(self, identity: PeerIdentity, host: str, problem: str) -> None:
        """Remembers a broker that does not belong to the cluster, for `refused_brokers`."""
        self._listener.refusals.note(identity, host, problem)

    @property
    def is_controller(self) -> bool:
        return self._broker.image.controller_id == self._broker.node_id

    def _identity(self) -> PeerIdentity:
        broker = self._broker
        registered = broker.image.brokers.get(broker.node_id)
        epoch = -1 if registered is None else registered.epoch
        incarnation = broker.registry.incarnation()
        return PeerIdentity(
            broker.cluster_id, broker.node_id, epoch, __version__, incarnation=incarnation, place=self._place
        )

    def _address_of(self, node_id: int) -> PeerAddress | None:
        broker = self._broker.image.brokers.get(BrokerId(node_id))
        if broker is None or broker.peer_endpoint is None:
            return None
        return PeerAddress(broker.peer_endpoint, broker.epoch)

    # --- start and stop ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins the heartbeats. Called when the broker is registered and has its image."""
        _load_modules()
        self._receiver = UpdateReceiver(self._broker.image)
        self.peers.addresses_changed()
        self._live = {node_id for node_id, each in self._broker.image.brokers.items() if not each.fenced}
        fetchers = self._fetchers = ReplicaFetcherManager(self._broker)
        storage_failures = StorageFailures(
            self._broker,
            self._controller,
            self.peers,
            replicas_changed=lambda topic: fetchers.image_changed(self._broker.image, [topic]),
        )
        self._controller_changed()
        self._note_if_joined()  # the only broker of its cluster is taken in while it starts
        self._doubts.tick()
        self._doubts.heartbeat_answered(self._broker.loop.time())  # the session has just begun
        config, every = self._broker.config, self._scheduler.every
        self._watchdog = LoopWatchdog(config.broker_session_timeout_ms / 1000, self._stand_down, self._broker.log)
        every(max(round(self._doubts.tick_s * 1000), 1), "the session", self._tick)
        every(DIRECTORY_CHECK_MS, "data directories", storage_failures.check_directories, thread=True)
        every(DIRECTORY_CHECK_MS, "damaged logs", storage_failures.check_damaged)
        every(DIRECTORY_CHECK_MS, "the registry's file", self._check_registry, thread=True)
        # The controller takes checks that are half a session apart for a pause of its own process.
        every(min(CONTROLLER_CHECK_MS, config.broker_session_timeout_ms // 4), "sessions", self._check_sessions)
        every(config.replica_lag_time_max_ms // 2, "in-sync replicas", self._propose_isr_changes)
        if config.auto_leader_rebalance_enable:
            every(config.leader_imbalance_check_interval_seconds * 1000, "leader balance", self._balance_leaders)
        self._in(WAITING_S, "waiting", self._tell_what_it_waits_for)
        self._beat()

    def joined(self) -> "asyncio.Future[None]":
        """Returns a future that is done when the controller has taken this broker in: it may lead then."""
        return self._joined

    def _tell_what_it_waits_for(self) -> None:
        """Logs why this broker does not accept clients yet."""
        if not self._joined.done():
            self._broker.log.warning("clients are not accepted yet: %s", self._missing_for_clients())

    def _missing_for_clients(self) -> str:
        controller_id, answer = self._broker.image.controller_id, self._last_answer
        if controller_id < 0:
            return "this broker waits for one that is the controller"
        controller = f"this broker waits for the controller, broker {controller_id}"
        if not isinstance(answer, BrokerHeartbeatResponse):
            return f"{controller}: {answer or 'it has not answered'}"
        if answer.is_fenced and answer.is_caught_up:
            return f"{controller}, to take it in: the log of that broker says what prevents it"
        name, is_told = self.endpoint.name, self._broker.config.advertised_inter_broker_endpoint is not None
        source = f"the {name} entry of advertised.listeners" if is_told else f"its listener {name}"
        return f"{controller}, to send it metadata, which has to reach it at {self.endpoint.local_address}, {source}"

    def once_joined(self, call: Callable[[], None]) -> None:
        """Calls when the controller has taken this broker in, at once if it has."""
        if self._joined.done():
            call()
        else:
            self._joined.add_done_callback(lambda _: call())

    async def leave(self) -> None:
        """Has the controller move this broker's leaders to others, so that its end interrupts nobody. Returns when the
        others know, or after five seconds."""
        broker = self._broker
        if not broker.config.controlled_shutdown_enable:
            return
        self._is_leaving = True
        others = [each for node_id, each in broker.image.brokers.items() if node_id != broker.node_id]
        if all(each.fenced for each in others):
            return  # nobody is there to lead
        deadline = broker.loop.time() + LEAVE_MAX_S
        while not self._is_fenced() and broker.loop.time() < deadline:
            try:
                await asyncio.wait_for(self._send_heartbeat(), LEAVE_MAX_S)
            except (BarnabasError, TimeoutError) as error:
                broker.log.info("the controller has not moved the leaders of this broker yet: %s", error)
            if not self._is_fenced():
                await asyncio.sleep(QUICK_S)
        if self.duties is not None:
            await self.duties.pushes.known()

    def _is_fenced(self) -> bool:
        registered = self._broker.image.brokers.get(self._broker.node_id)
        return registered is None or registered.fenced

    def close(self) -> None:
        self._is_closed = True
        if self._watchdog is not None:
            self._watchdog.close()
        self._scheduler.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._end_election()
        if self._controller_watch is not None:
            self._controller_watch[2]()
        if self.duties is not None:
            self.duties.close()
        self.isr_changes.close()
        if self._fetchers is not None:
            self._fetchers.shutdown()
        self.peers.close()
        self._listener.close()

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Sends a heartbeat, or looks for a controller if there is none."""
        if self._is_closed or self._is_leaving or self._in_heartbeat:
            return
        self._in_heartbeat = True
        run_handler(self._broker.loop, self._heartbeat())

    async def _heartbeat(self) -> None:
        try:
            is_fenced = await self._send_heartbeat()
            self._failures = 0
            self._broker.controller.check_if_unread()
        except BarnabasError as error:
            if self._is_closed:
                return
            is_fenced = True
            self._failures += 1
            self._last_answer = error
            self._broker.log.debug("heartbeat failed: %s", error)
            self._broker.controller.check()  # becomes the controller if there is none, or learns who is
        finally:
            self._in_heartbeat = False
        interval_s = min(self._broker.config.broker_heartbeat_interval_ms / 1000, self._doubts.sure_s / 2)
        if is_fenced or self.may_be_replaced():
            interval_s = min(interval_s, QUICK_S * 2 ** min(self._failures, 10))
        self._in(interval_s, "heartbeat", self._beat)

    async def _send_heartbeat(self) -> bool:
        """Returns whether this broker is fenced. Raises KafkaError, ClientError."""
        broker = self._broker
        request = BrokerHeartbeatRequest(
            broker_id=broker.node_id,
            broker_epoch=self._identity().broker_epoch,
            current_metadata_offset=broker.image.version,
            want_shut_down=self._is_leaving,
            takes_no_replicas=broker.config.is_cordoned,
        )
        sent_at, is_own = broker.loop.time(), self.is_controller
        timeout_s = max(broker.config.broker_heartbeat_interval_ms / 1000, HEARTBEAT_TIMEOUT_MIN_S)
        response: BrokerHeartbeatResponse = await self._controller.send(request, timeout_s=timeout_s)
        self._last_answer = response
        if response.is_fenced:
            self._doubts.denied()
        elif not is_own:  # its own answer proves nothing
            self._doubts.heartbeat_answered(sent_at)
        return response.is_fenced

    def _tick(self) -> None:
        self._doubts.tick()
        self.note_turn()
        self._read_if_unsure()

    def note_turn(self) -> None:
        """Tells the watchdog that the event loop does not stand still."""
        if self._watchdog is not None:
            self._watchdog.turned()

    def _stand_down(self, still_stands: Callable[[], bool]) -> bool:
        """Gives the role of the controller and all leaderships up, because the event loop stands still. Called in the
        watchdog's thread. The loop finds out before it believes in its role again: it reads the registry first."""
        session_s = self._broker.config.broker_session_timeout_ms / 1000
        reason = f"its event loop has stood still for {session_s:g} s, as in a write to a disk that hangs"

        def stand_down(controller: Controller) -> bool:
            if not still_stands():
                return False
            self._stands_down = True
            if not controller.stand_down(session_s, reason):
                self._stands_down = False  # else the loop does that, as soon as it knows, maybe it has by now
            return True

        try:
            return self._broker.controller.call_from(stand_down)
        except (BarnabasError, RuntimeError):  # the registry does not respond, or the broker stops
            self._stood_down_in_vain = self._broker.loop.time()
            return False

    def _read_if_unsure(self) -> None:
        """Reads the registry if it alone can tell whether others lead in place of this broker, which is not fenced."""
        if not self._is_leaving and not self._keeps_role() and not self._is_fenced() and self._doubts.wants_reading():
            self._broker.controller.check()

    def registry_read(self, began: float) -> None:
        """Notes that this broker has got all that the registry had at this monotonic time."""
        self._doubts.registry_read(began, is_controller=self.is_controller)
        if self._stood_down_in_vain is not None and began > self._stood_down_in_vain:
            self._stands_down, self._stood_down_in_vain = False, None
        if self._doubts.wants_reading():
            self._in(self._doubts.reading_s, "reading", self._read_if_unsure)

    def may_be_replaced(self) -> bool:
        """Returns whether other brokers may lead in place of this one without its knowledge, because its process stood
        still, or it is cut off."""
        if self._keeps_role():
            return False
        return self._doubts.may_be_replaced(None if self.duties is None else self.duties.hears_of_enough)

    def _keeps_role(self) -> bool:
        """Returns whether this broker is the controller, without whom nobody can lead in its place."""
        may_move = self.role_may_move or self._stands_down
        return self.duties is not None and not may_move and not self.duties.gives_role_up

    async def answer_heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        """Answers the heartbeat of another broker, as the controller. Raises KafkaError, RegistryUnavailable."""
        if self.duties is not None and self.may_be_replaced():
            self.duties.heard(request)  # it must not be fenced because the registry does not respond
            if self.may_be_replaced():
                # The controller may have a successor itself, of which nobody but the registry could tell it.
                try:
                    await self._broker.controller.call(Controller.refresh, until_known=False)
                except BarnabasError:
                    self._doubts.registry_unread()
                    raise
        if self.duties is None:
            raise NotController("another broker is the controller")
        return await self.duties.heartbeat(request)

    # --- metadata ---------------------------------------------------------------------------------------------------

    async def receive(self, request: PushMetadataRequest) -> int:
        """Takes over a part of an update from the controller, and returns the version of the image afterwards. Raises
        StaleControllerEpoch; InconsistentClusterId for the controller of a copy; and RegistryUnavailable."""
        receiver = self._receiver
        assert receiver is not None
        update = update_of(request)
        sender = request.controller_id, request.controller_broker_epoch, request.controller_epoch
        if sender != self._confirmed and self._broker.registry.confirms_controllers:
            await self._confirm(*sender)
        if request.controller_epoch < receiver.controller_epoch or request.cluster_id != self._broker.cluster_id:
            raise StaleControllerEpoch(f"the controller is in epoch {receiver.controller_epoch}")
        change = receiver.receive(update)
        if change is not None:
            self._broker.metadata_changed(change)
        return receiver.image.version

    async def _confirm(self, controller_id: int, broker_epoch: int, controller_epoch: int) -> None:
        """Raises an error unless this broker's registry has this controller, or cannot be reached. What is read is
        later than the update, so it may have the next one already; an earlier one or another one of the same epoch is
        of another registry."""
        try:
            await self._broker.controller.call(Controller.refresh, until_known=False)
        except RegistryUnreachable:
            return  # the other brokers may reach it, and go on: their controller is asked for again at its next push
        image = self._broker.image
        known = image.brokers.get(image.controller_id)
        is_known = (image.controller_id, image.controller_epoch) == (controller_id, controller_epoch)
        if known is not None and not is_known and controller_epoch >= image.controller_epoch:
            raise InconsistentClusterId(
                f"broker {controller_id} is the controller in epoch {controller_epoch} of another registry: in that of "
                f"this broker it is broker {known.node_id} in epoch {image.controller_epoch}; stop the one that is a "
                "copy, with its ZooKeeper"
            )
        if known is None or not is_known or broker_epoch not in (known.epoch, -1):
            raise StaleControllerEpoch(f"the controller is in epoch {image.controller_epoch}")
        self._confirmed = controller_id, broker_epoch, controller_epoch

    def image_changed(self, change: MetadataChange) -> None:
        """Follows a new image, which the broker has taken over."""
        receiver = self._receiver
        if receiver is None:
            return
        if change.image.version > receiver.image.version:  # by this broker's own controller
            receiver.image = change.image
            receiver.controller_epoch = max(receiver.controller_epoch, change.image.controller_epoch)
        if change.brokers:
            self.peers.addresses_changed()
        if self._fetchers is not None:
            self._fetchers.image_changed(change.image, change.topics)
        self._controller_changed()
        if change.brokers_configured:
            self._in(0.0, "heartbeat", self._beat)  # the controller has to know which data directories are cordoned
        if self.duties is not None:
            self.duties.image_changed(change)
        if change.brokers:
            self._follow_election(has_fenced=self._note_fenced(change))
        self._note_if_joined()

    def _note_if_joined(self) -> None:
        if not self._joined.done() and not self._is_fenced():
            self._joined.set_result(None)

    def _controller_changed(self) -> None:
        broker, image = self._broker, self._broker.image
        if self.is_controller and self.duties is None:
            broker.log.info("this broker is the controller, in epoch %d", image.controller_epoch)
            self.duties = ControllerDuties(broker, self.peers, self._liveness, may_resign=not self._has_resigned)
            broker.controller.until_known = self.duties.pushes.known
        elif not self.is_controller and self.duties is not None:
            self._has_resigned = self.duties.has_resigned
            self.duties.close()
            self.duties = None
            self._stands_down = False
            self._doubts.role_lost()
            broker.controller.until_known = None
        controller = image.brokers.get(image.controller_id)
        self._has_resigned = self._has_resigned and (controller is None or self.is_controller)
        watched = None if controller is None or self.is_controller else (controller.node_id, controller.epoch)
        current = self._controller_watch
        if watched == (None if current is None else current[:2]):
            return
        if current is not None:
            current[2]()
            self._controller_watch = None
        if watched is not None and controller is not None:
            self._controller_watch = (*watched, self._liveness.watch(controller.process, self._controller_exited))
            self._in(0.0, "heartbeat", self._beat)  # a new controller has to hear of this broker

    def _controller_exited(self) -> None:
        self._broker.log.info("the process of the controller has ended")
        self._broker.controller.check()

    # --- brokers that die -------------------------------------------------------------------------------------------

    def _peer_lost(self, node_id: int) -> None:
        """Has a dead broker fenced at once. The kernel closes the connections of a process before it is gone."""
        broker = self._broker.image.brokers.get(BrokerId(node_id))
        if broker is None or broker.fenced or self._is_closed:
            return
        if is_running(broker.process):
            if self.duties is not None:
                self.duties.connection_lost(broker)
            if not is_visible(broker.process):
                self._broker.controller.check()  # its lock may tell that it has ended
                if broker.node_id == self._broker.image.controller_id:
                    self._in(0.0, "heartbeat", self._beat)  # until it can be reached, or another one is elected
            return
        if broker.node_id not in self._dying:
            self._dying[broker.node_id] = broker.epoch
            self._begin_election()
            if self.duties is not None or broker.node_id == self._broker.image.controller_id:
                self._broker.controller.check()

    def _peer_unreached(self, node_id: int, refused: bool) -> None:
        broker = self._broker.image.brokers.get(BrokerId(node_id))
        if broker is not None and self.duties is not None and not self._is_closed:
            self.duties.unreached(broker, refused=refused)

    def election(self) -> "asyncio.Future[None] | None":
        """Returns a future that is done when a broker that has just died is fenced, and others lead its partitions;
        None if there is none. Clients ask for the new leaders as soon as their connection ends, and many do not ask
        again before a second has passed. The controller waits until the new leaders know: some clients give up when
        they are refused there."""
        return self._elected

    def was_live(self, node_id: BrokerId) -> bool:
        """Returns whether a fenced broker was live a few seconds ago. Clients are still told its address: it is usually
        back soon, and a client that sees a broker leave may lose a second over tearing down what it had for it."""
        return self._broker.loop.time() < self._shown_until.get(node_id, 0.0)

    def _note_fenced(self, change: MetadataChange) -> bool:
        """Returns whether brokers were fenced that were live in the image before."""
        has_fenced = False
        for node_id in change.brokers:
            broker = change.image.brokers.get(node_id)
            if broker is None or not broker.fenced:
                self._live.add(node_id)
            elif node_id in self._live:
                self._live.discard(node_id)
                self._shown_until[node_id] = self._broker.loop.time() + SHOWN_S
                has_fenced = True
        return has_fenced

    def _begin_election(self) -> None:
        if self._elected is None and not self._is_closed:
            self._elected = self._broker.loop.create_future()
            self._in(ELECTION_MAX_S, "election", self._end_election)

    def _end_election(self) -> None:
        self._dying.clear()
        elected, self._elected = self._elected, None
        if elected is not None:
            self._timers.pop("election").cancel()
            elected.set_result(None)

    def _follow_election(self, *, has_fenced: bool) -> None:
        brokers = self._broker.image.brokers
        for node_id, epoch in tuple(self._dying.items()):
            if node_id not in brokers or brokers[node_id].epoch != epoch or brokers[node_id].fenced:
                del self._dying[node_id]
        if self.duties is not None and has_fenced:
            self._begin_election()
            self._unknown_fencings += 1
            run_handler(self._broker.loop, self._wait_until_known(self.duties))
        self._end_election_if_over()

    async def _wait_until_known(self, duties: ControllerDuties) -> None:
        await duties.pushes.known()
        self._unknown_fencings -= 1
        self._end_election_if_over()

    def _end_election_if_over(self) -> None:
        if not self._dying and not self._unknown_fencings:
            self._end_election()

    # --- periodic ---------------------------------------------------------------------------------------------------

    def _check_registry(self) -> None:
        """Looks for the loss of a registry that this broker would not notice otherwise. Blocks; called in a thread."""
        known, self.registry_loss = self.registry_loss, self._broker.registry.loss()
        if self.registry_loss and not known:
            self._broker.log.warning("the registry %s: %s", self.registry_loss, AFTER_LOSS)

    def _check_sessions(self) -> None:
        if self.duties is not None:
            self.duties.check_sessions()

    def _balance_leaders(self) -> None:
        if self.duties is not None:
            self.duties.balance_leaders()

    def _propose_isr_changes(self) -> None:
        for change in self._broker.replica_manager.isr_changes(self._broker.clock.monotonic()):
            self.isr_changes.submit(change)

    def _in(self, delay_s: float, name: str, task: Callable[[], None]) -> None:
        """Runs a task later, in the place of the one with this name that waits."""
        if self._is_closed:
            return
        before = self._timers.get(name)
        if before is not None:
            before.cancel()
        self._timers[name] = self._broker.loop.call_later(delay_s, task)

    # --- requests for the controller --------------------------------------------------------------------------------

    def forward(self, frame: memoryview, context: RequestContext) -> Coroutine[Any, Any, Parts]:
        """Returns a coroutine of the controller's response to a client's request (`Forwarder.forward`)."""
        return self._forwarder.forward(frame, context)

    async def create_missing_topics(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Has the controller create topics with the cluster's defaults. Returns the errors of those that cannot be.
        Raises KafkaError, ClientError."""
        request = CreateMissingTopicsRequest(names=list(names))
        response: CreateMissingTopicsResponse = await self._controller.send(request, role=Role.FORWARD)
        return {
            topic.name: error_for(topic.error_code, topic.error_message or "")
            for topic in response.topics
            if topic.error_code
        }


def _load_modules() -> None:
    """Imports what brokers need for each other. At its first use, often in need, there may be no descriptor left
    with which a module's file could be opened."""
    for api_key in (*_BETWEEN_BROKERS, *(key for key in SERVED_TO_BROKERS if key not in SERVED)):
        message_classes(api_key)
        import_module(HANDLER_MODULES[ApiKey(api_key).name.lower()])
