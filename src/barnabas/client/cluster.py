"""A view of the cluster: brokers, leaders, coordinators; one connection to each; retries that refresh the view first.

`Cluster("127.0.0.1:9092")` connects at its first use. Bootstrap addresses are tried once each; if none leads to a
broker, the error lists every attempt, so that a command fails at once and says why.
"""

import random
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar
from uuid import UUID

from barnabas.client.connection import Connection
from barnabas.client.core.addresses import parse_bootstrap
from barnabas.client.core.views import Broker, ClusterView, TopicView, brokers_of, topic_view
from barnabas.client.deadline import Deadline
from barnabas.client.errors import (
    Attempt,
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    OperationTimedOut,
    TopicNotFound,
)
from barnabas.errors import (
    BarnabasError,
    KafkaError,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
    error_for,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.schema import Request

__all__ = ["DEFAULT_TIMEOUT_S", "Cluster"]

DEFAULT_TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 10.0
BACKOFF_FIRST_S: Final = 0.02
BACKOFF_MAX_S: Final = 1.0
ATTEMPTS_KEPT: Final = 20
"""Tries that an error remembers: the last ones."""
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
"""FindCoordinator's kinds of keys."""

T = TypeVar("T")


class Cluster:
    """Brokers, connections and retries behind one object. Not for use by several threads at once."""

    def __init__(
        self,
        bootstrap: str | Iterable[str] = "127.0.0.1:9092",
        *,
        client_id: str = "barnabas",
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self.bootstrap = parse_bootstrap(bootstrap)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.view = ClusterView(None, -1, {}, {})
        self._connections: dict[int, Connection] = {}
        self._first: Connection | None = None
        """The bootstrap connection; it serves until the brokers are known, and Metadata after that."""
        self._coordinators: dict[tuple[int, str], Broker] = {}

    # --- connections ------------------------------------------------------------------------------------------------

    def any_connection(self, deadline: Deadline | None = None) -> Connection:
        """An open connection to some broker. Raises BrokerUnreachable with every attempt."""
        if self._first is not None and self._first.is_open:
            return self._first
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        deadline = deadline or Deadline(self.timeout_s)
        known = [(broker.host, broker.port) for broker in self.view.brokers.values()]
        addresses = list(dict.fromkeys([*self.bootstrap, *known]))
        attempts: list[Attempt] = []
        for index, (host, port) in enumerate(addresses):
            share = max(deadline.remaining() / (len(addresses) - index), 0.05)
            try:
                self._first = self._open(host, port, share)
            except ConnectionLost as error:
                attempts += error.attempts
                continue
            return self._first
        hint = next((attempt.hint for attempt in attempts if attempt.hint), "")
        text = "; ".join(map(str, attempts)) + (f" ({hint})" if hint else "")
        raise BrokerUnreachable(f"no broker reachable: {text}", tuple(attempts))

    def connection(self, node_id: int, deadline: Deadline | None = None) -> Connection:
        """The shared connection to a broker of the view, for one request at a time. Raises ConnectionLost."""
        connection = self._connections.get(node_id)
        if connection is not None and connection.is_open:
            return connection
        connection = self._connections[node_id] = self.open_connection(node_id, deadline)
        return connection

    def open_connection(self, node_id: int, deadline: Deadline | None = None) -> Connection:
        """A connection of one's own, which the caller closes: for pipelined requests and long polls."""
        if node_id not in self.view.brokers:
            self.refresh((), deadline=deadline)
        broker = self.view.brokers.get(node_id)
        if broker is None:
            attempt = Attempt(f"broker {node_id}", "request", "the cluster does not list this broker", "")
            raise ConnectionLost(str(attempt), (attempt,))
        left = self.timeout_s if deadline is None else deadline.remaining()
        try:
            return self._open(broker.host, broker.port, max(left, 0.05))
        except ConnectionLost as error:
            what = f"broker {node_id} advertises {broker.host}:{broker.port}, which is not reachable from here"
            raise ConnectionLost(f"{what}: {error}", error.attempts) from None

    def _open(self, host: str, port: int, timeout_s: float) -> Connection:
        return Connection.open(host, port, client_id=self.client_id, timeout_s=min(timeout_s, CONNECT_TIMEOUT_S))

    def close(self) -> None:
        """Close every connection; the cluster may be used again."""
        if self._first is not None:
            self._first.close()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- metadata ---------------------------------------------------------------------------------------------------

    def refresh(
        self,
        topics: Collection[str] | None = (),
        *,
        allow_auto_topic_creation: bool = False,
        deadline: Deadline | None = None,
    ) -> ClusterView:
        """Ask for brokers and `topics` (None: all of them); the new view. Topics that are gone or unknown leave it."""
        deadline = deadline or Deadline(self.timeout_s)
        connection = self.any_connection(deadline)
        version = connection.version_of(MetadataRequest)
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        if version == 0 and wanted is None:
            wanted = []  # version 0 has no null: an empty list means all there
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=allow_auto_topic_creation)
        response: MetadataResponse = connection.call(request, deadline, version=version)
        self._take_in(response, topics)
        return self.view

    def _take_in(self, response: MetadataResponse, topics: Collection[str] | None) -> None:
        brokers = brokers_of(response)
        for node_id in [*self._connections]:
            if self.view.brokers.get(node_id) != brokers.get(node_id):
                self._connections.pop(node_id).close()  # it moved: the next use connects to the new address
        known = {} if topics is None else {name: t for name, t in self.view.topics.items() if name not in topics}
        known |= {topic.name: topic_view(topic) for topic in response.topics if topic.name}
        self.view = ClusterView(response.cluster_id, response.controller_id, brokers, known)

    def topic(self, name: str, *, deadline: Deadline | None = None, create: bool = False) -> TopicView:
        """A topic with a leader for every partition, asked for if the view does not have it.

        Raises UnknownTopicOrPartition at once if the cluster does not know it (with `create`, after the broker had
        time to make it), InvalidTopic, TopicAuthorizationFailed, LeaderNotAvailable when the deadline passes.
        """
        deadline = deadline or Deadline(self.timeout_s)
        if self._is_ready(name):
            return self.view.topics[name]
        pause = BACKOFF_FIRST_S
        creation = deadline.at_most(3.0)
        while True:
            self.refresh([name], allow_auto_topic_creation=create, deadline=deadline)
            if self._is_ready(name):
                return self.view.topics[name]
            error = self._why_not(name)
            patience = creation if create and isinstance(error, UnknownTopicOrPartition) else deadline
            if isinstance(error, UnknownTopicOrPartition) and not create:
                raise TopicNotFound(str(error))
            if not error.retriable or patience.remaining() <= pause:
                raise error
            deadline.pause(pause)
            pause = min(pause * 2, BACKOFF_MAX_S)

    def _is_ready(self, name: str) -> bool:
        topic = self.view.topics.get(name)
        if topic is None or topic.error_code or not topic.partitions:
            return False
        return all(partition.leader >= 0 for partition in topic.partitions.values())

    def _why_not(self, name: str) -> KafkaError:
        topic = self.view.topics.get(name)
        if topic is None or topic.error_code == UnknownTopicOrPartition.code:
            return UnknownTopicOrPartition(f"topic {name!r} does not exist")
        if topic.error_code:
            return error_for(topic.error_code, f"topic {name!r}: {type(error_for(topic.error_code)).kafka_name}")
        return LeaderNotAvailable(f"topic {name!r} has a partition without a leader")

    def leader(self, topic: str, partition: int, *, deadline: Deadline | None = None) -> int:
        """The node id of a partition's leader. Raises as `topic`, and UnknownTopicOrPartition for the partition."""
        view = self.topic(topic, deadline=deadline).partitions.get(partition)
        if view is None:
            count = len(self.view.topics[topic].partitions)
            raise TopicNotFound(f"topic {topic!r} has partitions 0 to {count - 1}, there is no partition {partition}")
        return view.leader

    def topic_id(self, name: str) -> UUID:
        return self.view.topics[name].topic_id

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((topic.name for topic in self.view.topics.values() if topic.topic_id == topic_id), None)

    def forget(self, topics: Iterable[str]) -> None:
        """The view of these topics is stale: ask again before the next use."""
        for name in topics:
            self.view.topics.pop(name, None)

    # --- coordinators -----------------------------------------------------------------------------------------------

    def coordinator(self, key: str, deadline: Deadline | None = None, *, key_type: int = GROUP_KEY) -> Connection:
        """A connection to the coordinator of a group or of another kind of key; the answer is remembered."""
        from barnabas.client.coordinators import find_coordinator

        deadline = deadline or Deadline(self.timeout_s)
        broker = self._coordinators.get((key_type, key))
        if broker is None:
            broker = find_coordinator(self.any_connection(deadline), key, key_type, deadline)
            self._coordinators[key_type, key] = broker
        if self.view.brokers.get(broker.node_id) != broker:
            brokers = self.view.brokers | {broker.node_id: broker}
            self.view = self.view._replace(brokers=brokers)
        return self.connection(broker.node_id, deadline)

    def coordinator_id(self, key: str, *, key_type: int = GROUP_KEY) -> int:
        """The node id of the coordinator that answered last; -1 if none did."""
        broker = self._coordinators.get((key_type, key))
        return -1 if broker is None else broker.node_id

    def forget_coordinator(self, key: str, *, key_type: int = GROUP_KEY) -> None:
        self._coordinators.pop((key_type, key), None)

    # --- retries ----------------------------------------------------------------------------------------------------

    def retrying(
        self,
        operation: Callable[[Deadline], T],
        *,
        before_retry: Callable[[BarnabasError], None] | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """Run `operation` until it returns or raises what a retry cannot mend; waits 20 ms to 1 s between tries.

        What KafkaError calls retriable and lost connections are tried again, after `before_retry` (which refreshes what
        was stale). Raises OperationTimedOut with the tries at the deadline, or the last KafkaError.
        """
        deadline = Deadline(self.timeout_s if timeout_s is None else timeout_s)
        attempts: list[Attempt] = []
        pause = BACKOFF_FIRST_S
        while True:
            try:
                return operation(deadline)
            except (KafkaError, ClientError) as error:
                if not self._may_pass(error):
                    raise
                attempts += error.attempts if isinstance(error, ClientError) else [_as_attempt(error)]
                del attempts[:-ATTEMPTS_KEPT]
                if deadline.remaining() <= pause:
                    if isinstance(error, KafkaError):
                        raise
                    text = f"gave up after {deadline.seconds:g} s: {error}"
                    raise OperationTimedOut(text, tuple(attempts)) from error
                deadline.pause(pause * random.uniform(0.8, 1.2))
                pause = min(pause * 2, BACKOFF_MAX_S)
                if before_retry is not None:
                    before_retry(error)

    def _may_pass(self, error: KafkaError | ClientError) -> bool:
        # who never met a broker has a wrong address; who did may wait for its restart
        return error.retriable or (isinstance(error, BrokerUnreachable) and bool(self.view.brokers))

    def call(self, request: Request, *, deadline: Deadline | None = None, node_id: int | None = None) -> Any:
        """One request to a node (None: any broker), no retries."""
        deadline = deadline or Deadline(self.timeout_s)
        connection = self.any_connection(deadline) if node_id is None else self.connection(node_id, deadline)
        return connection.call(request, deadline)

    def call_coordinator(
        self, key: str, request: Request, *, check: Callable[[Any], int] | None = None, key_type: int = GROUP_KEY
    ) -> Any:
        """One request to the coordinator of a group or of another kind of key, found again when it moved or loads.

        `check` takes the error code out of the response; a retriable code is tried again, another one is the caller's.
        """

        def once(deadline: Deadline) -> Any:
            response = self.coordinator(key, deadline, key_type=key_type).call(request, deadline)
            error = error_for(check(response)) if check is not None and check(response) else None
            if error is not None and error.retriable:
                raise error
            return response

        return self.retrying(once, before_retry=lambda _: self.forget_coordinator(key, key_type=key_type))


def _as_attempt(error: KafkaError) -> Attempt:
    return Attempt("broker", "request", f"{error.kafka_name}: {error}", "")
