"""The network client of a producer, consumer or administrator: sends requests to brokers, keeps metadata, runs timers.

The client does no I/O. A driver reports events to its `connections` (`connected`, `received`, `lost`), calls `advance`,
and does the I/O that the connections ask for (`take_connects`, `take_output`, `take_closes`); `next_deadline` says when
to call `advance` again. Producer and consumer are components: `advance` gives each its turn after every event. Requests
end in callbacks, which are called from inside these methods; they may send further requests.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, Protocol

from barnabas.connection.broker.broker_connection import API_VERSIONS_LAST
from barnabas.connection.broker.client_request import API_VERSIONS, ClientRequest, Error, connection_lost
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
from barnabas.connection.timers import NEVER, Timer, Timers, exponential_backoff, spelled
from barnabas.errors import (
    Attempt,
    BootstrapResolutionFailed,
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    ConnectionLost,
    KafkaError,
    WrongBroker,
)
from barnabas.types import BrokerId

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
"""The time that requests wait for any broker before the user gets a report; a broker's restart takes less."""


class NetworkClientSettings(NamedTuple):
    """The settings of the network client, in seconds."""

    bootstrap: tuple[tuple[str, int], ...]
    connection: ConnectionSettings = ConnectionSettings()
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0
    metadata_max_age_s: float = 300.0
    rebootstrap: bool = True
    """Whether the bootstrap addresses are tried again when no known broker can be reached (KIP-899)."""
    rebootstrap_trigger_s: float = 300.0
    """The time without metadata from known brokers after which the bootstrap addresses are tried again (KIP-1102)."""
    allow_auto_topic_creation: bool = True
    cluster_check: bool = True
    """Whether brokers are told which broker of which cluster is meant, so that a wrong one says so (KIP-1242)."""
    bootstrap_resolve_timeout_s: float = NEVER
    """The time from the first request on to resolve a name of the bootstrap addresses (KIP-909)."""
    bootstrap_timeout_s: float = NEVER
    """The time to reach a first broker. Each bootstrap address is tried once at least."""
    on_unreachable: Callable[[BrokerUnreachable], None] | None = None
    """The application's callback for each period of more than REPORT_AFTER_S in which no broker can be reached."""


class Component(Protocol):
    """A state machine that uses the network client: a producer or a consumer."""

    def advance(self, now: float) -> None:
        """Does the work that is due. Called after every event."""

    def next_deadline(self) -> float:
        """Returns when to call `advance` even without an event."""


def _takes_any_request(node: NodeConnection) -> bool:
    """Whether the connection may carry requests to any broker. A connection whose requests a broker may hold does not:
    a coordinator may hold a JoinGroup for minutes."""
    return node.ready and (node.role == 0 or (node.role == COORDINATOR_ROLE and not node.in_flight))


class NetworkClient:
    """Sends requests. Only one thread at a time may use a network client; the drivers ensure that."""

    def __init__(self, settings: NetworkClientSettings, now: float, rng: random.Random | None = None) -> None:
        self.settings = settings
        self.now = now
        """The current time. Drivers set it before each call of the network client, its connections or its
        components."""
        self.closed = False
        self.metadata = Metadata(
            max_age_s=settings.metadata_max_age_s, allow_auto_topic_creation=settings.allow_auto_topic_creation
        )
        self.timers = Timers()
        self.components: list[Component] = []
        self.on_metadata: list[Callable[[], None]] = []
        """The listeners that are called after each update of the metadata."""
        self.completions: deque[Callable[[], None]] = deque()
        """Callbacks of the application that are due; the driver calls them, in order, after its turn."""
        self._rng = rng or random.Random()
        self.connections = ClusterConnections(
            settings.connection, on_ready=self._connection_ready, on_lost=self._connection_lost, rng=self._rng
        )
        self._unsent: list[ClientRequest] = []
        """Requests to any broker that wait for a ready connection."""
        self._ever_connected = False
        self._unsent_since = now
        self._resolve_until = NEVER
        """The time at which no request waits any longer for a first name to be resolved."""
        self._unreached: set[int] = set()
        """The ids of the nodes whose connections failed since a connection was ready last."""
        self._attempts: list[Attempt] = []
        """The attempts to connect that failed since a connection was ready last."""
        self._report_at = NEVER
        """The time of the report that no broker is reachable."""
        self._reported = False
        """Whether the report was made since a connection was ready last."""
        self._metadata_updater = MetadataUpdater(self, self.metadata, now)
        self._coordinators = Coordinators(self, self.metadata)
        self._features: dict[str, int] = {}
        self._features_epoch = -1
        self._is_checked = False
        """Whether brokers are asked if they are the ones that are meant: the last one could have been."""

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
                self.metadata.request_update()  # a broker forwards the request, or answers NOT_CONTROLLER
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
        """Whether a request would be written at once. Otherwise the client opens a connection, or the request would
        wait for the backoff, a quota or a full socket."""
        broker = self.metadata.cluster.brokers.get(target.node_id)
        if broker is None:
            self.metadata.request_update()
            return False
        self._metadata_updater.active = True
        node = self.connections.node(target.node_id, target.role, broker.host, broker.port)
        return self.connections.open(node, self.now).takes(self.now)

    @property
    def has_in_flight_requests(self) -> bool:
        """Whether a socket may become ready: a request is in flight on the socket, it is being opened, or it was
        full."""
        return self.connections.has_in_flight_requests

    def _send_to_any(self, request: ClientRequest) -> None:
        ready = [node for node in self.connections if _takes_any_request(node)]
        if ready:
            best = min(ready, key=lambda node: (node.node_id < 0, node.role, node.in_flight))
            self.connections.open(best, self.now).send(request, self.now)
            return
        request.expires = self.now + (request.timeout_s or self.settings.connection.request_timeout_s)
        if self._resolve_until == NEVER:
            self._resolve_until = self.now + self.settings.bootstrap_resolve_timeout_s
        if not self._unsent:
            self._unsent_since = self.now
            if not self._reported:
                self._report_at = min(self._report_at, self.now + REPORT_AFTER_S)
        self._unsent.append(request)
        self._connect_to_any()

    def _connect_to_any(self) -> None:
        """Opens a connection to one broker at a time: to known brokers first, then to the bootstrap addresses."""
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
        # the first node whose backoff is over, else the node whose backoff ends first
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

    def coordinator(self, target: Coordinator) -> BrokerId | None:
        """Returns the node id of the coordinator that was found last."""
        return self._coordinators.node_id(target)

    def is_coordinator_reachable(self, target: Coordinator) -> bool:
        """Whether the coordinator is known and the last connection to it did not fail."""
        node_id = self._coordinators.node_id(target)
        node = None if node_id is None else self.connections.get(node_id, COORDINATOR_ROLE)
        return node_id is not None and (node is None or node.ready or not node.failures)

    def forget_coordinator(self, target: Coordinator) -> None:
        """Drops the coordinator, so that the next request looks it up again."""
        self._coordinators.forget(target)

    # --- features ---------------------------------------------------------------------------------------------------

    def feature(self, name: str) -> int:
        """Returns the finalized level of a feature in the last response that had the feature, 0 without one."""
        return self._features.get(name, 0)

    # --- metadata ---------------------------------------------------------------------------------------------------

    def add_topics(self, topics: Iterable[str]) -> None:
        """Keeps the metadata of these topics fresh from now on."""
        self._metadata_updater.add_topics(topics)

    def refresh_metadata(self) -> Promise[None]:
        """Requests an update. The promise is settled by the response to a request that is sent after this call."""
        return self._metadata_updater.refresh()

    def topic(self, name: str, timeout_s: float) -> Promise[TopicView]:
        """Returns the topic, which is requested if it is unknown; see `MetadataUpdater.topic`."""
        return self._metadata_updater.topic(name, timeout_s)

    def metadata_updated(self) -> None:
        """Closes connections to addresses that brokers no longer have, and calls the listeners."""
        brokers = self.metadata.cluster.brokers
        if self._is_checked:
            self.connections.cluster_id = self.metadata.cluster.cluster_id
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
        """Returns the pause after this number of failures in a row, with jitter; 0 after none."""
        settings = self.settings
        return exponential_backoff(failures, settings.retry_backoff_s, settings.retry_backoff_max_s, self._rng)

    def at(self, when: float, action: Callable[[], None]) -> Timer:
        return self.timers.at(when, action)

    def _connection_ready(self, node: NodeConnection) -> None:
        self._attempts.clear()
        self._report_at, self._reported = NEVER, False
        self._ever_connected = True
        versions = node.connection.api_versions if node.connection is not None else None
        if node.connection is not None and self.settings.cluster_check and self.settings.rebootstrap:
            self._is_checked = node.connection.versions.get(API_VERSIONS, (0, 0))[1] >= API_VERSIONS_LAST
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
        if isinstance(error, WrongBroker) and not self.closed:
            self.rebootstrap(error)
        if isinstance(error, KafkaError) and not error.retriable:
            self._fail_unsent(error)  # wrong credentials are wrong at every broker

    def advance(self, now: float) -> None:
        """Does the work that is due. The driver calls this after every event, and at `next_deadline`."""
        self.now = now = max(now, self.now)
        self.timers.run(now)
        self.connections.advance(now)
        updater = self._metadata_updater
        if self.settings.rebootstrap and updater.has_failed_for(self.settings.rebootstrap_trigger_s):
            self.rebootstrap(ConnectionLost("no broker gave metadata: the client begins again from bootstrap.servers"))
        if self._unsent:
            if self._resolve_until <= now and not self.connections.has_resolved:
                self._fail_unsent(self._unresolved())
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

    def _unresolved(self) -> BootstrapResolutionFailed:
        seconds = spelled(self.settings.bootstrap_resolve_timeout_s)
        unreachable = self.unreachable()
        return BootstrapResolutionFailed(
            f"no name of bootstrap.servers was resolved within {seconds} (bootstrap.resolve.timeout.ms): {unreachable}",
            unreachable.attempts,
        )

    def _expire_unsent(self) -> None:
        expired = [request for request in self._unsent if request.expires <= self.now]
        if expired:
            self._unsent = [request for request in self._unsent if request.expires > self.now]
            unreachable = self.unreachable()
            for request in expired:
                # retriable, unlike BrokerUnreachable: a broker may come up later
                request.done(None, ConnectionLost(str(unreachable), unreachable.attempts))

    def next_deadline(self) -> float:
        """Returns when to call `advance` even without an event."""
        due: float = min(
            self.timers.next_deadline(),
            self.connections.next_deadline(),
            self._metadata_updater.next_update_at(self.now),
            self._report_at,
        )
        if self._unsent and not self.connections.has_resolved:
            due = min(due, self._resolve_until)
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
        """Drops every connection. Requests in flight fail with `error` and may be sent again."""
        self.connections.drop_all(error)
