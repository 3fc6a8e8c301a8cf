"""Fetch from another broker: a follower reads up to the end of the log, and tells by its offsets what it has.

The versions are those of clients. A request without a replica id is one of a consumer, also here. A follower waits for
records, as in Kafka, not for the high watermark: that goes along with the next response. Only where consumers read from
followers, unlike in Kafka, it is sent soon.
"""

import asyncio
from collections.abc import Collection
from typing import Final
from uuid import UUID

from barnabas.broker.cluster.follower_fetch_sessions import FollowerFetchSession, FollowerPartition
from barnabas.broker.handlers.records import fetch as consumers
from barnabas.broker.handlers.records.fetch import response_frame
from barnabas.broker.peers.session import PeerContext
from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.services import BrokerServices
from barnabas.config.broker_settings import RACK_AWARE
from barnabas.errors import InvalidRequest, KafkaError
from barnabas.network.connection import Parts, PendingReply
from barnabas.protocol.fetch import PartitionData
from barnabas.protocol.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from barnabas.protocol.follower_fetch import FOLLOWERS_FROM, FollowerFetchRequest, read_follower_fetch
from barnabas.records.file_slice import FileSlice
from barnabas.replication.partition import Partition
from barnabas.replication.replication_quota import ReplicationQuota
from barnabas.types import BrokerId

_FULL: Final = (INITIAL_EPOCH, FINAL_EPOCH)
_HIGH_WATERMARK_S: Final = 0.005
"""The time for which a high watermark waits for records to go along with, where consumers read from followers."""


def handle_frame(
    broker: BrokerServices, frame: memoryview, position: int, context: PeerContext
) -> Parts | PendingReply:
    version = context.api_version
    request = read_follower_fetch(bytes(frame[position:]), version) if version >= FOLLOWERS_FROM else None
    if request is None or request.replica_id < 0:
        return consumers.handle_frame(broker, frame, position, context)
    replica_id = BrokerId(request.replica_id)
    identity = context.peer.identity
    if identity is None or identity.node_id != replica_id:
        return response_frame(context, [], error_code=InvalidRequest.code)
    sessions = broker.follower_fetch_sessions
    if request.session_epoch in _FULL:
        session = sessions.begin(request, replica_id, is_kept=request.session_epoch == INITIAL_EPOCH)
    else:
        try:
            session = sessions.resume(request, replica_id)
        except KafkaError as error:
            return response_frame(context, [], error_code=error.code)
    return DelayedFollowerFetch(broker, context, request, session).begin()


class DelayedFollowerFetch:
    """A follower's Fetch request that may be delayed. It is complete when

    - a partition has an error or a diverging leader epoch, also because it has another leader or was deleted,
    - `min_bytes` can be read, or the records continue in the next segment,
    - the rate of throttled replicas is no longer exceeded,
    - the follower's next request comes, because it wants other partitions meanwhile,
    - the high watermark or the log start moves, and consumers read from followers,
    - or `max_wait_ms` have passed.
    """

    __slots__ = (
        "_broker",
        "_bytes",
        "_context",
        "_copied",
        "_full",
        "_hurry",
        "_max_bytes",
        "_min_bytes",
        "_operation",
        "_quota",
        "_reply",
        "_results",
        "_session",
        "_urgent",
        "_wait_s",
    )

    def __init__(
        self, broker: BrokerServices, context: PeerContext, request: FollowerFetchRequest, session: FollowerFetchSession
    ) -> None:
        self._broker = broker
        self._context = context
        self._session = session
        self._full = request.session_epoch in _FULL
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._wait_s = request.max_wait_ms / 1000
        self._results: dict[FollowerPartition, PartitionData] = {}
        self._bytes = 0
        self._urgent = False
        self._quota: ReplicationQuota | None = None
        self._copied = 0
        """The bytes of throttled replicas in the response, and the quota that they count for."""
        self._hurry: asyncio.TimerHandle | None = None
        self._operation: DelayedOperation | None = None
        self._reply: PendingReply | None = None

    def begin(self) -> Parts | PendingReply:
        """Returns the response if the request is complete, and delays it otherwise. A full request is not delayed: its
        response tells the follower the session's id, without which it cannot ask for anything else."""
        self._read(is_first=True)
        if self._full or self._is_satisfied() or self._wait_s <= 0:
            return self._response()
        self._reply = self._context.pending_reply()
        # the session watches the partitions
        self._operation = self._broker.purgatory.delay(self, self._reply, (), self._wait_s)
        self._session.waiting = self
        if any(wanted.has_changed(data) for wanted, data in self._results.items()):
            self.offsets_moved()  # by this very request
        return self._reply

    def _is_satisfied(self) -> bool:
        return self._urgent or self._bytes >= self._min_bytes

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self, *, is_first: bool = False) -> None:
        """Reads the partitions that have changed. The first read notes the follower's offsets."""
        session, results = self._session, self._results
        self._bytes, self._copied, self._urgent = 0, 0, False
        left = self._max_bytes
        for wanted in list(session.changed):
            data = results[wanted] = self._read_partition(wanted, left, is_first)
            records = data.records
            if isinstance(records, FileSlice):
                size = records.size
                self._bytes += size
                left = max(0, left - size)
            elif data.error_code or data.diverging_epoch is not None:
                self._urgent = True
            elif wanted.is_settled and not wanted.has_changed(data):
                del session.changed[wanted]

    def _read_partition(self, wanted: FollowerPartition, left: int, is_first: bool) -> PartitionData:
        session, fetch = self._session, wanted.fetch
        wanted.is_settled = False
        try:
            partition = session.resolve(wanted)
            max_bytes, min_one = min(wanted.max_bytes, left), self._bytes == 0
            quota = partition.leader_quota
            if quota is not None and not partition.is_waited_for(session.replica_id, session.last_used):
                max_bytes = min(max_bytes, quota.bytes_at_once)
            if is_first:
                read = partition.fetch_from_follower(
                    session.replica_id,
                    session.broker_epoch,
                    fetch,
                    max_bytes=max_bytes,
                    min_one_message=min_one,
                    now=session.last_used,
                )
                if read.isr_change is not None:
                    self._broker.submit_isr_change(read.isr_change)
            else:
                read = partition.read_for_follower(session.replica_id, fetch, max_bytes, min_one_message=min_one)
        except KafkaError as error:
            return PartitionData(wanted.number, error.code)
        except OSError as error:
            failure = self._broker.failures.report(f"fetch from {UUID(bytes=wanted.topic_id)}-{wanted.number}", error)
            return PartitionData(wanted.number, failure.code)
        log, records = partition.log, read.records
        if quota is not None and records is not None:
            records = self._throttled(quota, partition, records)
        if records is None:
            has_all = read.diverging_epoch is None and fetch.fetch_offset == log.log_end_offset
            wanted.is_settled = has_all and session.replica_id in partition.in_sync_replicas
        elif fetch.fetch_offset < log.active_segment.base_offset:
            self._urgent = True  # a read ends with its segment, but there are more records
        return PartitionData(
            wanted.number, 0, read.high_watermark, log.last_stable_offset, read.log_start_offset, records,
            diverging_epoch=read.diverging_epoch,
        )  # fmt: skip

    def _throttled(self, quota: ReplicationQuota, partition: Partition, records: FileSlice) -> FileSlice | None:
        """Returns the records for a replica that is throttled unless the high watermark waits for it, maybe since this
        very request. Returns None, and waits for the quota, while that is exceeded."""
        if partition.is_waited_for(self._session.replica_id, self._session.last_used):
            return records
        if quota.is_exceeded(self._copied):
            quota.wait(self._session)
            return None
        self._quota = quota
        self._copied += records.size
        return records

    # --- while it waits ---------------------------------------------------------------------------------------------

    def partition_changed(self, partition: Partition) -> None:
        """Called by the session when there may be records, or an error."""
        assert self._operation is not None
        self._operation.partition_changed(partition)

    def offsets_moved(self) -> None:
        """Called by the session when there is another high watermark or log start."""
        broker = self._broker
        if self._hurry is None and broker.config.replica_selector_class == RACK_AWARE:
            self._hurry = broker.loop.call_later(_HIGH_WATERMARK_S, self.finish)

    def try_complete(self, changed: Collection[Partition]) -> bool:
        if self._context.connection.closed:
            return True
        self._read()
        if not self._is_satisfied():
            return False
        self._respond()
        return True

    def expire(self) -> None:
        if not self._context.connection.closed:
            self._read()
            self._respond()

    def finish(self) -> None:
        """Responds with what there is, if the request still waits."""
        assert self._operation is not None
        if not self._operation.done:
            self._operation.cancel()
            self.expire()

    def _respond(self) -> None:
        assert self._reply is not None
        self._session.waiting = None
        if self._hurry is not None:
            self._hurry.cancel()
        self._reply.resolve(self._response())

    def _response(self) -> Parts:
        """Returns the response frame. In a session unchanged partitions are left out."""
        session = self._session
        if self._quota is not None:
            self._quota.record(self._copied)
        topics: dict[bytes, list[PartitionData]] = {}
        for wanted, data in self._results.items():
            if self._full or wanted.has_changed(data):
                wanted.mark_sent(data)
                topics.setdefault(wanted.topic_id, []).append(data)
            if wanted.is_settled or wanted.is_answered:
                session.changed.pop(wanted, None)
        return response_frame(self._context, list(topics.items()), session_id=session.session_id)
