"""One simulated Kafka cluster for the tests of clients: brokers that keep logs, coordinators, a clock that jumps from
timer to timer, and connections that a test may cut, delay and answer by hand.

`Cluster.run` lets everything happen at once and then jumps to the next deadline. Tests that want another order handle
single requests with `turn`, `answer`, `handle` and `cut`. `faults` and `handlers` say what becomes of requests.
The group coordinator and the fetch sessions are those of our broker.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid5

from barnabas.broker.fetch_sessions import FetchPartition, FetchSessionCache, wanted_partitions
from barnabas.connection.broker.cluster_connections import ConnectionSettings
from barnabas.connection.network_client import NetworkClient, NetworkClientSettings
from barnabas.connection.promise import Promise
from barnabas.errors import Attempt, KafkaError
from barnabas.protocol.apis import SERVED, ApiKey
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages import (
    api_versions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)
from barnabas.types import TopicPartition
from coordinator.group_rig import Rig, VirtualScheduler
from simulation.log import Log
from simulation.requests import ReceivedRequest, frame_response, read_request, refusal
from simulation.transaction_coordinator import TransactionCoordinator

Handler = Callable[[ReceivedRequest], Any]

SILENT: Final = object()
"""A handler's result for a request without a response; later requests of the connection get none either."""
LATER: Final = object()
"""A handler's result for a request that `Cluster.reply` answers later."""

# Faults: what becomes of a request instead. A number is an error code for all that it asks for.
CUT: Final = "cut"
"""The connection breaks before the request is handled."""
LOSE: Final = "lose"
"""The request is handled, and the connection breaks before the response is out."""
TWICE: Final = "twice"
"""The response comes twice."""


class Late(NamedTuple):
    """A fault: the request is handled, and the response takes its time."""

    seconds: float


class FetchFailed(NamedTuple):
    """A fault: a Fetch fails as a whole, not by partition."""

    code: int


UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_LEADER, NOT_COORDINATOR, UNSUPPORTED_VERSION = 3, 5, 6, 16, 35
OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_ID = 1, 74, 75, 100
EARLIEST, LATEST = -2, -1
EVENTS_MAX = 50_000
"""So much may happen at one moment of the virtual clock. A client that repeats a request without a pause does more."""
PREFERRED_REPLICA_FROM = 11
"""The first version of Fetch whose responses name a replica to read from."""


class Link:
    """One connection of a client to a broker, with the requests that the broker has not handled yet."""

    def __init__(self, client: "Client", number: int, node_id: int) -> None:
        self.client = client
        self.number = number
        self.node_id = node_id
        self.pending: deque[ReceivedRequest] = deque()
        self.busy = False
        """Whether a request is being handled: brokers handle one after the other."""
        self._buffer = b""

    def take(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < 4 + size:
                return
            frame, self._buffer = self._buffer[4 : 4 + size], self._buffer[4 + size :]
            received = read_request(self.node_id, frame)
            received.received_at, received.link = self.client.cluster.now, self
            self.pending.append(received)


class Client:
    """A network client and its connections."""

    def __init__(
        self, cluster: "Cluster", name: str, *, seed: int, connection: ConnectionSettings | None, **settings: Any
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.links: dict[int, Link] = {}
        self.connected: list[str] = []
        """The host of each attempt to connect."""
        self.network_client = NetworkClient(
            NetworkClientSettings((("boot", 9092),), connection or ConnectionSettings(), **settings),
            cluster.now,
            random.Random(seed),
        )

    def turn(self) -> bool:
        """Lets the network client act at this moment. Returns whether it did anything."""
        network_client, now = self.network_client, self.cluster.now
        network_client.advance(now)
        connections = network_client.connections
        connects, output, closes = connections.take_connects(), connections.take_output(), connections.take_closes()
        for order in connects:
            self.connected.append(order.host)
            node_id = min(self.cluster.up, default=0) if order.host == "boot" else int(order.host[1:])
            if node_id in self.cluster.up:
                self.links[order.number] = Link(self, order.number, node_id)
                connections.resolved()
                connections.connected(order.number, now)
            else:
                attempt = Attempt(f"{order.host}:{order.port}", "tcp", "connection refused", "is it running?")
                connections.lost(order.number, (attempt,), now)
        for number, buffers in output:
            if number in self.links:
                self.links[number].take(b"".join(buffers))
        for number in closes:
            self.links.pop(number, None)
        return bool(connects or output or closes)

    def cut(self, link: Link) -> None:
        """The connection breaks; requests that were not handled never are."""
        if self.links.pop(link.number, None) is not None:
            attempt = Attempt(f"n{link.node_id}:9092", "request", "connection reset by peer", "")
            self.network_client.now = self.cluster.now
            self.network_client.connections.lost(link.number, (attempt,), self.cluster.now)

    def crash(self) -> None:
        """The process is gone; its connections break."""
        self.cluster.clients.remove(self)
        self.links.clear()

    def count(self, api_key: int) -> int:
        """Returns the number of this client's requests that were handled."""
        return sum(
            received.api_key == api_key and received.link is not None and received.link.client is self
            for received in self.cluster.requests
        )


class Cluster:
    """Brokers 1 to `nodes` at hosts "n1", "n2" ...; the bootstrap address "boot" is any of them.

    `topics` are the numbers of partitions, whose leaders go round the nodes. `config` is that of the group coordinator.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        nodes: int = 1,
        session_slots: int = 1000,
        **config: Any,
    ) -> None:
        self.nodes = nodes
        self.up = set(range(1, nodes + 1))
        self.scheduler = VirtualScheduler()
        self.scheduler.now = 1000.0
        self.rig = Rig(scheduler=self.scheduler, **config)
        """The group coordinator."""
        self.topics = {name: {i: 1 + i % nodes for i in range(count)} for name, count in (topics or {}).items()}
        """Leaders by topic and partition; -1 for none."""
        self.topic_errors: dict[str, int] = {}
        self.topic_ids: dict[str, UUID] = {}
        """Those that are not made of the topic's name."""
        self.logs: dict[TopicPartition, Log] = {}
        self.versions = {key: (served.first, served.last) for key, served in SERVED.items()}
        self.coordinator = 1
        """The node that coordinates all groups and transactions."""
        self.sessions = {node: FetchSessionCache(session_slots, self.scheduler) for node in self.up}
        self.preferred_replicas: dict[TopicPartition, int] = {}
        """The replica that leaders name to consumers of the rack."""
        self.rack = ""
        self.racks: dict[int, str] = {}
        """The racks of nodes."""
        self.replicas: dict[TopicPartition, list[int]] = {}
        """The nodes with replicas of a partition, if not all have one."""
        self.readable_followers: set[int] = set()
        """Nodes that consumers can read from though they lead nothing, apart from preferred replicas."""
        self.follower_ends: dict[TopicPartition, int] = {}
        """The log end offset of followers that are behind."""
        self.names_leader = True
        """Whether an error of Fetch that a new leader explains comes with the new leader."""
        self.produce_errors: list[int] = []
        """Codes for the next partitions that are produced to, instead of writing."""
        self.produce_errors_after_write: list[int] = []
        self.next_producer_id = 1000
        self.first_producer_epoch = 0
        self.clients: list[Client] = []
        self.requests: list[ReceivedRequest] = []
        """Every request that was handled, in order."""
        self.faults: dict[int, deque[Any]] = {}
        """By API: what becomes of its next requests, whoever sends them."""
        self._responses: deque[tuple[Link, bytes]] = deque()
        """Responses under way."""
        self._waiting_fetches: list[ReceivedRequest] = []
        self._seeds = random.Random(0)
        groups = (
            ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
        )  # fmt: skip
        self.handlers: dict[int, Handler] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.FIND_COORDINATOR: self._find_coordinator,
            ApiKey.PRODUCE: self.produce,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
            ApiKey.FETCH: self._fetch,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self._offset_for_leader_epoch,
            **dict.fromkeys(groups, self._group),
        }
        self.transactions = TransactionCoordinator(self)

    @property
    def now(self) -> float:
        return self.scheduler.now

    def log(self, topic: str, partition: int) -> Log:
        return self.logs.setdefault(TopicPartition(topic, partition), Log())

    def topic_id(self, name: str) -> UUID:
        return self.topic_ids.get(name) or uuid5(UUID(int=1), name)

    # --- clients ------------------------------------------------------------------------------------------------------

    def client(
        self, name: str, *, seed: int | None = None, connection: ConnectionSettings | None = None, **settings: Any
    ) -> Client:
        """Returns a new client, whose network client has these settings."""
        seed = self._seeds.randrange(1 << 30) if seed is None else seed
        self.clients.append(Client(self, name, seed=seed, connection=connection, **settings))
        return self.clients[-1]

    def turn(self) -> bool:
        """Lets all network clients act at this moment. Returns whether any did anything."""
        return sum(client.turn() for client in self.clients) > 0

    def count(self, api_key: int) -> int:
        """Returns the number of requests that were handled."""
        return sum(received.api_key == api_key for received in self.requests)

    # --- trouble ------------------------------------------------------------------------------------------------------

    def add_fault(self, api_key: int, *faults: Any) -> None:
        self.faults.setdefault(api_key, deque()).extend(faults)

    def cut(self, link: Link) -> None:
        link.client.cut(link)

    def stop(self, node_id: int) -> None:
        self.up.discard(node_id)
        for client in self.clients:
            for link in [link for link in client.links.values() if link.node_id == node_id]:
                client.cut(link)

    def move_leader(self, partition: TopicPartition, node_id: int) -> None:
        self.topics[partition.topic][partition.partition] = node_id
        self.log(*partition).leader_epoch += 1

    def move_coordinator(self, node_id: int) -> None:
        """Another broker coordinates from now on; it reads the groups' log."""
        self.coordinator = node_id
        self.rig.restart()

    # --- time ---------------------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Time passes, and the network clients do nothing meanwhile."""
        self.scheduler.advance(seconds)

    def settle(self) -> None:
        """Lets everything happen that can happen at this moment."""
        for _ in range(EVENTS_MAX):
            if not self._happen():
                return
        raise AssertionError("the cluster does not come to rest")

    def _happen(self) -> bool:
        """Lets one thing happen. Returns whether there was any."""
        if any(client.turn() for client in self.clients):
            return True
        while self._responses:
            if self._deliver(*self._responses.popleft()):
                return True
        for client in self.clients:
            for link in client.links.values():
                if link.pending and not link.busy:
                    self._serve(link)
                    return True
        return False

    def run(self, until: Callable[[], bool] = lambda: False, *, seconds: float = 3600.0) -> bool:
        """Lets everything happen until `until()`, or for so long. Returns False when the time is over."""
        end, events = self.now + seconds, 0
        while not until():
            if self._happen():
                events += 1
                assert events < EVENTS_MAX, "the cluster does not come to rest"
                continue
            events = 0
            if until():
                break
            due = min([client.network_client.next_deadline() for client in self.clients] + [self.scheduler.next_due()])
            self.scheduler.advance(max(min(due, end) - self.now, 0.0 if due > end else 1e-6))
            if due > end:
                for client in self.clients:
                    client.network_client.now = self.now
                return False
        return True

    def result(self, promise: Promise[Any], *, seconds: float = 3600.0) -> Any:
        assert self.run(lambda: promise.done, seconds=seconds), "the promise is not settled"
        return promise.result()

    # --- requests and responses ---------------------------------------------------------------------------------------

    def call(self, node_id: int, request: Any, version: int) -> Any:
        """Returns what a broker answers at once, without a client. Request and response go through the codec."""
        decoded, _ = decode(type(request), version, encode(request, version))
        received = ReceivedRequest(node_id, request.API_KEY, version, 0, decoded)
        self.requests.append(received)
        response = self.handlers[received.api_key](received)
        return decode(type(response), version, encode(response, version), parts=True)[0]

    def answer(self, link: Link) -> None:
        """Handles the oldest request of a connection, and lets its response arrive."""
        data = self.handle(link)
        if data is not None:
            self._deliver(link, data)

    def handle(self, link: Link) -> bytes | None:
        """Handles the oldest request of a connection. Returns the response's frame, or None if there is none."""
        received = link.pending.popleft()
        self.requests.append(received)
        response = self.handlers[received.api_key](received)
        link.busy = response is SILENT or response is LATER
        return None if link.busy else self._frame(received, response)

    def reply(self, received: ReceivedRequest, response: Any) -> None:
        """Answers a request for which its handler returned LATER."""
        data = self._frame(received, response)
        link = received.link
        assert link is not None
        if data is None:
            link.busy = False
        elif isinstance(received.fault, Late):
            self.scheduler.call_later(received.fault.seconds, lambda: self._responses.append((link, data)))
        else:
            self._responses.extend([(link, data)] * (2 if received.fault == TWICE else 1))

    @staticmethod
    def _frame(received: ReceivedRequest, response: Any) -> bytes | None:
        return response if response is None or isinstance(response, bytes) else frame_response(received, response)

    def _deliver(self, link: Link, data: bytes) -> bool:
        link.busy = False
        if link.client.links.get(link.number) is not link:
            return False
        link.client.network_client.now = self.now
        link.client.network_client.connections.received(link.number, data, 0, self.now)
        return True

    def _serve(self, link: Link) -> None:
        """Handles the oldest request of a connection, with its fault if there is one."""
        received = link.pending[0]
        faults = self.faults.get(received.api_key)
        fault = received.fault = faults.popleft() if faults else None
        if fault == CUT:
            self.cut(link)
            return
        link.pending.popleft()
        self.requests.append(received)
        link.busy = True
        if isinstance(fault, FetchFailed):
            response: Any = fetch.FetchResponse(error_code=fault.code)
        elif isinstance(fault, int) and received.api_key != ApiKey.FETCH:
            response = refusal(received, fault)
        else:
            response = self.handlers[received.api_key](received)
        if response is not LATER and response is not SILENT:
            self.reply(received, response)
        if fault == LOSE:
            self.cut(link)

    # --- the cluster as its brokers describe it -----------------------------------------------------------------------

    def _api_versions(self, received: ReceivedRequest) -> Any:
        known = [
            api_versions.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        if received.version > self.versions[ApiKey.API_VERSIONS][1]:
            refused = api_versions.ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=known)
            return frame_response(received, refused, 0)
        level = self.transactions.version
        feature = api_versions.FinalizedFeatureKey(
            name="transaction.version", max_version_level=level, min_version_level=level
        )
        return api_versions.ApiVersionsResponse(
            api_keys=known, finalized_features_epoch=1, finalized_features=[feature] if level else []
        )

    def _metadata(self, received: ReceivedRequest) -> Any:
        asked, nodes = received.request.topics, [*range(1, self.nodes + 1)]
        topics = []
        for name in self.topics if asked is None else [topic.name for topic in asked]:
            error = self.topic_errors.get(name, 0 if name in self.topics else UNKNOWN_TOPIC)
            partitions = [
                metadata.MetadataResponsePartition(
                    error_code=LEADER_NOT_AVAILABLE if leader < 0 else 0,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=self._leader_epoch(TopicPartition(name, index)),
                    replica_nodes=self.replicas.get(TopicPartition(name, index), nodes),
                    isr_nodes=nodes,
                )
                for index, leader in self.topics.get(name, {}).items()
                if not error
            ]
            topic_id = UUID(int=0) if error else self.topic_id(name)
            topics.append(
                metadata.MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=partitions)
            )
        brokers = [
            metadata.MetadataResponseBroker(node_id=node, host=f"n{node}", port=9092, rack=self.racks.get(node))
            for node in nodes
        ]
        return metadata.MetadataResponse(brokers=brokers, cluster_id="sim", controller_id=1, topics=topics)

    def _find_coordinator(self, received: ReceivedRequest) -> Any:
        node = {"node_id": self.coordinator, "host": f"n{self.coordinator}", "port": 9092}
        if received.version < 4:
            return find_coordinator.FindCoordinatorResponse(**node)
        keys = received.request.coordinator_keys
        return find_coordinator.FindCoordinatorResponse(
            coordinators=[find_coordinator.Coordinator(key=key, **node) for key in keys]
        )

    def _leader_epoch(self, partition: TopicPartition) -> int:
        log = self.logs.get(partition)
        return 0 if log is None else log.leader_epoch

    def _topic_name(self, topic: Any) -> str:
        """Returns the name of a topic of a request by name or id, "" if the id is unknown."""
        return topic.name or self._name_of(topic.topic_id)

    def _name_of(self, topic_id: UUID) -> str:
        return next((name for name in self.topics if self.topic_id(name) == topic_id), "")

    def _leader_error(self, node_id: int, partition: TopicPartition, leader_epoch: int) -> int:
        """Returns the error of a request to a broker that takes it for the leader in this epoch, or 0."""
        known = self._leader_epoch(partition)
        if leader_epoch not in (-1, known):
            return FENCED_LEADER_EPOCH if leader_epoch < known else UNKNOWN_LEADER_EPOCH
        leader = self.topics.get(partition.topic, {}).get(partition.partition)
        return UNKNOWN_TOPIC if leader is None else 0 if leader == node_id else NOT_LEADER

    # --- producers ----------------------------------------------------------------------------------------------------

    def _init_producer_id(self, received: ReceivedRequest) -> Any:
        if received.request.transactional_id is not None:
            return self.transactions.init_producer_id(received)
        self.next_producer_id += 1
        return init_producer_id.InitProducerIdResponse(
            producer_id=self.next_producer_id, producer_epoch=self.first_producer_epoch
        )

    def produce(self, received: ReceivedRequest) -> Any:
        topics = []
        for topic in received.request.topic_data:
            name = self._topic_name(topic)
            answers = [self._append(received, TopicPartition(name, p.index), p.records) for p in topic.partition_data]
            topics.append(
                produce.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
        return None if received.request.acks == 0 else produce.ProduceResponse(responses=topics)

    def _append(self, received: ReceivedRequest, partition: TopicPartition, data: bytes) -> Any:
        refused = self.transactions.verify(received, partition, data)
        code, offset = self._leader_error(received.node_id, partition, -1) or refused, -1
        if not code and self.produce_errors:
            code = self.produce_errors.pop(0)
        elif not code:
            code, offset = self.log(*partition).produce(bytes(data))
            if not code and self.produce_errors_after_write:
                code, offset = self.produce_errors_after_write.pop(0), -1
        return produce.PartitionProduceResponse(index=partition.partition, error_code=code, base_offset=offset)

    # --- fetches ------------------------------------------------------------------------------------------------------

    def _fetch(self, received: ReceivedRequest) -> Any:
        """Answers at once if there is anything, otherwise when records are written or max_wait_ms is over."""
        request, version = received.request, received.version
        sessions = self.sessions[received.node_id]
        session, full = None, version < 7 or request.session_epoch in (0, -1)
        if full:
            partitions = list(wanted_partitions(request, version))
            if request.session_id:
                sessions.end(request.session_id)
            if version >= 7 and request.session_epoch == 0 and partitions:
                session = sessions.begin(request, version, partitions)
        else:
            try:
                session = sessions.resume(request, version)
            except KafkaError as error:
                return fetch.FetchResponse(error_code=error.code)
            partitions = list(session.partitions.values())
        received.fetched = session, partitions
        response, has_data = self._read(received, full=full)
        if has_data or received.link is None or not request.max_wait_ms or not partitions:
            return response
        self._waiting_fetches.append(received)

        def give_up() -> None:
            if received in self._waiting_fetches:
                self._waiting_fetches.remove(received)
                self.reply(received, self._read(received, full=full)[0])

        self.scheduler.call_later(request.max_wait_ms / 1000, give_up)
        return LATER

    def written(self) -> None:
        """Records were appended without a producer: fetches that waited for them are answered."""
        for received in list(self._waiting_fetches):
            response, has_data = self._read(received, full=received.request.session_epoch <= 0)
            if has_data:
                self._waiting_fetches.remove(received)
                self.reply(received, response)

    def _read(self, received: ReceivedRequest, *, full: bool) -> tuple[fetch.FetchResponse, bool]:
        """Returns the response, and whether it has records or an error. `full`: with partitions that have neither."""
        session, partitions = received.fetched
        topics: dict[str | UUID, list[fetch.PartitionData]] = {}
        has_data = False
        for wanted in partitions:
            data = self._read_partition(received, wanted)
            is_news = bool(data.records or data.error_code or data.preferred_read_replica >= 0)
            has_data = has_data or is_news
            if full or is_news:
                topics.setdefault(wanted.topic, []).append(data)
        response = fetch.FetchResponse(
            session_id=0 if session is None else session.session_id,
            responses=[
                fetch.FetchableTopicResponse(topic_id=key, partitions=found)
                if isinstance(key, UUID)
                else fetch.FetchableTopicResponse(topic=key, partitions=found)
                for key, found in topics.items()
            ],
            node_endpoints=[fetch.NodeEndpoint(node_id=n, host=f"n{n}", port=9092) for n in self.sessions],
        )
        return response, has_data

    def _read_partition(self, received: ReceivedRequest, wanted: FetchPartition) -> fetch.PartitionData:
        node_id, request = received.node_id, received.request
        name = self._name_of(wanted.topic) if isinstance(wanted.topic, UUID) else wanted.topic
        if not name:
            return fetch.PartitionData(partition_index=wanted.partition, error_code=UNKNOWN_TOPIC_ID)
        partition = TopicPartition(name, wanted.partition)
        preferred = self.preferred_replicas.get(partition, -1) if request.rack_id == self.rack else -1
        code = self._leader_error(node_id, partition, wanted.current_leader_epoch)
        if code == NOT_LEADER and node_id in (preferred, *self.readable_followers):
            code = 0
        log = self.log(*partition) if code != UNKNOWN_TOPIC else Log()
        if code := log.fetch_error or (received.fault if isinstance(received.fault, int) else code):
            data = fetch.PartitionData(partition_index=wanted.partition, error_code=code)
            if code in (NOT_LEADER, FENCED_LEADER_EPOCH) and self.names_leader:
                leader = self.topics[name][wanted.partition]
                data.current_leader = fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=log.leader_epoch)
            return data
        is_leader = self.topics[name][wanted.partition] == node_id
        end = log.end if is_leader else min(log.end, self.follower_ends.get(partition, log.end))
        read_committed = bool(request.isolation_level)
        data = fetch.PartitionData(
            partition_index=wanted.partition,
            high_watermark=end,
            last_stable_offset=min(end, log.last_stable_offset),
            log_start_offset=log.start,
        )
        if not log.start <= wanted.fetch_offset <= end:
            data.error_code = OFFSET_OUT_OF_RANGE
        elif is_leader and received.version >= PREFERRED_REPLICA_FROM and preferred not in (-1, node_id):
            data.preferred_read_replica = preferred
        elif wanted.fetch_offset < end:
            data.records = log.read(wanted.fetch_offset, wanted.max_bytes, read_committed=read_committed)
            if read_committed:
                data.aborted_transactions = [
                    fetch.AbortedTransaction(producer_id=producer_id, first_offset=first)
                    for producer_id, first in log.aborted_from(wanted.fetch_offset)
                ]
        return data

    # --- offsets and epochs of logs -----------------------------------------------------------------------------------

    def _list_offsets(self, received: ReceivedRequest) -> Any:
        topics = []
        for topic in received.request.topics:
            partitions = []
            for p in topic.partitions:
                partition = TopicPartition(topic.name, p.partition_index)
                answer = list_offsets.ListOffsetsPartitionResponse(partition_index=p.partition_index)
                answer.error_code = self._leader_error(received.node_id, partition, p.current_leader_epoch)
                if not answer.error_code:
                    log = self.log(*partition)
                    answer.leader_epoch = log.leader_epoch
                    if p.timestamp == EARLIEST:
                        answer.offset = log.start
                    elif p.timestamp == LATEST:
                        answer.offset = log.last_stable_offset if received.request.isolation_level else log.end
                    else:
                        answer.offset, answer.timestamp = log.offset_for_timestamp(p.timestamp)
                partitions.append(answer)
            topics.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        return list_offsets.ListOffsetsResponse(topics=topics)

    def _offset_for_leader_epoch(self, received: ReceivedRequest) -> Any:
        topics = []
        for topic in received.request.topics:
            partitions = []
            for p in topic.partitions:
                partition = TopicPartition(topic.topic, p.partition)
                code = self._leader_error(received.node_id, partition, p.current_leader_epoch)
                epoch, end = (-1, -1) if code else self.log(*partition).end_of_epoch(p.leader_epoch)
                partitions.append(
                    offset_for_leader_epoch.EpochEndOffset(
                        partition=p.partition, error_code=code, leader_epoch=epoch, end_offset=end
                    )
                )
            topics.append(offset_for_leader_epoch.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        return offset_for_leader_epoch.OffsetForLeaderEpochResponse(topics=topics)

    # --- groups -------------------------------------------------------------------------------------------------------

    def _group(self, received: ReceivedRequest) -> Any:
        """Hands the request to the group coordinator."""
        if received.node_id != self.coordinator:
            return refusal(received, NOT_COORDINATOR)
        groups, request, version = self.rig.groups, received.request, received.version
        assert received.link is not None

        def reply(response: Any) -> None:
            self.reply(received, response)

        if received.api_key == ApiKey.JOIN_GROUP:
            name = received.link.client.name
            groups.join(request, client_id=name, client_host="/127.0.0.1", api_version=version, reply=reply)
        elif received.api_key == ApiKey.SYNC_GROUP:
            groups.sync(request, reply=reply)
        elif received.api_key == ApiKey.HEARTBEAT:
            groups.heartbeat(request, reply=reply)
        elif received.api_key == ApiKey.LEAVE_GROUP:
            groups.leave(request, reply=reply)
        elif received.api_key == ApiKey.OFFSET_COMMIT:
            groups.commit_offsets(request, api_version=version, reply=reply)
        else:
            groups.fetch_offsets(
                request.groups,
                require_stable=request.require_stable,
                reply=lambda found: reply(offset_fetch.OffsetFetchResponse(groups=found)),
            )
        return LATER

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Returns the offsets that the group coordinator has."""
        found: list[Any] = []
        group = offset_fetch.OffsetFetchRequestGroup(group_id=group_id)
        group.topics = None  # type: ignore[assignment]
        self.rig.groups.fetch_offsets([group], require_stable=False, reply=found.extend)
        return {
            TopicPartition(topic.name, p.partition_index): p.committed_offset
            for answer in found
            for topic in answer.topics
            for p in topic.partitions
        }


class SingleClientCluster(Cluster):
    """A cluster with one client. `settings` are those of its network client."""

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        nodes: int = 1,
        seed: int = 0,
        connection: ConnectionSettings | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(topics, nodes=nodes)
        client = self.client("client", seed=seed, connection=connection, **settings)
        self.network_client, self.links, self.connected = client.network_client, client.links, client.connected
