"""Fetch v4-v18. Answers with slices of segment files; waits for `min_bytes` until `max_wait_ms` when there is less.

Consumers see records below the high watermark, or the last stable offset under read_committed. The first partition with
records gives at least one whole batch, whatever the limits, so that a large batch can always be read.
"""

from collections.abc import Collection, Iterable, Sequence
from struct import Struct
from typing import Final
from uuid import UUID

from barnabas.broker.connections.advertised_addresses import NamedBroker
from barnabas.broker.fetch_sessions import FetchPartition, FetchSession, wanted_partitions
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.config.broker_settings import RACK_AWARE
from barnabas.errors import (
    FencedLeaderEpoch,
    InvalidFetchSessionEpoch,
    KafkaError,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.network.connection import Parts, PendingReply, size_of
from barnabas.protocol.codec import decode
from barnabas.protocol.fetch import FLEXIBLE_FROM, SESSIONS_FROM, PartitionData, Topic, encode_fetch_response
from barnabas.protocol.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.replication.partition import Partition
from barnabas.replication.replica_selector import rack_aware
from barnabas.types import BrokerId, Offset

_SIZE_CORRELATION: Final = Struct(">ii")
_READ_COMMITTED: Final = 1
_FOLLOWERS_FROM: Final = 11
_LEADERS_FROM: Final = 16
_MOVED: Final = frozenset((NotLeaderOrFollower.code, FencedLeaderEpoch.code))
_UNKNOWN: Final = frozenset((UnknownTopicOrPartition.code, UnknownTopicId.code))


def handle_frame(
    broker: BrokerServices, frame: memoryview, position: int, context: RequestContext
) -> Parts | PendingReply:
    request, _ = decode(FetchRequest, context.api_version, frame[position:])
    session: FetchSession | None = None
    full = True
    if context.api_version < SESSIONS_FROM or request.session_epoch == FINAL_EPOCH:
        if request.session_id:
            broker.fetch_sessions.end(request.session_id)
        wanted = list(wanted_partitions(request, context.api_version))
    elif request.session_epoch == INITIAL_EPOCH:
        if request.session_id:
            broker.fetch_sessions.end(request.session_id)
        wanted = list(wanted_partitions(request, context.api_version))
        if wanted:
            session = broker.fetch_sessions.begin(request, context.api_version, wanted)
    else:
        try:
            session = broker.fetch_sessions.resume(request, context.api_version)
        except KafkaError as error:
            return response_frame(context, [], error_code=error.code)
        wanted = list(session.partitions.values())
        full = not wanted
        if full:  # no partition is left in the session
            broker.fetch_sessions.end(session.session_id)
            session = None
    fetch = DelayedFetch(broker, context, request, wanted, session, full)
    fetch.read()
    if fetch.is_satisfied() or request.max_wait_ms <= 0 or not wanted:
        return fetch.response()
    return fetch.delay()


class DelayedFetch:
    """A Fetch request that may be delayed. It is complete when

    - a partition has an error or a diverging leader epoch, also because it has another leader or was deleted,
    - `min_bytes` can be read, or the records continue in the next segment,
    - or `max_wait_ms` have passed.

    Unknown partitions do not complete it while it waits for others: a consumer that does not know of a deletion yet
    would fetch in a tight loop.
    """

    __slots__ = (
        "_broker",
        "_bytes",
        "_context",
        "_from_followers",
        "_full",
        "_leaders",
        "_max_bytes",
        "_min_bytes",
        "_rack",
        "_read_committed",
        "_reply",
        "_request",
        "_results",
        "_session",
        "_session_epoch",
        "_unknown",
        "_urgent",
        "_wanted",
        "_watched",
    )

    def __init__(
        self,
        broker: BrokerServices,
        context: RequestContext,
        request: FetchRequest,
        wanted: list[FetchPartition],
        session: FetchSession | None,
        full: bool,
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._wanted = wanted
        self._session = session
        self._session_epoch = session.epoch if session is not None else 0
        self._full = full
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._read_committed = request.isolation_level == _READ_COMMITTED
        self._from_followers = broker.cluster is not None and context.api_version >= _FOLLOWERS_FROM
        """Whether this broker may answer as a follower."""
        nearest = broker.cluster is not None and broker.config.replica_selector_class == RACK_AWARE
        self._rack = request.rack_id if nearest else ""
        """The rack of the consumer, if it should read from a replica in its rack."""
        self._leaders: set[BrokerId] = set()
        """The leaders that the response has to name."""
        self._results: list[PartitionData] = []
        self._watched: dict[Partition, list[int]] = {}
        """The indexes of each partition in the request while it waits."""
        self._bytes = 0
        self._urgent = False
        self._unknown = -1
        """The number of unknown partitions at the first read; -1 before."""
        self._reply: PendingReply | None = None

    def read(self) -> None:
        self._bytes = 0
        self._urgent = False
        left = self._max_bytes
        unknown = 0
        results = []
        for wanted in self._wanted:
            data = self._read_partition(wanted, left)
            results.append(data)
            if data.records is not None:
                size = len(data.records)
                self._bytes += size
                left = max(0, left - size)
            elif data.error_code in _UNKNOWN:
                unknown += 1
            elif data.error_code or data.diverging_epoch is not None:
                self._urgent = True
        self._results = results
        if self._unknown < 0:
            self._unknown = unknown
        if unknown and (unknown != self._unknown or unknown == len(results)):
            self._urgent = True

    def _read_partition(self, wanted: FetchPartition, left: int) -> PartitionData:
        try:
            partition = self._partition_of(wanted)
            if not partition.is_leader and self._from_followers:
                partition.check_reader(wanted.current_leader_epoch)
            else:
                partition.check_leader(wanted.current_leader_epoch)
                if self._rack and (preferred := self._nearer_replica(partition, wanted.fetch_offset)) is not None:
                    self._urgent = True
                    return _elsewhere(wanted.partition, partition, preferred)
            log = partition.log
            if wanted.last_fetched_epoch >= 0:
                diverging = partition.diverging_epoch(wanted.last_fetched_epoch, wanted.fetch_offset)
                if diverging is not None:
                    return PartitionData(
                        wanted.partition, 0, log.high_watermark, log.last_stable_offset, log.log_start_offset,
                        diverging_epoch=diverging,
                    )  # fmt: skip
            read = partition.read(
                wanted.fetch_offset,
                min(wanted.max_bytes, left),
                read_committed=self._read_committed,
                min_one_message=self._bytes == 0,
            )
            records = read.file_slice
            aborted: Sequence[tuple[int, int]] | None = None
            if self._read_committed:
                aborted = partition.aborted_transactions(wanted.fetch_offset, records) if records is not None else ()
        except (UnknownTopicOrPartition, UnknownTopicId) as error:
            return PartitionData(wanted.partition, error.code, aborted_transactions=())
        except KafkaError as error:
            data = PartitionData(wanted.partition, error.code)
            if error.code in _MOVED and self._context.api_version >= _LEADERS_FROM:
                self._name_leader(wanted, data)
            return data
        except OSError as error:
            failure = self._broker.failures.report(f"fetch from {wanted.topic}-{wanted.partition}", error)
            return PartitionData(wanted.partition, failure.code)
        bound = log.last_stable_offset if self._read_committed else log.high_watermark
        if records is not None and wanted.fetch_offset < log.active_segment.base_offset < bound:
            self._urgent = True  # a read ends with its segment, but there are more records
        return PartitionData(
            wanted.partition, 0, log.high_watermark, log.last_stable_offset, log.log_start_offset, records, aborted
        )

    def _partition_of(self, wanted: FetchPartition) -> Partition:
        manager = self._broker.replica_manager
        topic = wanted.topic
        if isinstance(topic, UUID):
            name = manager.topic_name(topic)
            if name is None:
                raise UnknownTopicId(f"no topic has the id {topic}")
            topic = name
        if self._from_followers:
            return manager.replica_of(topic, wanted.partition)
        return manager.leader_of(topic, wanted.partition)

    def _nearer_replica(self, partition: Partition, offset: Offset) -> BrokerId | None:
        image = self._broker.image
        racks = {node_id: broker.rack for node_id, broker in image.brokers.items() if not broker.fenced}
        return rack_aware(self._rack, self._broker.node_id, partition.followers_with(offset), racks)

    def _name_leader(self, wanted: FetchPartition, data: PartitionData) -> None:
        """Tells the consumer who leads the partition now (KIP-951)."""
        topic = wanted.topic
        name = self._broker.replica_manager.topic_name(topic) if isinstance(topic, UUID) else topic
        partition = self._broker.image.partition(name or "", wanted.partition)
        if partition is not None:
            data.leader_id, data.leader_epoch = partition.leader, partition.leader_epoch
            self._leaders.add(partition.leader)

    def is_satisfied(self) -> bool:
        return self._urgent or self._bytes >= self._min_bytes

    def delay(self) -> PendingReply:
        """Delays the response. Later responses of the connection wait for this one."""
        for index, (wanted, data) in enumerate(zip(self._wanted, self._results, strict=True)):
            if not data.error_code:
                self._watched.setdefault(self._partition_of(wanted), []).append(index)
        self._reply = self._context.pending_reply()
        self._broker.purgatory.delay(self, self._reply, self._watched, self._request.max_wait_ms / 1000)
        return self._reply

    def try_complete(self, changed: Collection[Partition]) -> bool:
        if self._context.connection.closed:
            return True
        if len(changed) < len(self._watched) and not self._might_be_satisfied(changed):
            return False
        self.read()
        if not self.is_satisfied():
            return False
        self._respond()
        return True

    def _might_be_satisfied(self, changed: Iterable[Partition]) -> bool:
        """Reads only the changed partitions: a consumer of a thousand partitions that waits for many bytes must not
        cause a read of all of them for each record."""
        for partition in changed:
            for index in self._watched[partition]:
                before, now = self._results[index], self._read_partition(self._wanted[index], self._max_bytes)
                self._results[index] = now
                if now.error_code or now.diverging_epoch is not None:
                    return True
                if before.records is not None:
                    self._bytes -= len(before.records)
                if now.records is not None:
                    self._bytes += len(now.records)
        return self.is_satisfied()

    def expire(self) -> None:
        if not self._context.connection.closed:
            self.read()
            self._respond()

    def _respond(self) -> None:
        assert self._reply is not None
        self._reply.resolve(self.response())

    def response(self) -> Parts:
        """Returns the response frame. In a session unchanged partitions are left out."""
        session = self._session
        if session is not None and session.epoch != self._session_epoch:
            # Another request has changed the session while this one waited.
            return response_frame(
                self._context, [], error_code=InvalidFetchSessionEpoch.code, session_id=session.session_id
            )
        topics: dict[str | UUID, list[PartitionData]] = {}
        for wanted, data in zip(self._wanted, self._results, strict=True):
            if not self._full and not wanted.has_changed(data):
                continue
            if session is not None:
                wanted.mark_sent(data)
                if data.records is not None:
                    session.move_to_end(wanted)
            topics.setdefault(wanted.topic, []).append(data)
        session_id = session.session_id if session is not None else 0
        brokers: Sequence[NamedBroker] = ()
        if self._leaders:
            known = self._broker.advertised_brokers(self._context.connection)
            brokers = [broker for broker in known if broker[0] in self._leaders]
        return response_frame(self._context, list(topics.items()), session_id=session_id, brokers=brokers)


def _elsewhere(number: int, partition: Partition, preferred: BrokerId) -> PartitionData:
    """Returns the data that sends the consumer to another replica."""
    log = partition.log
    return PartitionData(
        number, 0, log.high_watermark, log.last_stable_offset, log.log_start_offset, preferred_read_replica=preferred
    )


def response_frame(
    context: RequestContext,
    topics: Sequence[tuple[Topic, Sequence[PartitionData]]],
    *,
    error_code: int = 0,
    session_id: int = 0,
    brokers: Sequence[NamedBroker] = (),
) -> Parts:
    """Returns the frame of a response. `brokers` are those that lead partitions which this one does not."""
    version = context.api_version
    prefix = bytes(9 if version >= FLEXIBLE_FROM else 8)
    parts = encode_fetch_response(
        topics, version, prefix, error_code=error_code, session_id=session_id, brokers=brokers
    )
    size = sum(map(size_of, parts))
    head = parts[0]
    assert isinstance(head, bytes)
    parts[0] = _SIZE_CORRELATION.pack(size - 4, context.correlation_id) + head[8:]
    return parts
