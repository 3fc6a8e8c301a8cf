"""The network client of a producer, consumer or administrator: sends requests to brokers, keeps metadata, runs timers.

The client does no I/O. A driver tells its `connections` what happened (`connected`, `received`, `lost`), calls
`advance`, and does what the connections ask for (`take_connects`, `take_output`, `take_closes`); `next_deadline` says
when to call `advance` again. Producer and consumer are components: `advance` gives each its turn after whatever
happened. Requests end in callbacks, which are called from inside these methods; they may send further requests.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, Protocol

from barnabas.connection.broker.client_request import ClientRequest, Error, connection_lost
from barnabas.connection.broker.cluster_connections import (
    BOOTSTRAP,
    ClusterConnections,
    ConnectionSettings,
    NodeConnection,
)
from barnabas.connection.cluster import TopicView
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
from barnabas.connection.timers import NEVER, Timer, Timers, exponential_backoff
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
REPORT_AFTER_S: Final = 3.0
"""How long requests wait for any broker before the user is told: a restart takes less."""


class NetworkClientSettings(NamedTuple):
    """The settings of the network client, in seconds."""

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
    """How long to try the bootstrap addresses, each of them once at least, until a first broker is reached."""
    on_unreachable: Callable[[BrokerUnreachable], None] | None = None
    """Called, as the application's callbacks are, once for each time in which no broker can be reached for seconds."""


class Component(Protocol):
    """A state machine that lives on the network client."""

    def advance(self, now: float) -> None:
        """Does what can be done now. Called after everything that happens."""

    def next_deadline(self) -> float:
        """Returns when to call `advance` even if nothing happens."""


def _takes_any_request(node: NodeConnection) -> bool:
    """Whether requests to any broker may go there, and do not wait behind one that a broker holds. A coordinator may
    hold a JoinGroup for minutes."""
    return node.ready and (node.role == 0 or (node.role == COORDINATOR_ROLE and not node.in_flight))


class NetworkClient:
    """Sends requests. Not for use by several threads at once; the drivers see to that."""

    def __init__(self, settings: NetworkClientSettings, now: float, rng: random.Random | None = None) -> None:
        self.settings = settings
        self.now = now
        """Drivers set it before each call into the network client, its connections or its components."""
        self.closed = False
        self.metadata = Metadata(
            max_age_s=settings.metadata_max_age_s, allow_auto_topic_creation=settings.allow_auto_topic_creation
        )
        self.timers = Timers()
        self.components: list[Component] = []
        self.on_metadata: list[Callable[[], None]] = []
        """Called after each update of the metadata."""
        self.completions: deque[Callable[[], None]] = deque()
        """Calls into the application that are due; the driver makes them, in order, when the client is at rest."""
        self._rng = rng or random.Random()
        self.connections = ClusterConnections(
            settings.connection, on_ready=self._connection_ready, on_lost=self._connection_lost, rng=self._rng
        )
        self._unsent: list[ClientRequest] = []
        """Requests to any broker, while none is ready."""
        self._ever_connected = False
        self._unsent_since = now
        self._unreached: set[int] = set()
        """Node ids that were tried in vain since then."""
        self._attempts: list[Attempt] = []
        """Attempts to connect that failed since a connection was ready last."""
        self._report_at = NEVER
        """When the user is told that no broker is reachable."""
        self._reported = False
        """Whether the user was told, since a connection was ready last."""
        self._metadata_updater = MetadataUpdater(self, self.metadata, now)
        self._coordinators = Coordinators(self, self.metadata)
        self._features: dict[str, int] = {}
        self._features_epoch = -1

    # --- requests ---------------------------------------------------------------------------------------------------

    def send(self, request: ClientRequest, target: Target) -> None:
        """Sends the request once. `request.done` is called when it ends, perhaps before this returns."""
        if self.closed:
            request.done(None, ClientClosed("the client is closed"))
            return
        self._metadata_updater.active = True
        if isinstance(target, Node):
            node_id, role = target
        elif isinstance(target, Coordinator):
            coordinator_id = self._coordinators.node_id(target)
            if coordinator_id is None:
                self._coordinators.look_up(target, request)
                return
            node_id, role = coordinator_id, COORDINATOR_ROLE
        elif target is CONTROLLER and self.metadata.cluster.controller_id in self.metadata.cluster.brokers:
            node_id, role = self.metadata.cluster.controller_id, 0
        else:
            if target is CONTROLLER:
                self.metadata.request_update()  # brokers pass on what is the controller's, or say NOT_CONTROLLER
            self._send_to_any(request)
            return
        broker = self.metadata.cluster.brokers.get(node_id)
        if broker is None:
            self.metadata.request_update()
            error = connection_lost(f"broker {node_id}", "request", "the cluster does not list this broker")
            request.done(None, error)
            return
        node = self.connections.node(node_id, role, broker.host, broker.port)
        self.connections.open(node, self.now).send(request, self.now)

    def ready(self, target: Node) -> bool:
        """Whether a request would leave at once. If not, a connection is opened, or what is in the way waited for: the
        backoff, a quota, a socket that is full."""
        broker = self.metadata.cluster.brokers.get(target.node_id)
        if broker is None:
            self.metadata.request_update()
            return False
        self._metadata_updater.active = True
        node = self.connections.node(target.node_id, target.role, broker.host, broker.port)
        return self.connections.open(node, self.now).takes(self.now)

    @property
    def has_in_flight_requests(self) -> bool:
        """Whether a socket may become ready: a request is in flight on it, it is being opened, or it was full."""
        return self.connections.has_in_flight_requests

    def _send_to_any(self, request: ClientRequest) -> None:
        ready = [node for node in self.connections if _takes_any_request(node)]
        if ready:
            best = min(ready, key=lambda node: (node.node_id < 0, node.role, node.in_flight))
            self.connections.open(best, self.now).send(request, self.now)
            return
        request.expires = self.now + (request.timeout_s or self.settings.connection.request_timeout_s)
        if not self._unsent:
            self._unsent_since = self.now
            if not self._reported:
                self._report_at = min(self._report_at, self.now + REPORT_AFTER_S)
        self._unsent.append(request)
        self._connect_to_any()

    def _connect_to_any(self) -> None:
        """Opens a connection to one broker at a time: to known ones first, then to the bootstrap addresses."""
        if not self._unsent or any(node.number and not node.ready for node in self.connections if node.role == 0):
            return
        brokers = [(broker.node_id, broker.host, broker.port) for broker in self.metadata.cluster.brokers.values()]
        bootstrap = [(BOOTSTRAP - i, *address) for i, address in enumerate(self.settings.bootstrap)]
        if brokers and not self.settings.rebootstrap:
            bootstrap.clear()
        self._rng.shuffle(brokers)
        self._rng.shuffle(bootstrap)
        nodes = [self.connections.node(node_id, 0, host, port) for node_id, host, port in (*brokers, *bootstrap)]
        gives_up_at = self._unsent_since + self.settings.bootstrap_timeout_s
        if (
            not self._ever_connected
            and self.now >= gives_up_at
            and all(node.node_id in self._unreached for node in nodes)
        ):
            self._fail_unsent(self.unreachable())
            return
        # the first whose backoff is over, else the one whose backoff ends first
        self.connections.open(min(nodes, key=lambda node: max(node.backoff_until, self.now)), self.now)

    def _fail_unsent(self, error: Error) -> None:
        unsent, self._unsent = self._unsent, []
        self._unreached.clear()
        for request in unsent:
            request.done(None, error)

    def unreachable(self) -> BrokerUnreachable:
        """Returns an error with the attempts to connect since a connection was ready last."""
        attempts = tuple(self._attempts)
        hint = next((attempt.hint for attempt in reversed(attempts) if attempt.hint), "")
        latest = {attempt.address: attempt for attempt in (*self.connections.connecting(), *attempts)}
        text = "; ".join(map(str, latest.values())) + (f" ({hint})" if hint else "")
        return BrokerUnreachable(f"no broker reachable: {text or 'no address was tried yet'}", attempts)

    # --- coordinators -----------------------------------------------------------------------------------------------

    def coordinator(self, target: Coordinator) -> int | None:
        """Returns the node id of the coordinator that was found last."""
        return self._coordinators.node_id(target)

    def is_coordinator_reachable(self, target: Coordinator) -> bool:
        """Whether the coordinator is known and the last connection to it did not fail."""
        node_id = self._coordinators.node_id(target)
        node = None if node_id is None else self.connections.get(node_id, COORDINATOR_ROLE)
        return node_id is not None and (node is None or node.ready or not node.failures)

    def forget_coordinator(self, target: Coordinator) -> None:
        """Has the coordinator looked up again for the next request."""
        self._coordinators.forget(target)

    # --- features ---------------------------------------------------------------------------------------------------

    def feature(self, name: str) -> int:
        """Returns the finalized level of a feature, by the last response that had it; 0 without it."""
        return self._features.get(name, 0)

    # --- metadata ---------------------------------------------------------------------------------------------------

    def add_topics(self, topics: Iterable[str]) -> None:
        """Keeps the metadata of these topics fresh from now on."""
        self._metadata_updater.add_topics(topics)

    def refresh_metadata(self) -> Promise[None]:
        """Requests an update. The promise is settled with a response that was asked for after this call."""
        return self._metadata_updater.refresh()

    def topic(self, name: str, timeout_s: float) -> Promise[TopicView]:
        """Returns the topic, asked for if need be; see `MetadataUpdater.topic`."""
        return self._metadata_updater.topic(name, timeout_s)

    def metadata_updated(self) -> None:
        """Closes connections to addresses that brokers no longer have, and calls the listeners."""
        brokers = self.metadata.cluster.brokers
        for node in list(self.connections):
            broker = brokers.get(node.node_id)
            if broker is not None:
                self.connections.node(node.node_id, node.role, broker.host, broker.port)
        for listener in self.on_metadata:
            listener()

    def rebootstrap(self, error: Error) -> None:
        """Closes every connection and begins again from the bootstrap addresses."""
        self._metadata_updater.restart()
        self.metadata.rebootstrap()
        self._coordinators.clear()
        self.connections.drop_all(error)

    # --- time and connections ---------------------------------------------------------------------------------------

    def backoff_s(self, failures: int) -> float:
        """Returns the pause after so many failures in a row, with jitter; 0 after none."""
        settings = self.settings
        return exponential_backoff(failures, settings.retry_backoff_s, settings.retry_backoff_max_s, self._rng)

    def at(self, when: float, action: Callable[[], None]) -> Timer:
        return self.timers.at(when, action)

    def _connection_ready(self, node: NodeConnection) -> None:
        self._attempts.clear()
        self._report_at, self._reported = NEVER, False
        self._ever_connected = True
        versions = node.connection.api_versions if node.connection is not None else None
        if versions is not None and versions.finalized_features_epoch > self._features_epoch:
            self._features_epoch = versions.finalized_features_epoch
            self._features = {feature.name: feature.max_version_level for feature in versions.finalized_features}
        if _takes_any_request(node):
            unsent, self._unsent = self._unsent, []
            for request in unsent:
                self.connections.open(node, self.now).send(request, self.now)

    def _connection_lost(self, node: NodeConnection, error: Error) -> None:
        self._attempts += node.attempts
        del self._attempts[:-ATTEMPTS_KEPT]
        if not self.closed:
            self.metadata.request_update()
        self._unreached.add(node.node_id)
        if isinstance(error, KafkaError) and not error.retriable:
            self._fail_unsent(error)  # wrong credentials are wrong at every broker

    def advance(self, now: float) -> None:
        """Does what is due. The driver calls it after everything that happens, and at the deadline."""
        self.now = now = max(now, self.now)
        self.timers.run(now)
        self.connections.advance(now)
        updater = self._metadata_updater
        if self.settings.rebootstrap and updater.has_failed_for(self.settings.rebootstrap_trigger_s):
            self.rebootstrap(ConnectionLost("no broker gave metadata: the client begins again from bootstrap.servers"))
        if self._unsent:
            self._expire_unsent()
            self._connect_to_any()
        if self._report_at <= now:
            self._report_at, self._reported = NEVER, True
            report = self.settings.on_unreachable
            if report is not None:
                self.completions.append(partial(report, self.unreachable()))
        if updater.next_update_at(now) <= now:
            updater.send_request()
        for component in self.components:
            component.advance(now)

    def _expire_unsent(self) -> None:
        expired = [request for request in self._unsent if request.expires <= self.now]
        if expired:
            self._unsent = [request for request in self._unsent if request.expires > self.now]
            unreachable = self.unreachable()
            for request in expired:
                # retriable, unlike BrokerUnreachable: a broker may come up later
                request.done(None, ConnectionLost(str(unreachable), unreachable.attempts))

    def next_deadline(self) -> float:
        """Returns when `advance` has something to do even if nothing happens."""
        due: float = min(
            self.timers.next_deadline(),
            self.connections.next_deadline(),
            self._metadata_updater.next_update_at(self.now),
            self._report_at,
        )
        for request in self._unsent:
            due = min(due, request.expires)
        for component in self.components:
            due = min(due, component.next_deadline())
        return due

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Fails everything in flight with ClientClosed; `connections.take_closes` names the sockets to close."""
        self.closed = True
        error = ClientClosed("the client is closed")
        self._fail_unsent(error)
        self.connections.drop_all(error)
        self._metadata_updater.close(error)

    def reset(self, error: ClientError) -> None:
        """Drops every connection; what was in flight fails with `error` and may be sent again."""
        self.connections.drop_all(error)
