"""Makes Fetch requests, and takes over the records and errors of their responses.

There is one request at a time to each broker. A partition is requested while at most one of its fetches is buffered, so
that the next fetch is in flight while that one is read. A response counts for a partition only if its position still is
at the requested offset. `FetchBuffer.next_fetch` raises errors for the application after the records before them.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.fetch.fetch_buffer import FetchBuffer
from barnabas.client.fetch.fetch_session import (
    FetchConfig,
    FetchRequestBuilder,
    FetchSessionHandler,
    RequestedPartition,
)
from barnabas.client.fetch.positions import NO_NODE, AssignedPartitions, FetchPosition, PartitionState
from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.cluster import Broker, brokers_of
from barnabas.connection.metadata import Metadata
from barnabas.connection.network_client import NetworkClient, Node
from barnabas.errors import (
    BarnabasError,
    ClientError,
    CorruptMessage,
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InconsistentTopicId,
    InvalidFetchSessionEpoch,
    KafkaStorageError,
    NoOffsetForPartition,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    ReplicaNotAvailable,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_for,
)
from barnabas.protocol.fetch import FetchResponse, PartitionData, read_fetch_response
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.primitives import Part
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition

__all__ = ["FETCH_ROLE", "FetchRequestManager", "Fetcher"]

FETCH_ROLE: Final = 2
"""The role of connections for Fetch requests, which brokers hold back."""
BUFFERED_MAX: Final = 2
"""The most fetches of a partition in the buffer or in flight."""
RETRY_S: Final = 0.1
"""The pause between two requests for a partition after an error, unless there is new metadata."""
SHORT_WAIT: Final = 10
"""The factor by which a broker waits shorter for records while it leads partitions that are not in the request."""

_REFRESH_METADATA: Final = frozenset(
    error.code
    for error in (
        NotLeaderOrFollower,
        ReplicaNotAvailable,
        KafkaStorageError,
        FencedLeaderEpoch,
        OffsetNotAvailable,
        UnknownTopicOrPartition,
        UnknownTopicId,
        InconsistentTopicId,
    )
)
_HAS_NEW_LEADER: Final = frozenset((NotLeaderOrFollower.code, FencedLeaderEpoch.code))
_RETRY: Final = frozenset((UnknownLeaderEpoch.code, UnknownServerError.code))
_SESSION_ENDED: Final = (FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError)

_log = logging.getLogger("barnabas.consumer")


class _Backoff(NamedTuple):
    """The time before which a partition is not requested, and the metadata's version, as newer metadata ends the
    backoff."""

    until: float
    metadata_version: int


class Fetcher:
    """Makes Fetch requests for the partitions that are fetchable, and takes over the responses, but does not send."""

    def __init__(
        self, partitions: AssignedPartitions, metadata: Metadata, config: FetchConfig, on_invalid: Callable[[], None]
    ) -> None:
        """`on_invalid` is called when a response has made a position invalid, which waits for a reset or a validation
        then."""
        self.config = config
        self._on_invalid = on_invalid
        self.buffer = FetchBuffer(partitions)
        self._partitions = partitions
        self._metadata = metadata
        self._sessions: dict[BrokerId, FetchSessionHandler] = {}
        self._in_flight: dict[BrokerId, FetchRequestBuilder] = {}
        self._backoffs: dict[TopicPartition, _Backoff] = {}

    # --- requests ---------------------------------------------------------------------------------------------------

    def prepare_requests(self, now: float, is_ready: Callable[[BrokerId], bool]) -> list[FetchRequestBuilder]:
        """Returns the requests to send now; each is `answered` or `failed` later. `is_ready`: whether a request can be
        sent to a broker."""
        if self.buffer.size_bytes >= self.config.max_bytes:
            self.buffer.make_room()
            if self.buffer.size_bytes >= self.config.max_bytes:
                return []
        requested: dict[BrokerId, dict[TopicPartition, RequestedPartition]] = {}
        left_out: set[BrokerId] = set()
        for topic_partition in self._partitions.assigned():
            state = self._partitions.get(topic_partition)
            if state is None or not state.is_fetchable:
                continue
            position = self._position(topic_partition, state)
            if self._backs_off(topic_partition, now):
                continue
            node = self._node_for(topic_partition, state, position, now)
            if node == NO_NODE:
                self._metadata.request_update()
            elif node in self._in_flight or not is_ready(node):
                continue
            elif self.buffer.count(topic_partition, position) >= BUFFERED_MAX or self.buffer.has_failure(
                topic_partition
            ):
                left_out.add(node)
            else:
                offset = self.buffer.next_offset(topic_partition, position)
                if state.fetch_until is None or offset < state.fetch_until:
                    requested.setdefault(node, {})[topic_partition] = RequestedPartition(
                        self._metadata.topic_id(topic_partition.topic),
                        offset,
                        position.leader_epoch,
                        self.config.max_partition_bytes,
                    )
        return [self._request(node, partitions, node in left_out) for node, partitions in requested.items()]

    def _request(
        self, node: BrokerId, partitions: Mapping[TopicPartition, RequestedPartition], short_wait: bool
    ) -> FetchRequestBuilder:
        session = self._sessions.setdefault(node, FetchSessionHandler())
        wait_ms = self.config.max_wait_ms // SHORT_WAIT if short_wait else self.config.max_wait_ms
        request = FetchRequestBuilder(node, session.request(partitions), wait_ms, self.config)
        self._in_flight[node] = request
        return request

    def _position(self, topic_partition: TopicPartition, state: PartitionState) -> FetchPosition:
        position = state.position
        assert position is not None, f"{topic_partition} is fetchable without a position"
        if position.leader == NO_NODE and position.offset_epoch < 0:
            # a seek before any leader was known needs no validation
            known = self._metadata.partition(topic_partition)
            if known is not None:
                leader = self._metadata.leader(topic_partition)
                state.follow_leader(leader, known.leader_epoch, can_validate=False)
                position = state.position or position
        return position

    def is_fetching(self, topic_partition: TopicPartition) -> bool:
        """Returns whether the partition's leader has a request, so that it gets no other one before the response."""
        state = self._partitions.get(topic_partition)
        return (
            state is not None
            and state.position is not None
            and state.preferred_replica == NO_NODE
            and state.position.leader in self._in_flight
        )

    def _backs_off(self, topic_partition: TopicPartition, now: float) -> bool:
        backoff = self._backoffs.get(topic_partition)
        if backoff is None:
            return False
        if now < backoff.until and backoff.metadata_version == self._metadata.version:
            return True
        del self._backoffs[topic_partition]
        return False

    def _node_for(
        self, topic_partition: TopicPartition, state: PartitionState, position: FetchPosition, now: float
    ) -> BrokerId:
        """Returns the replica that the leader has named, while it is online, or the leader."""
        preferred = state.preferred_replica_at(now)
        if preferred == NO_NODE:
            return position.leader
        if self._is_online(topic_partition, preferred):
            return preferred
        state.clear_preferred_replica()
        self._metadata.request_update()
        return position.leader

    def _is_online(self, topic_partition: TopicPartition, replica: BrokerId) -> bool:
        known = self._metadata.partition(topic_partition)
        online = known is not None and replica in known.replicas and replica not in known.offline_replicas
        return online and replica in self._metadata.cluster.brokers

    def next_deadline(self) -> float:
        """Returns when the next partition may be requested again after an error."""
        return min((backoff.until for backoff in self._backoffs.values()), default=float("inf"))

    def follow_leaders(self) -> None:
        """Takes over the leaders of new metadata; positions are validated with leaders that changed. Brokers before 2.3
        do not answer OffsetsForLeaderEpoch, which the sender of that request handles."""
        for topic_partition in self._partitions.assigned():
            leader, known = self._metadata.leader(topic_partition), self._metadata.partition(topic_partition)
            state = self._partitions.get(topic_partition)
            if leader != NO_NODE and known is not None and state is not None:
                state.follow_leader(leader, known.leader_epoch, can_validate=True)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops the state of partitions that are no longer assigned, or whose positions have changed."""
        gone = list(partitions)
        self.buffer.forget(gone)
        for topic_partition in gone:
            self._backoffs.pop(topic_partition, None)

    def request_all(self) -> None:
        """Makes the next responses contain all partitions, also those without changes."""
        for session in self._sessions.values():
            session.request_all()

    def close(self) -> list[FetchRequestBuilder]:
        """Returns the requests that end the sessions. Their responses are ignored."""
        requests = [(node, session.close()) for node, session in self._sessions.items()]
        self._sessions.clear()
        self._in_flight.clear()
        return [FetchRequestBuilder(node, data, 0, self.config) for node, data in requests if data is not None]

    # --- responses --------------------------------------------------------------------------------------------------

    def failed(self, request: FetchRequestBuilder) -> None:
        """Ends a request without a response."""
        if self._in_flight.get(request.node) is not request:
            return
        del self._in_flight[request.node]
        session = self._sessions[request.node]
        session.failed()
        for topic_partition in session.partitions:
            state = self._partitions.get(topic_partition)
            if state is not None:
                state.clear_preferred_replica()

    def answered(self, request: FetchRequestBuilder, response: FetchResponse, now: float) -> bool:
        """Takes over a response. Returns False if it does not fit the session, so that the next request is a full
        one."""
        if self._in_flight.get(request.node) is not request:
            return True
        del self._in_flight[request.node]
        answers = _by_partition(request, response)
        session = self._sessions[request.node]
        if not session.answered(request.data, response.error_code, response.session_id, answers.keys()):
            _log.debug("fetch session with node %s begins anew: error %s", request.node, response.error_code)
            if response.error_code == FetchSessionTopicIdError.code:
                self._metadata.request_update()
            return False
        for topic_partition, answer in answers.items():
            state = self._partitions.get(topic_partition)
            if state is None or not state.is_valid or state.position is None:
                continue  # the partition is no longer assigned, or its position no longer valid
            offset = request.data.partitions[topic_partition].offset
            if answer.error_code:
                brokers = brokers_of(response.node_endpoints)
                self._take_error(topic_partition, state, offset, answer, brokers, now)
            else:
                self._take_records(topic_partition, state, offset, answer, state.position, now)
        return True

    def _take_records(
        self,
        topic_partition: TopicPartition,
        state: PartitionState,
        offset: int,
        answer: PartitionData,
        position: FetchPosition,
        now: float,
    ) -> None:
        self._backoffs.pop(topic_partition, None)
        state.note_offsets(answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)
        if answer.preferred_read_replica >= 0:
            preferred = BrokerId(answer.preferred_read_replica)
            if self._is_online(topic_partition, preferred):
                state.prefer_replica(preferred, now + self.config.replica_max_age_s)
            else:  # the leader would name it again at once
                self._metadata.request_update()
                self._back_off(topic_partition, now)
        records = answer.records
        if records is None or len(records) == 0:  # compiled, the truth of a Part does not depend on its length
            state.empty_at = offset
            return
        assert isinstance(records, Part)
        if offset != self.buffer.next_offset(topic_partition, position):
            return
        fetch = CompletedFetch(
            topic_partition,
            records,
            offset,
            check_crcs=self.config.check_crcs,
            aborted=answer.aborted_transactions or () if self.config.read_committed else None,
            key_deserializer=self.config.key_deserializer,
            value_deserializer=self.config.value_deserializer,
        )
        if fetch.end_offset is not None and fetch.end_offset > offset:
            self.buffer.add(fetch)
            return
        error = CorruptMessage(
            f"{topic_partition}: the {fetch.size_bytes} bytes that came for offset {offset} hold no whole batch of it;"
            f" if it is larger, raise max.partition.fetch.bytes, now {self.config.max_partition_bytes}"
        )
        self.buffer.fail(topic_partition, offset, error)

    def _back_off(self, topic_partition: TopicPartition, now: float) -> None:
        self._backoffs[topic_partition] = _Backoff(now + RETRY_S, self._metadata.version)

    def _take_error(
        self,
        topic_partition: TopicPartition,
        state: PartitionState,
        offset: int,
        answer: PartitionData,
        brokers: Mapping[int, Broker],
        now: float,
    ) -> None:
        """Handles an error like Kafka's client: refreshes metadata, resets the position, or keeps the error for the
        application."""
        code = answer.error_code
        _log.debug("fetching %s from offset %s: %s", topic_partition, offset, error_for(code))
        if code == OffsetOutOfRange.code:
            self._out_of_range(topic_partition, state, offset, now)
            return
        self._back_off(topic_partition, now)
        if code in _REFRESH_METADATA:
            state.clear_preferred_replica()
            self._metadata.request_update()
            leader, epoch = BrokerId(answer.leader_id), LeaderEpoch(answer.leader_epoch)
            # the response names the new leader (KIP-951): no need to wait for metadata
            if (
                code in _HAS_NEW_LEADER
                and leader >= 0
                and epoch >= 0
                and self._metadata.update_leader(topic_partition, leader, epoch, brokers.get(leader))
            ):
                state.follow_leader(leader, epoch, can_validate=True)
                del self._backoffs[topic_partition]
                self._on_invalid()
        elif code not in _RETRY:
            error = error_for(code, f"fetching {topic_partition} from offset {offset}: {error_for(code)}")
            self.buffer.fail(topic_partition, offset, error)

    def _out_of_range(self, topic_partition: TopicPartition, state: PartitionState, offset: int, now: float) -> None:
        if state.clear_preferred_replica():
            return  # a follower may be behind; the leader knows
        if state.position is None or offset != state.position.offset:
            # the offset is ahead of the position: the records before it are read first
            self._back_off(topic_partition, now)
            return
        try:
            self._partitions.request_reset(topic_partition)
            _log.info("%s: offset %s is out of range, reset to %s", topic_partition, offset, state.reset)
            self._back_off(topic_partition, now)  # the offset that is looked up may be out of range, too
            self._on_invalid()
        except NoOffsetForPartition:
            known = state.high_watermark >= 0
            there = f", which has {state.log_start_offset} to {state.high_watermark}" if known else ""
            error = OffsetOutOfRange(
                f"{topic_partition}: offset {offset} is not in the log{there}; auto.offset.reset is none: seek to where"
                " to go on"
            )
            self.buffer.fail(topic_partition, offset, error)


def _by_partition(request: FetchRequestBuilder, response: FetchResponse) -> dict[TopicPartition, PartitionData]:
    names: dict[bytes, str] | None = None
    found = {}
    for topic, partitions in response.topics:
        if isinstance(topic, str):
            name = topic
        else:
            if names is None:
                names = {data.topic_id.bytes: tp.topic for tp, data in request.data.partitions.items()}
            # an id that was never requested gets a name that no topic has
            name = names.get(topic) or topic.hex()
        for partition in partitions:
            found[TopicPartition(name, partition.partition)] = partition
    return found


class _Failure(NamedTuple):
    """The outcome of the last requests to a broker."""

    tries: int
    """The number of failures in a row."""
    retry_at: float
    text: str
    """The message for the application, empty without an error."""


class FetchRequestManager:
    """Sends the Fetcher's requests when connections are ready, in the network client's turns, and backs off from
    brokers whose responses are of no use."""

    def __init__(
        self,
        client: NetworkClient,
        partitions: AssignedPartitions,
        config: FetchConfig,
        on_invalid: Callable[[], None] = lambda: None,
    ) -> None:
        self.fetcher = Fetcher(partitions, client.metadata, config, on_invalid)
        self.answers = 0
        self.failed = 0
        self._client = client
        self._has_changed = True
        self._retry_at = float("inf")
        self._unready: set[BrokerId] = set()
        """The brokers that get a request as soon as their connection is ready."""
        self._failures: dict[BrokerId, _Failure] = {}
        self._error: BarnabasError | None = None

    def changed(self) -> None:
        """Notes that positions, pauses, leaders or the buffer have changed."""
        self._has_changed = True

    @property
    def wants_turn(self) -> bool:
        """Whether a turn may send requests."""
        return self._has_changed or self.fetcher.buffer.has_dropped

    def take_failure(self) -> BarnabasError | None:
        """Returns an error for the application, once."""
        error, self._error = self._error, None
        return error

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def advance(self, now: float) -> None:
        if not self.wants_turn and now < self._retry_at and not self._is_any_ready():
            return
        self._has_changed = self.fetcher.buffer.has_dropped = False
        self._retry_at = float("inf")
        self._unready.clear()
        for request in self.fetcher.prepare_requests(now, self._is_ready):
            self._send(request)
        due = self.fetcher.next_deadline()
        if due > now:  # a partition that is due and was not requested is paused
            self._retry_at = min(self._retry_at, due)

    def next_deadline(self) -> float:
        return self._retry_at

    def _is_any_ready(self) -> bool:
        return any(self._client.ready(Node(node, FETCH_ROLE)) for node in self._unready)

    def _is_ready(self, node: BrokerId) -> bool:
        failure = self._failures.get(node)
        if failure is not None and failure.retry_at > self._client.now:
            self._retry_at = min(self._retry_at, failure.retry_at)
            return False
        if self._client.ready(Node(node, FETCH_ROLE)):
            return True
        self._unready.add(node)
        return False

    def _send(self, request: FetchRequestBuilder) -> None:
        def done(response: Any, error: Error | None) -> None:
            self._has_changed = True
            if error is not None:
                self.fetcher.failed(request)
                self._client.metadata.request_update()
            else:
                self.answers += 1
                if self.fetcher.answered(request, response, self._client.now):
                    self._failures.pop(request.node, None)
                    return
                error = error_for(response.error_code or InvalidFetchSessionEpoch.code)
            self.failed += 1
            self._back_off(request.node, error)

        timeout_s = self._client.settings.connection.request_timeout_s + request.max_wait_ms / 1000
        call = ClientRequest(
            FetchRequest,
            done,
            build=request.build,
            decode=read_fetch_response,
            at_most=request.at_most,
            timeout_s=timeout_s,
        )
        self._client.send(call, Node(request.node, FETCH_ROLE))

    def _back_off(self, node: BrokerId, error: Error) -> None:
        """Sends the next request after a pause, or at once if only the session begins anew. Keeps an error that is not
        retriable for the application, and logs others."""
        known = self._failures.get(node)
        tries = 1 if known is None else known.tries + 1
        is_passing = isinstance(error, _SESSION_ENDED) and tries == 1
        pause_s = 0.0 if is_passing else self._client.backoff_s(tries)
        text = f"fetching from broker {node} fails: {error}"
        self._failures[node] = _Failure(tries, self._client.now + pause_s, "" if is_passing else text)
        if isinstance(error, ClientError):
            if not error.retriable:
                self._error = error
            return
        if not is_passing and (known is None or known.text != text):
            _log.warning("%s; it is asked again", text)
        if not error.retriable:
            self._error = error_for(error.code, text)

    def failing(self) -> tuple[str, ...]:
        """Returns the messages about brokers whose last response was an error, or did not fit."""
        return tuple(each.text for each in self._failures.values() if each.text)

    def close(self) -> None:
        """Ends the sessions with brokers whose connections are ready."""
        for request in self.fetcher.close():
            if self._client.ready(Node(request.node, FETCH_ROLE)):
                call = ClientRequest(FetchRequest, _ignore, build=request.build, at_most=request.at_most)
                self._client.send(call, Node(request.node, FETCH_ROLE))

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Drops the state of partitions that are no longer assigned, or whose positions have changed."""
        self.fetcher.forget(partitions)
        self._has_changed = True


def _ignore(response: Any, error: Error | None) -> None:
    """Ignores a response."""
