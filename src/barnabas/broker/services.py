"""The parts of a broker that its handlers and periodic tasks use. `server.Broker` makes and holds them."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.broker.cleaner.log_cleaner import LogCleaner
from barnabas.broker.connections.advertised_addresses import NamedBroker
from barnabas.broker.controller_thread import ControllerThread
from barnabas.broker.fetch_sessions import FetchSessionCache
from barnabas.broker.process.failure_log import FailureLog
from barnabas.broker.produce.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from barnabas.broker.produce.batch_validator import BatchValidator
from barnabas.broker.produce.produce_queues import ProduceQueues
from barnabas.broker.purgatory import DelayedOperationPurgatory
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import SlicedResponses
from barnabas.clock import Clock
from barnabas.config.broker import BrokerConfig
from barnabas.config.endpoints import Endpoint
from barnabas.coordinator.group.group_coordinator import GroupCoordinator
from barnabas.coordinator.transaction.producer_id_manager import ProducerIdManager
from barnabas.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from barnabas.errors import KafkaError
from barnabas.log.log_manager import LogManager
from barnabas.metadata.image import MetadataImage, TopicImage
from barnabas.network.connection import Parts, PendingReply, RequestConnection
from barnabas.network.time_slicing import TimeSlicer
from barnabas.replication.replica import IsrChange
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.types import BrokerId

if TYPE_CHECKING:
    from barnabas.broker.cluster.follower_fetch_sessions import FollowerFetchSessions
    from barnabas.broker.log_dir_moves import LogDirMoves
    from barnabas.broker.peers.identity import PeerIdentity
    from barnabas.broker.peers.peer_connections import PeerConnections
    from barnabas.metadata.refused_broker import RefusedBroker
    from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
    from barnabas.protocol.peer_messages.push_metadata import PushMetadataRequest

__all__ = ["BrokerServices"]


class RequestDispatcher(Protocol):
    """Handles the requests of clients, also those that another broker forwards."""

    def read_header(self, connection: RequestConnection, frame: memoryview) -> tuple[RequestContext, int]:
        """Returns the context of a request and the position of its body. Raises BarnabasError if the request is
        malformed or not served."""

    def handle(self, context: RequestContext, frame: memoryview, position: int) -> Parts | PendingReply:
        """Handles the request whose body starts at `position`."""


class Membership(Protocol):
    """The broker's part in a cluster of several brokers."""

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, by its own image."""

    @property
    def registry_loss(self) -> str:
        """The reason for which brokers that start would not find the registry; '' if they would."""

    def refused_brokers(self) -> "list[RefusedBroker]":
        """Returns those that this broker has refused lately, because they do not belong to the cluster."""

    def note_refused(self, identity: "PeerIdentity", host: str, problem: str) -> None:
        """Remembers a broker that does not belong to the cluster, for `refused_brokers`."""

    def joined(self) -> "asyncio.Future[None]":
        """Returns a future that is done when the controller has taken this broker in: it may lead then."""

    def election(self) -> "asyncio.Future[None] | None":
        """Returns a future that is done when a broker that has just died is fenced, and others lead its partitions;
        None if there is none."""

    def may_be_replaced(self) -> bool:
        """Returns whether other brokers may lead in place of this one without its knowledge, because its process stood
        still, or it is cut off."""

    def was_live(self, node_id: BrokerId) -> bool:
        """Returns whether a fenced broker was live a few seconds ago."""

    def forward(self, frame: memoryview, context: RequestContext) -> Coroutine[Any, Any, Parts]:
        """Returns a coroutine of the controller's response to a client's request. It raises NotController if this
        broker has become the controller, and another KafkaError if there is no response."""

    async def receive(self, request: "PushMetadataRequest") -> int:
        """Takes over a part of an update from the controller, and returns the version of the image afterwards. Raises
        StaleControllerEpoch; InconsistentClusterId for the controller of a copy; and RegistryUnavailable."""

    async def answer_heartbeat(self, request: "BrokerHeartbeatRequest") -> "BrokerHeartbeatResponse":
        """Answers the heartbeat of another broker, as the controller. Raises KafkaError."""


class BrokerServices(Protocol):
    """All methods are called on the event loop's thread."""

    config: BrokerConfig
    """The settings as they are now: a dynamic change replaces the whole object."""
    loop: asyncio.AbstractEventLoop
    clock: Clock
    log: logging.Logger
    failures: FailureLog
    node_id: BrokerId
    cluster_id: str
    endpoints: tuple[Endpoint, ...]
    time_slicer: TimeSlicer
    sliced_responses: SlicedResponses
    purgatory: DelayedOperationPurgatory
    produce_queues: ProduceQueues
    add_partitions_to_txn: AddPartitionsToTxnManager
    batch_validator: BatchValidator
    fetch_sessions: FetchSessionCache
    metadata_cache: dict[tuple[int, int], dict[str, tuple[TopicImage, bytes]]]
    """The encoded topics of Metadata responses, by version and requested operations."""
    log_manager: LogManager
    log_cleaner: LogCleaner
    replica_manager: ReplicaManager
    controller: ControllerThread
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    producer_ids: ProducerIdManager

    @property
    def dispatcher(self) -> RequestDispatcher:
        """Handles the requests of clients."""

    @property
    def cluster(self) -> "Membership | None":
        """This broker's membership in a cluster of several; None for one broker alone."""

    @property
    def peers(self) -> "PeerConnections | None":
        """The connections to the other brokers of the cluster; None for one broker alone."""

    def check_registry(self) -> None:
        """Has the controller look for changes that others have written to the registry. Called periodically."""

    @property
    def log_dir_moves(self) -> "LogDirMoves":
        """Moves replicas between the data directories."""

    @property
    def follower_fetch_sessions(self) -> "FollowerFetchSessions":
        """The fetch sessions of the followers on other brokers."""

    def end(self, reason: str) -> None:
        """Ends this broker by itself, without leaving the cluster."""

    def submit_isr_change(self, change: IsrChange) -> None:
        """Sends a change of an ISR to the controller, and tells the partition the outcome."""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata that this broker has."""

    async def auto_create_topics(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Creates missing topics, by the controller. Returns the errors of those that cannot be created."""

    def advertised_brokers(self, connection: RequestConnection, *, include_fenced: bool = False) -> list[NamedBroker]:
        """Returns the live brokers with the addresses that a client of this connection is told."""
