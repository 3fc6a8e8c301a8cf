"""Incremental fetch sessions: the broker remembers a consumer's partitions, so that both sides send only changes.

Bounded by max.incremental.fetch.session.cache.slots and by the partitions that all sessions have together; a full
cache evicts the session idle for longest, if that is over two minutes.
Source: KIP-227; KIP-516 for topic ids.
"""

import random
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from barnabas.clock import Clock
from barnabas.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from barnabas.protocol.fetch import TOPIC_IDS_FROM, PartitionData
from barnabas.protocol.fetch_session import next_epoch
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.types import LeaderEpoch, Offset

__all__ = ["FetchPartition", "FetchSession", "FetchSessionCache"]

_EVICTION_IDLE_S: Final = 120.0
_PARTITIONS_MAX: Final = 1_000_000
"""The bound on the partitions of all sessions, about 200 MB. Requests above it are served without a session."""

Key = tuple[str | UUID, int]


class FetchPartition:
    """A partition of a fetch session: what the consumer requested, and what it was last sent."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "topic",
    )

    def __init__(
        self,
        topic: str | UUID,
        partition: int,
        fetch_offset: Offset,
        max_bytes: int,
        current_leader_epoch: LeaderEpoch,
        last_fetched_epoch: LeaderEpoch,
    ) -> None:
        self.topic = topic
        """The topic's name up to Fetch v12, its id from v13 on."""
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.high_watermark = -1
        self.log_start_offset = -1

    def has_changed(self, data: PartitionData) -> bool:
        """Returns whether an incremental response must contain the partition."""
        return (
            data.records is not None
            or data.error_code != 0
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.preferred_read_replica != -1
            or data.diverging_epoch is not None
        )

    def mark_sent(self, data: PartitionData) -> None:
        self.high_watermark = data.high_watermark
        self.log_start_offset = data.log_start_offset
        if data.error_code != 0:
            # An error is repeated in each response until it is gone.
            self.high_watermark = -1


def wanted_partitions(request: FetchRequest, version: int) -> Iterable[FetchPartition]:
    """Returns the partitions that a request names, each once: the last mention counts."""
    wanted = {(partition.topic, partition.partition): partition for partition in _named_partitions(request, version)}
    return wanted.values()


def _named_partitions(request: FetchRequest, version: int) -> Iterable[FetchPartition]:
    by_id = version >= TOPIC_IDS_FROM
    for topic in request.topics:
        key: str | UUID = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            yield FetchPartition(
                key,
                partition.partition,
                partition.fetch_offset,  # type: ignore[arg-type]
                partition.partition_max_bytes,
                partition.current_leader_epoch,  # type: ignore[arg-type]
                partition.last_fetched_epoch,  # type: ignore[arg-type]
            )


class FetchSession:
    """The partitions of one consumer at one broker, in the order in which they are served."""

    __slots__ = ("epoch", "last_used", "partitions", "session_id", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, partitions: Iterable[FetchPartition], now: float) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.partitions: OrderedDict[Key, FetchPartition] = OrderedDict(
            ((partition.topic, partition.partition), partition) for partition in partitions
        )
        self.epoch = 1
        """The epoch that the next request must have."""
        self.last_used = now

    def update(self, request: FetchRequest, version: int) -> None:
        """Applies the partitions that an incremental request adds, changes and forgets."""
        partitions = self.partitions
        for wanted in wanted_partitions(request, version):
            known = partitions.get((wanted.topic, wanted.partition))
            if known is None:
                partitions[wanted.topic, wanted.partition] = wanted
                continue
            known.fetch_offset = wanted.fetch_offset
            known.max_bytes = wanted.max_bytes
            known.current_leader_epoch = wanted.current_leader_epoch
            known.last_fetched_epoch = wanted.last_fetched_epoch
        for topic in request.forgotten_topics_data:
            key: str | UUID = topic.topic_id if self.uses_topic_ids else topic.topic
            for partition in topic.partitions:
                partitions.pop((key, partition), None)
        self.epoch = next_epoch(self.epoch)

    def move_to_end(self, wanted: FetchPartition) -> None:
        """Moves a partition whose records were sent to the end of the order, so that the others are served first."""
        key = (wanted.topic, wanted.partition)
        if key in self.partitions:  # a later request may have forgotten it while this one waited
            self.partitions.move_to_end(key)


class FetchSessionCache:
    """All sessions of a broker, first the one that has been idle for longest."""

    def __init__(self, slots: int, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, version: int, partitions: list[FetchPartition]) -> FetchSession | None:
        """Begins a session for a full request. Returns None if there is no room: the consumer then continues with full
        requests."""
        now = self._clock.monotonic()
        while len(self._sessions) >= self._slots or self._partition_count + len(partitions) > _PARTITIONS_MAX:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used < _EVICTION_IDLE_S:
                return None
            self.end(oldest.session_id)
        session_id = random.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = random.randrange(1, 2**31)
        session = FetchSession(session_id, version >= TOPIC_IDS_FROM, partitions, now)
        self._sessions[session_id] = session
        self._partition_count += len(session.partitions)
        return session

    def resume(self, request: FetchRequest, version: int) -> FetchSession:
        """Returns the session of an incremental request, with its changes applied. Raises the session errors of
        KIP-227."""
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise InvalidFetchSessionEpoch(f"session epoch {request.session_epoch} came, {session.epoch} was due")
        if session.uses_topic_ids != (version >= TOPIC_IDS_FROM):
            raise FetchSessionTopicIdError("the session began with the other kind of topic keys")
        before = len(session.partitions)
        session.update(request, version)
        self._partition_count += len(session.partitions) - before
        if self._partition_count > _PARTITIONS_MAX:
            self.end(session.session_id)
            raise FetchSessionIdNotFound("no room for the session's partitions")
        session.last_used = self._clock.monotonic()
        self._sessions.move_to_end(session.session_id)
        return session

    def end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)
