"""The fetch sessions of followers at their leader: one for each follower, which no consumer can evict.

A session watches its partitions, so that a request costs as much as there are partitions that it names or that have
changed since the last response, however many are in the session. Source: KIP-227.
"""

import random
from typing import Final, Protocol
from uuid import UUID

from barnabas.clock import Clock
from barnabas.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch, UnknownTopicId
from barnabas.protocol.fetch import PartitionData
from barnabas.protocol.fetch_session import NO_SESSION, next_epoch
from barnabas.protocol.follower_fetch import FollowerFetchRequest
from barnabas.replication.partition import Partition
from barnabas.replication.replica import FollowerFetch
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.types import BrokerId

__all__ = ["FollowerFetchSession", "FollowerFetchSessions", "FollowerPartition", "WaitingFetch"]

_UNKNOWN: Final = -1


class WaitingFetch(Protocol):
    """A request of the session that waits for records."""

    def partition_changed(self, partition: Partition) -> None:
        """Called when there may be records, or an error."""

    def offsets_moved(self) -> None:
        """Called when there are no records, but another high watermark or log start."""

    def finish(self) -> None:
        """Responds with what there is."""


class FollowerPartition:
    """A partition of a session: the follower's fetch, and what the follower was last sent."""

    __slots__ = (
        "fetch",
        "high_watermark",
        "is_answered",
        "is_settled",
        "log_start_offset",
        "max_bytes",
        "number",
        "partition",
        "topic_id",
    )

    def __init__(self, topic_id: bytes, number: int, fetch: FollowerFetch, max_bytes: int) -> None:
        self.topic_id = topic_id
        self.number = number
        self.fetch = fetch
        self.max_bytes = max_bytes
        self.partition: Partition | None = None
        self.high_watermark = _UNKNOWN
        self.log_start_offset = _UNKNOWN
        self.is_answered = False
        """Whether a response had records or an error. The follower then names or forgets the partition, perhaps not by
        its next request, which may be on its way already."""
        self.is_settled = False
        """Whether the follower had all records at the last read, and is in sync."""

    def has_changed(self, data: PartitionData) -> bool:
        """Returns whether an incremental response must contain the partition."""
        return (
            data.records is not None
            or data.error_code != 0
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.diverging_epoch is not None
        )

    def mark_sent(self, data: PartitionData) -> None:
        self.is_answered = data.records is not None or data.error_code != 0 or data.diverging_epoch is not None
        self.high_watermark = data.high_watermark
        self.log_start_offset = data.log_start_offset


class FollowerFetchSession:
    """The partitions that one follower fetches from this broker. Watches them (`replication.partition.Watcher`).

    `changed` holds those that the next response may have to contain, in the order in which they are served: named by a
    request, or changed since. The follower's position counts as confirmed by every request of the session, also for the
    others: so Kafka's rule about replica.lag.time.max.ms holds for them. A partition whose records were sent is not
    served again before the follower has named it.
    """

    __slots__ = (
        "_by_partition",
        "_partitions",
        "_replicas",
        "broker_epoch",
        "changed",
        "epoch",
        "last_used",
        "replica_id",
        "session_id",
        "waiting",
    )

    def __init__(self, session_id: int, replica_id: BrokerId, replicas: ReplicaManager) -> None:
        self.session_id = session_id
        self.replica_id = replica_id
        self.broker_epoch = -1
        self.epoch = 1
        """The epoch that the next request must have."""
        self.changed: dict[FollowerPartition, None] = {}
        self.waiting: WaitingFetch | None = None
        self.last_used = 0.0
        self._replicas = replicas
        self._partitions: dict[tuple[bytes, int], FollowerPartition] = {}
        """The partitions by topic id and number."""
        self._by_partition: dict[Partition, FollowerPartition] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def update(self, request: FollowerFetchRequest, now: float) -> None:
        """Applies the partitions that a request adds, changes and forgets."""
        if self.waiting is not None:
            self.waiting.finish()
            self.waiting = None
        self.last_used = now
        self.broker_epoch = request.replica_epoch
        for key in request.forgotten:
            self._forget(key)
        for topic_id, number, leader_epoch, offset, last_epoch, start, max_bytes in request.partitions:
            key = topic_id, number
            fetch = FollowerFetch(offset, leader_epoch, last_epoch, start)  # type: ignore[arg-type]
            known = self._partitions.get(key)
            if known is None:
                known = self._partitions[key] = FollowerPartition(topic_id, number, fetch, max_bytes)
            else:
                if fetch == known.fetch:  # the follower could not use the last answer
                    known.high_watermark = known.log_start_offset = _UNKNOWN
                known.fetch, known.max_bytes, known.is_answered = fetch, max_bytes, False
            self.changed[known] = None  # behind those that were not served last time

    def _forget(self, key: tuple[bytes, int]) -> None:
        known = self._partitions.pop(key, None)
        if known is not None:
            self.changed.pop(known, None)
            self._unwatch(known)

    def _unwatch(self, known: FollowerPartition) -> None:
        partition, known.partition = known.partition, None
        if partition is not None:
            partition.watchers.pop(self, None)
            self._by_partition.pop(partition, None)

    def resolve(self, known: FollowerPartition) -> Partition:
        """Returns the partition, and watches it. Raises UnknownTopicId, UnknownTopicOrPartition, NotLeaderOrFollower,
        KafkaStorageError."""
        partition = known.partition
        if partition is None or partition.is_retired:
            self._unwatch(known)
            name = self._replicas.topic_name(UUID(bytes=known.topic_id))
            if name is None:
                raise UnknownTopicId(f"no topic has the id {UUID(bytes=known.topic_id)}")
            partition = known.partition = self._replicas.leader_of(name, known.number)
            partition.watchers[self] = None
            self._by_partition[partition] = known
        return partition

    def partition_changed(self, partition: Partition) -> None:
        known = self._by_partition.get(partition)
        if known is None or known.is_answered:
            return
        fetch = known.fetch
        if known not in self.changed:
            self.changed[known] = None
            partition.follower_had_all(self.replica_id, fetch, self.last_used)
        if self.waiting is None:
            return
        if (
            partition.log.log_end_offset != fetch.fetch_offset
            or partition.leader_epoch != fetch.leader_epoch
            or not partition.is_leader
        ):
            self.waiting.partition_changed(partition)
        else:
            self.waiting.offsets_moved()

    def quota_available(self) -> None:
        """Called by the quota for which throttled partitions wait. It has the next turn."""
        if self.waiting is not None:
            self.waiting.finish()

    def close(self) -> None:
        """Ends the session."""
        if self.waiting is not None:
            self.waiting.finish()
        for known in self._partitions.values():
            self._unwatch(known)
        self._partitions.clear()
        self.changed.clear()


class FollowerFetchSessions:
    """The sessions of all followers. A new session of a follower ends the one before."""

    def __init__(self, replicas: ReplicaManager, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock
        self._sessions: dict[BrokerId, FollowerFetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, request: FollowerFetchRequest, replica_id: BrokerId, *, is_kept: bool = True
    ) -> FollowerFetchSession:
        """Begins a session for a full request. One that is not kept has the id 0, and is good for this request."""
        self.end(replica_id)
        session_id = random.randrange(1, 2**31) if is_kept else NO_SESSION
        session = FollowerFetchSession(session_id, replica_id, self._replicas)
        self._sessions[replica_id] = session
        session.update(request, self._clock.monotonic())
        return session

    def resume(self, request: FollowerFetchRequest, replica_id: BrokerId) -> FollowerFetchSession:
        """Returns the session of an incremental request, with its changes applied. Raises FetchSessionIdNotFound,
        InvalidFetchSessionEpoch."""
        session = self._sessions.get(replica_id)
        if session is None or session.session_id != request.session_id or session.session_id == NO_SESSION:
            raise FetchSessionIdNotFound(f"broker {replica_id} has no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise InvalidFetchSessionEpoch(f"session epoch {request.session_epoch} came, {session.epoch} was due")
        session.epoch = next_epoch(session.epoch)
        session.update(request, self._clock.monotonic())
        return session

    def end(self, replica_id: BrokerId) -> None:
        """Ends the session of a follower, if there is one."""
        session = self._sessions.pop(replica_id, None)
        if session is not None:
            session.close()
