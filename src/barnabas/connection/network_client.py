"""The heart of every client: requests to a node, any node, a coordinator or the controller; metadata; timers.

The client does no I/O. A driver tells it what happened (`connected`, `received`, `lost`, `advance`) with the time, and
does what it asks for (`take_connects`, `take_output`, `take_closes`, `next_deadline`). Producer and consumer are
components: `advance` gives each its turn after whatever happened. Requests end in callbacks, which are called from
inside these methods; they may send further requests.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, Protocol

from barnabas.connection.broker.broker_connection import Buffer
from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.broker.cluster_connections import (
    BOOTSTRAP,
    ClusterConnections,
    Connect,
    ConnectionSettings,
    NodeConnection,
)
from barnabas.connection.cluster import Broker, TopicView
from barnabas.connection.coordinators import Coordinators
from barnabas.connection.metadata import Metadata
from barnabas.connection.metadata_updater import HOPELESS, MetadataUpdater
from barnabas.connection.promise import Promise
from barnabas.connection.targets import (
    ANY,
    CONTROLLER,
    COORDINATOR_ROLE,
    GROUP,
    TRANSACTION,
    Coordinator,
    Node,
    Target,
)
from barnabas.connection.timers import NEVER, Timer, Timers
from barnabas.errors import Attempt, BrokerUnreachable, ClientClosed, ClientError, ConnectionLost, KafkaError

__all__ = [
    "ANY",
    "CONTROLLER",
    "COORDINATOR_ROLE",
    "GROUP",
    "HOPELESS",
    "TRANSACTION",
    "Component",
    "Coordinator",
    "NetworkClient",
    "NetworkClientSettings",
    "Node",
    "Target",
]

ATTEMPTS_KEPT: Final = 20
SILENCE_S: Final = 3.0
"""How long requests wait for any broker before the user is told: what a restart takes passes without a word."""


class NetworkClientSettings(NamedTuple):
    """What the network client wants to know, in seconds."""

    bootstrap: tuple[tuple[str, int], ...]
    connection: ConnectionSettings = ConnectionSettings()
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0
    metadata_max_age_s: float = 300.0
    rebootstrap: bool = True
    """Try the bootstrap addresses again when no known broker can be reached (KIP-899)."""
    rebootstrap_trigger_s: float = 300.0
    """Begin again from them, too, when known brokers gave no metadata for so long (KIP-1102)."""
    allow_auto_topic_creation: bool = True
    bootstrap_timeout_s: float = NEVER
    """How long to try the bootstrap addresses, each of them once at least, as long as no broker was ever met."""
    on_unreachable: Callable[[BrokerUnreachable], None] | None = None
    """Called, as the application's callbacks are, once for each time in which no broker can be reached for seconds."""


class Component(Protocol):
    """A state machine that lives on the network client."""

    def advance(self, now: float) -> None:
        """Do what can be done now. Called after everything that happens."""

    def next_deadline(self) -> float:
        """When it wants its turn even if nothing happens."""


def _is_free(peer: NodeConnection) -> bool:
    """Whether questions that any broker answers may go there: not behind what a broker parks. A coordinator may hold
    a JoinGroup for minutes."""
    return peer.ready and (peer.role == 0 or (peer.role == COORDINATOR_ROLE and not peer.in_flight))


class NetworkClient:
    """See the module. Not for use by several threads at once; the drivers see to that."""

    def __init__(self, settings: NetworkClientSettings, now: float, rng: random.Random | None = None) -> None:
        self.settings = settings
        self.now = now
        """Drivers set it before each call into the network client or what stands on it."""
        self.closed = False
        self.metadata = Metadata(
            max_age_s=settings.metadata_max_age_s, allow_auto_topic_creation=settings.allow_auto_topic_creation
        )
        self.timers = Timers()
        self.components: list[Component] = []
        self.on_metadata: list[Callable[[], None]] = []
        """Called after each answer that was taken in."""
        self.completions: deque[Callable[[], None]] = deque()
        """Calls into the application that are due; the driver makes them, in order, when the client is at rest."""
        self._rng = rng or random.Random()
        self._peers = ClusterConnections(settings.connection, on_ready=self._ready, on_lost=self._lost, rng=self._rng)
        self._unplaced: list[ClientRequest] = []
        """Requests to any node, while none is ready."""
        self._met = False
        """Whether a broker was ever reached."""
        self._seeking_since = now
        self._unreached: set[int] = set()
        """Node ids that were tried in vain since then."""
        self.attempts: list[Attempt] = []
        """Failures to connect since the last success, of any address."""
        self._tell_at = NEVER
        """When the user is told that no broker is reachable; NEVER if none is wanted, or it was told."""
        self._has_told = False
        """Whether it was, since a connection stood last."""
        self._metadata_updater = MetadataUpdater(self, self.metadata)
        self._coordinators = Coordinators(self, self.metadata)
        self._features: dict[str, int] = {}
        self._features_epoch = -1

    # --- requests ---------------------------------------------------------------------------------------------------

    def send(self, call: ClientRequest, to: Target) -> None:
        """One try. `call.done` is called when it ends, perhaps before this returns."""
        if self.closed:
            call.done(None, ClientClosed("the client is closed"))
            return
        self._metadata_updater.awake = True
        if isinstance(to, Node):
            self.send_to_node(call, to)
        elif isinstance(to, Coordinator):
            self._coordinators.send(call, to)
        elif to is ANY:
            self._send_to_any(call)
        elif self.metadata.view.controller_id in self.metadata.view.brokers:
            self.send_to_node(call, Node(self.metadata.view.controller_id))
        else:
            self.metadata.mark_stale()
            self._send_to_any(call)  # brokers pass on what is the controller's, or say NOT_CONTROLLER

    def peer(self, node_id: int, role: int = 0) -> NodeConnection | None:
        """The connection to a broker that metadata lists, for whoever bounds its requests in flight; None if it does
        not."""
        broker = self.metadata.view.brokers.get(node_id)
        return None if broker is None else self._peers.peer(node_id, role, broker.host, broker.port)

    def is_ready(self, node: Node) -> bool:
        """Whether a request would leave at once. If not, a connection is opened, or what is in the way waited for: the
        backoff, a quota, a socket that is full."""
        peer = self.peer(*node)
        if peer is None:
            self.metadata.mark_stale()
            return False
        self._metadata_updater.awake = True
        return self._peers.wire(peer, self.now).takes(self.now)

    @property
    def awaits_answers(self) -> bool:
        return self._peers.await_answers

    def send_to_node(self, call: ClientRequest, node: Node) -> None:
        peer = self.peer(*node)
        if peer is None:
            self.metadata.mark_stale()
            attempt = Attempt(f"broker {node.node_id}", "request", "the cluster does not list this broker", "")
            call.done(None, ConnectionLost(str(attempt), (attempt,)))
        else:
            self._peers.wire(peer, self.now).send(call, self.now)

    def _send_to_any(self, call: ClientRequest) -> None:
        ready = [peer for peer in self._peers if _is_free(peer)]
        if ready:
            best = min(ready, key=lambda peer: (peer.node_id < 0, peer.role, peer.in_flight))
            self._peers.wire(best, self.now).send(call, self.now)
            return
        call.expires = self.now + (call.timeout_s or self.settings.connection.request_timeout_s)
        if not self._unplaced:
            self._seeking_since = self.now
            if not self._has_told:
                self._tell_at = min(self._tell_at, self.now + SILENCE_S)
        self._unplaced.append(call)
        self._seek_a_node()

    def _seek_a_node(self) -> None:
        """Open a connection to somebody, one at a time: known brokers first, then the bootstrap addresses."""
        if not self._unplaced or any(peer.number and not peer.ready for peer in self._peers if peer.role == 0):
            return
        brokers = list(self.metadata.view.brokers.values())
        bootstrap = [Broker(BOOTSTRAP - i, *where, None) for i, where in enumerate(self.settings.bootstrap)]
        if brokers and not self.settings.rebootstrap:
            bootstrap.clear()
        self._rng.shuffle(brokers)
        self._rng.shuffle(bootstrap)
        peers = [self._peers.peer(b.node_id, 0, b.host, b.port) for b in (*brokers, *bootstrap)]
        if self._is_hopeless(peers):
            self._fail_unplaced(self.unreachable())
            return
        for peer in peers:
            if self.now >= peer.backoff_until:
                self._peers.wire(peer, self.now)
                return
        self._peers.wire(min(peers, key=lambda peer: peer.backoff_until), self.now)

    def _is_hopeless(self, peers: list[NodeConnection]) -> bool:
        """Whether the addresses are wrong, as far as can be told: nobody was ever met there, and the time is over."""
        until = self._seeking_since + self.settings.bootstrap_timeout_s
        return not self._met and self.now >= until and all(peer.node_id in self._unreached for peer in peers)

    def _fail_unplaced(self, error: Error) -> None:
        waiting, self._unplaced = self._unplaced, []
        self._unreached.clear()
        for call in waiting:
            call.done(None, error)

    def unreachable(self) -> BrokerUnreachable:
        """What was tried since a connection stood last."""
        attempts = tuple(self.attempts)
        hint = next((attempt.hint for attempt in reversed(attempts) if attempt.hint), "")
        latest = {attempt.address: attempt for attempt in (*self._peers.under_way(), *attempts)}
        text = "; ".join(map(str, latest.values())) + (f" ({hint})" if hint else "")
        return BrokerUnreachable(f"no broker reachable: {text or 'no address was tried yet'}", attempts)

    # --- coordinators -----------------------------------------------------------------------------------------------

    def coordinator(self, to: Coordinator) -> int | None:
        """The node id that answered last."""
        return self._coordinators.known(to)

    def forget_coordinator(self, to: Coordinator) -> None:
        """It moved, or is gone: the next request asks who it is."""
        self._coordinators.forget(to)

    # --- features ---------------------------------------------------------------------------------------------------

    def feature(self, name: str) -> int:
        """The level of a feature that the cluster has settled on, as far as brokers have told; 0 without it."""
        return self._features.get(name, 0)

    def _learn_features(self, peer: NodeConnection) -> None:
        told = peer.wire.api_versions if peer.wire is not None else None
        if told is not None and told.finalized_features_epoch > self._features_epoch:
            self._features_epoch = told.finalized_features_epoch
            self._features = {feature.name: feature.max_version_level for feature in told.finalized_features}

    # --- metadata ---------------------------------------------------------------------------------------------------

    def want_topics(self, topics: Iterable[str]) -> None:
        """Keep these topics in the metadata from now on."""
        self._metadata_updater.want(topics)

    def refresh_metadata(self) -> Promise[None]:
        """Ask soon; settled with the next answer that was asked for after this call, or an error of the connection."""
        return self._metadata_updater.refresh()

    def topic(self, name: str, timeout_s: float) -> Promise[TopicView]:
        """The topic, asked for if need be; see `MetadataUpdater.topic`."""
        return self._metadata_updater.topic(name, timeout_s)

    def follow_brokers(self) -> None:
        """Connections to brokers that moved or are gone end."""
        brokers = self.metadata.view.brokers
        for peer in list(self._peers):
            broker = brokers.get(peer.node_id)
            if broker is not None:
                self._peers.peer(peer.node_id, peer.role, broker.host, broker.port)

    def rebootstrap(self, error: Error) -> None:
        self._metadata_updater.missed_since = NEVER
        self.metadata.forget_cluster()
        self._coordinators.clear()
        self._peers.drop_all(error)

    # --- time and connections ---------------------------------------------------------------------------------------

    def backoff_s(self, failures: int) -> float:
        """The pause after so many failures in a row, with jitter; none after none."""
        if failures <= 0:
            return 0.0
        settings = self.settings
        pause = min(settings.retry_backoff_s * 2.0 ** min(failures - 1, 20), settings.retry_backoff_max_s)
        return pause * self._rng.uniform(0.8, 1.2)

    def at(self, when: float, action: Callable[[], None]) -> Timer:
        """Call it then."""
        return self.timers.at(when, action)

    def _ready(self, peer: NodeConnection) -> None:
        self.attempts.clear()
        self._tell_at, self._has_told = NEVER, False
        self._met = True
        self._learn_features(peer)
        if not _is_free(peer):
            return
        waiting, self._unplaced = self._unplaced, []
        for call in waiting:
            self._peers.wire(peer, self.now).send(call, self.now)

    def _lost(self, peer: NodeConnection, error: Error) -> None:
        self.attempts += peer.attempts
        del self.attempts[:-ATTEMPTS_KEPT]
        if not self.closed:
            self.metadata.mark_stale()
        self._unreached.add(peer.node_id)
        if isinstance(error, KafkaError) and not error.retriable:
            # wrong credentials are wrong everywhere: who waits for any broker hears it now
            self._fail_unplaced(error)

    def advance(self, now: float) -> None:
        """Let everything happen whose time has come. The driver calls it after what it told, and at the deadline."""
        self.now = max(now, self.now)
        self.timers.run(self.now)
        self._peers.tick(self.now)
        if self.settings.rebootstrap and self._metadata_updater.is_missed_for(self.settings.rebootstrap_trigger_s):
            self.rebootstrap(ConnectionLost("no broker gave metadata: the client begins again from bootstrap.servers"))
        if self._unplaced:
            self._expire_unplaced()
            self._seek_a_node()
        if self._tell_at <= self.now:
            self._tell_unreachable()
        if self._metadata_updater.due() <= self.now:
            self._metadata_updater.ask()
        for component in self.components:
            component.advance(self.now)

    def _expire_unplaced(self) -> None:
        if all(call.expires > self.now for call in self._unplaced):
            return
        late = [call for call in self._unplaced if call.expires <= self.now]
        self._unplaced = [call for call in self._unplaced if call.expires > self.now]
        unreachable = self.unreachable()
        for call in late:
            # retriable, unlike BrokerUnreachable: a broker may come up later
            call.done(None, ConnectionLost(str(unreachable), unreachable.attempts))

    def _tell_unreachable(self) -> None:
        self._tell_at, self._has_told = NEVER, True
        tell = self.settings.on_unreachable
        if tell is not None:
            self.completions.append(partial(tell, self.unreachable()))

    def next_deadline(self) -> float:
        """When `advance` has something to do even if nothing happens."""
        due: float = min(
            self.timers.next_deadline(), self._peers.next_deadline(), self._metadata_updater.due(), self._tell_at
        )
        for call in self._unplaced:
            due = min(due, call.expires)
        for component in self.components:
            due = min(due, component.next_deadline())
        return due

    # --- the driver's side ------------------------------------------------------------------------------------------

    def take_connects(self) -> list[Connect]:
        """Connections to open. Each ends in `connected` or `lost`, unless its number is closed before."""
        return self._peers.take_connects()

    def take_closes(self) -> list[int]:
        """Connections to close, open or opening; nothing needs to be told about them any more."""
        return self._peers.take_closes()

    def take_output(self) -> list[tuple[int, list[Buffer]]]:
        """What to write on which connection, in order; the network client forgets it."""
        return self._peers.take_output()

    def connected(self, number: int, now: float) -> None:
        self.now = max(now, self.now)
        self._peers.connected(number, self.now)

    def congested(self, number: int, congested: bool) -> None:
        """Whether the socket is full: `is_ready` says no until it is not."""
        self._peers.congested(number, congested)

    def room(self, number: int) -> memoryview | None:
        """Where the rest of a frame is best received into, which `filled` is told; None: nothing is waited for, or
        little is known of it yet."""
        return self._peers.room(number)

    def received(self, number: int, data: bytes, now: float) -> None:
        self.now = max(now, self.now)
        for call, response in self._peers.received(number, data, self.now):
            call.done(response, None)

    def filled(self, number: int, count: int, now: float) -> None:
        """As `received`, of bytes that were written into `room` since it was asked for."""
        self.now = max(now, self.now)
        for call, response in self._peers.filled(number, count, self.now):
            call.done(response, None)

    def stage(self, number: int) -> str:
        return self._peers.stage(number)

    def lost(self, number: int, attempts: tuple[Attempt, ...], now: float) -> None:
        """The connection could not be made, or broke. `attempts` say where, at which stage and why."""
        self.now = max(now, self.now)
        self._peers.lost_connection(number, attempts, self.now)

    def close(self) -> None:
        """Everything in flight fails with ClientClosed; `take_closes` names the connections."""
        self.closed = True
        error = ClientClosed("the client is closed")
        self._fail_unplaced(error)
        self._peers.drop_all(error)
        self._metadata_updater.close(error)

    def reset(self, error: ClientError) -> None:
        """Drop every connection; what was in flight fails with `error` and may be sent again."""
        self._peers.drop_all(error)
