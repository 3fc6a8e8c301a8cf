"""Committed offsets of the groups of one partition: commit, fetch, delete, expire.

Offsets change in `replay` alone. Those of a transaction stay apart until its end marker commits or drops them. Source:
OffsetMetadataManager; KIP-211 (expiry), KIP-447 (stable offsets), KIP-848 (topic ids).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.coordinator.group.classic_group import ClassicGroup, ClassicGroupState
from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.records import ZERO_UUID, OffsetCommit, OffsetCommitValue
from barnabas.errors import GroupSubscribedToTopic, OffsetMetadataTooLarge, UnstableOffsetCommit
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.types import NO_OFFSET, NO_PRODUCER_ID, NO_TIMESTAMP, LeaderEpoch, Offset, ProducerId

__all__ = ["OffsetMetadataManager", "StoredOffset"]

NO_RETENTION_TIME: Final = -1

Key = tuple[str, str, int]
"""(group, topic, partition)"""


class StoredOffset(NamedTuple):
    """A committed offset and the offset of its record in the log."""

    value: OffsetCommitValue
    record_offset: Offset


class OffsetMetadataManager:
    """Offsets by group, topic and partition."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._groups: dict[str, dict[str, dict[int, StoredOffset]]] = {}
        self._pending: dict[ProducerId, dict[Key, StoredOffset]] = {}
        """The offsets of open transactions by producer id."""
        self._open: dict[str, dict[Key, set[ProducerId]]] = {}
        """The producers whose open transactions have an offset, by group and offset: a fetch must not walk all
        producers."""

    # --- reading ------------------------------------------------------------------------------------------------------

    def has_any(self, group_id: str) -> bool:
        """Returns whether the group has an offset, committed or in a transaction."""
        return group_id in self._groups or group_id in self._open

    def has_open_transactions(self, group_id: str) -> bool:
        return group_id in self._open

    def groups(self) -> set[str]:
        """Returns the groups that have an offset, committed or in a transaction."""
        return {*self._groups, *self._open}

    def _pending_keys(self, group_id: str) -> Iterator[Key]:
        yield from self._open.get(group_id, ())

    def _is_pending(self, key: Key) -> bool:
        return key in self._open.get(key[0], ())

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        stored = self._groups.get(group_id, {}).get(topic, {}).get(partition)
        return None if stored is None else stored.value

    def snapshot(self) -> dict[Key, OffsetCommitValue]:
        """Returns all committed offsets, for tools and tests."""
        return {
            (group_id, topic, partition): stored.value
            for group_id, topics in self._groups.items()
            for topic, partitions in topics.items()
            for partition, stored in partitions.items()
        }

    def fetch(
        self, group_id: str, topics: Iterable[OffsetFetchRequestTopics], require_stable: bool
    ) -> list[OffsetFetchResponseTopics]:
        """Returns the requested offsets; -1 where nothing is committed, or only for an older topic of the same name."""
        committed = self._groups.get(group_id, {})
        responses = []
        for topic in topics:
            stored = committed.get(topic.name, {})
            partitions = []
            for partition in topic.partition_indexes:
                unstable = require_stable and self._is_pending((group_id, topic.name, partition))
                partitions.append(_fetched(partition, stored.get(partition), topic.topic_id, unstable))
            responses.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        return responses

    def fetch_all(self, group_id: str, require_stable: bool) -> list[OffsetFetchResponseTopics]:
        """Returns all committed offsets of the group. The topics come without their ids."""
        return [
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[
                    _fetched(
                        partition,
                        stored,
                        ZERO_UUID,
                        require_stable and self._is_pending((group_id, topic, partition)),
                    )
                    for partition, stored in partitions.items()
                ],
            )
            for topic, partitions in self._groups.get(group_id, {}).items()
        ]

    # --- deciding -----------------------------------------------------------------------------------------------------

    def commit(self, request: OffsetCommitRequest, now_ms: int) -> tuple[list[OffsetCommit], OffsetCommitResponse]:
        """Returns the records and the response of a commit whose sender was checked. Topics have name and id."""
        retention_ms = request.retention_time_ms
        expires = NO_TIMESTAMP if retention_ms == NO_RETENTION_TIME else now_ms + retention_ms
        records: list[OffsetCommit] = []
        topics = []
        for topic in request.topics:
            place = (request.group_id, topic.name)
            added, results = self._commit(place, topic.partitions, now_ms, expires, topic.topic_id)
            records += added
            partitions = [OffsetCommitResponsePartition(partition_index=i, error_code=code) for i, code in results]
            topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        return records, OffsetCommitResponse(topics=topics)

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, now_ms: int
    ) -> tuple[list[OffsetCommit], TxnOffsetCommitResponse]:
        """Does the same for a commit within a transaction, which has no retention time."""
        records: list[OffsetCommit] = []
        topics = []
        for topic in request.topics:
            place = (request.group_id, topic.name)
            added, results = self._commit(place, topic.partitions, now_ms, topic_id=topic.topic_id)
            records += added
            partitions = [TxnOffsetCommitResponsePartition(partition_index=i, error_code=code) for i, code in results]
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        return records, TxnOffsetCommitResponse(topics=topics)

    def _commit(
        self,
        place: tuple[str, str],
        partitions: Sequence[OffsetCommitRequestPartition] | Sequence[TxnOffsetCommitRequestPartition],
        now_ms: int,
        expire_timestamp: int = NO_TIMESTAMP,
        topic_id: UUID = ZERO_UUID,
    ) -> tuple[list[OffsetCommit], list[tuple[int, int]]]:
        """Returns the records for one topic of a group, and an error code for each partition."""
        metadata_max_bytes = self._config.offset_metadata_max_bytes
        group_id, name = place
        records: list[OffsetCommit] = []
        results: list[tuple[int, int]] = []
        for partition in partitions:
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            if len(metadata) > metadata_max_bytes:
                results.append((index, OffsetMetadataTooLarge.code))
                continue
            results.append((index, 0))
            value = OffsetCommitValue(
                offset=Offset(partition.committed_offset),
                leader_epoch=LeaderEpoch(partition.committed_leader_epoch),
                metadata=metadata,
                commit_timestamp=now_ms,
                expire_timestamp=expire_timestamp,
                topic_id=topic_id,
            )
            records.append(OffsetCommit(group_id, name, index, value))
        return records, results

    def delete(
        self, group: ClassicGroup, request: OffsetDeleteRequest
    ) -> tuple[list[OffsetCommit], OffsetDeleteResponse]:
        """Returns tombstones for offsets of topics that no member of the group is subscribed to."""
        records: list[OffsetCommit] = []
        topics = []
        for topic in request.topics:
            code = GroupSubscribedToTopic.code if group.is_subscribed_to(topic.name) else 0
            partitions = []
            for entry in topic.partitions:
                index = entry.partition_index
                partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
                key = (group.group_id, topic.name, index)
                if code == 0 and (self.get(*key) is not None or self._is_pending(key)):
                    records.append(OffsetCommit(*key, None))
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        return records, OffsetDeleteResponse(topics=topics)

    def tombstones(self, group_id: str) -> list[OffsetCommit]:
        keys = {
            (group_id, topic, partition): None
            for topic, partitions in self._groups.get(group_id, {}).items()
            for partition in partitions
        }
        keys |= dict.fromkeys(self._pending_keys(group_id))
        return [OffsetCommit(*key, None) for key in keys]

    def tombstones_of_partitions(self, gone: Callable[[str, int], bool]) -> list[OffsetCommit]:
        keys = {
            (group_id, topic, partition): None
            for group_id, topics in self._groups.items()
            for topic, partitions in topics.items()
            for partition in partitions
            if gone(topic, partition)
        }
        keys |= {key: None for offsets in self._pending.values() for key in offsets if gone(key[1], key[2])}
        return [OffsetCommit(*key, None) for key in keys]

    def expired(self, group: ClassicGroup, now_ms: int) -> tuple[list[OffsetCommit], bool]:
        """Returns the tombstones of expired offsets, and whether no offset would be left (KIP-211).

        An offset of a simple group expires offsets.retention.minutes after its commit. In a group with members an
        offset also stays as long as its topic is subscribed; in an empty group the time runs from when the group became
        empty.
        """
        topics = self._groups.get(group.group_id)
        if topics is None:
            return [], not self.has_open_transactions(group.group_id)
        empty_since = None
        if group.protocol_type is not None and group.is_in(ClassicGroupState.EMPTY):
            empty_since = group.state_since_ms
        elif group.protocol_type is not None:
            stable = group.is_in(ClassicGroupState.STABLE) and group.uses_consumer_protocol()
            if not stable or group.subscribed_topics is None:
                return [], False
        records: list[OffsetCommit] = []
        everything = not self.has_open_transactions(group.group_id)
        for topic, partitions in topics.items():
            subscribed = group.is_subscribed_to(topic)
            for partition, stored in partitions.items():
                key = (group.group_id, topic, partition)
                if subscribed or self._is_pending(key) or not self._is_over(stored.value, empty_since, now_ms):
                    everything = False
                else:
                    records.append(OffsetCommit(*key, None))
        return records, everything

    def _is_over(self, value: OffsetCommitValue, empty_since: int | None, now_ms: int) -> bool:
        if value.expire_timestamp != NO_TIMESTAMP:
            return now_ms >= value.expire_timestamp
        since = value.commit_timestamp if empty_since is None else empty_since
        return now_ms - since >= self._config.offsets_retention_ms

    # --- applying -----------------------------------------------------------------------------------------------------

    def replay(self, record_offset: Offset, producer_id: ProducerId, record: OffsetCommit) -> None:
        key = (record.group_id, record.topic, record.partition)
        if record.value is None:
            self._remove(key)
            for open_id in tuple(self._open.get(record.group_id, {}).get(key, ())):
                self._drop_pending(open_id, key)
            return
        stored = StoredOffset(record.value, record_offset)
        if producer_id == NO_PRODUCER_ID:
            self._put(key, stored)
        else:
            self._pending.setdefault(producer_id, {})[key] = stored
            self._open.setdefault(record.group_id, {}).setdefault(key, set()).add(producer_id)

    def replay_end_transaction(self, producer_id: ProducerId, committed: bool) -> None:
        """Commits the offsets of the transaction, except where a later commit has replaced them, or drops them."""
        for key, stored in tuple(self._pending.get(producer_id, {}).items()):
            self._drop_pending(producer_id, key)
            if not committed:
                continue
            current = self._groups.get(key[0], {}).get(key[1], {}).get(key[2])
            if current is None or current.record_offset < stored.record_offset:
                self._put(key, stored)

    def _drop_pending(self, producer_id: ProducerId, key: Key) -> None:
        offsets = self._pending[producer_id]
        if offsets.pop(key, None) is None:
            return
        if not offsets:
            del self._pending[producer_id]
        of_group = self._open[key[0]]
        of_group[key].discard(producer_id)
        if not of_group[key]:
            del of_group[key]
            if not of_group:
                del self._open[key[0]]

    def _put(self, key: Key, stored: StoredOffset) -> None:
        group_id, topic, partition = key
        self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = stored

    def _remove(self, key: Key) -> None:
        group_id, topic, partition = key
        topics = self._groups.get(group_id)
        if topics is None or topic not in topics:
            return
        topics[topic].pop(partition, None)
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self._groups[group_id]


def _fetched(
    partition: int, stored: StoredOffset | None, topic_id: UUID, unstable: bool
) -> OffsetFetchResponsePartitions:
    if unstable:
        return OffsetFetchResponsePartitions(
            partition_index=partition, committed_offset=NO_OFFSET, error_code=UnstableOffsetCommit.code
        )
    value = None if stored is None else stored.value
    if value is None or (topic_id != ZERO_UUID and value.topic_id not in (ZERO_UUID, topic_id)):
        return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=NO_OFFSET)
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )
