"""A cluster that answers Fetch, for fetchers without a network client: logs of real batches, leaders, epochs, sessions.

Sessions are those of our broker (`FetchSessionCache`), so both sides of KIP-227 are held against each other. Requests
and answers go through the codec in the version that is spoken.
"""

from dataclasses import dataclass, field
from uuid import UUID, uuid4

from barnabas.broker.fetch_sessions import FetchPartition, FetchSessionCache, wanted_partitions
from barnabas.client.fetch.fetch_request import FetchTask
from barnabas.connection.metadata import Metadata
from barnabas.errors import KafkaError
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages import fetch as messages
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.records.batch import iter_batches
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.types import TopicPartition

NEWEST = 18


class HandClock:
    """Time that moves when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


@dataclass
class Log:
    """Records as (epoch, value); batches are cut where the epoch changes, and every `per_batch` records."""

    leader: int = 0
    epoch: int = 0
    start: int = 0
    records: list[tuple[int, bytes]] = field(default_factory=list)
    """From offset 0 on; those below `start` are gone."""
    per_batch: int = 3
    error: int = 0
    """What every Fetch is answered with."""

    @property
    def end(self) -> int:
        return len(self.records)

    def append(self, count: int) -> None:
        """Each value names itself and the one before it, so that a reader can tell one history from another."""
        for _ in range(count):
            before = self.records[-1][1].split()[0] if self.records else b"nothing"
            self.records.append(
                (self.epoch, b"%d.%d.%s after %s" % (self.epoch, self.end, uuid4().hex[:8].encode(), before))
            )

    def batches(self) -> list[bytes]:
        found: list[bytes] = []
        at = 0
        while at < self.end:
            epoch = self.records[at][0]
            count = 1
            while count < self.per_batch and at + count < self.end and self.records[at + count][0] == epoch:
                count += 1
            records = [Record(0, 1000 + i, None, self.records[i][1]) for i in range(at, at + count)]
            if at + count > self.start:
                found.append(build_batch(records, base_offset=at, partition_leader_epoch=epoch))
            at += count
        return found

    def read(self, offset: int, max_bytes: int) -> bytes:
        out = b""
        for batch in self.batches():
            header, _ = next(iter_batches(batch))
            if header.next_offset <= offset:
                continue
            if out and len(out) + len(batch) > max_bytes:
                # brokers cut what they send where the bytes end
                return out + batch[: max(0, max_bytes - len(out))]
            out += batch
        return out

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """What OffsetsForLeaderEpoch answers."""
        epochs = [each for each, _ in self.records]
        if epoch >= self.epoch:
            return (self.epoch, self.end) if epoch == self.epoch else (-1, -1)
        lower = [each for each in epochs if each <= epoch]
        if not lower:
            return epoch, 0
        return max(lower), len(lower)


class Cluster:
    """Nodes 1 to `nodes`; every partition is known to every node."""

    def __init__(self, counts: dict[str, int], *, nodes: int = 2, version: int = NEWEST, slots: int = 10) -> None:
        self.version = version
        self.ids = {name: uuid4() for name in counts}
        self.clock = HandClock()
        self.caches = {node: FetchSessionCache(slots, self.clock) for node in range(1, nodes + 1)}
        self.logs = {
            TopicPartition(name, index): Log(leader=1 + index % nodes)
            for name, count in counts.items()
            for index in range(count)
        }
        self.replies_with_leader = True
        self.preferred: dict[TopicPartition, int] = {}
        """Where the leader sends consumers."""
        self.follower_ends: dict[TopicPartition, int] = {}
        """How far followers are, where they are behind."""

    def metadata(self, into: Metadata) -> None:
        """Metadata as it is now."""
        names = {name: [w for w in self.logs if w.topic == name] for name in self.ids}
        topics = [
            MetadataResponseTopic(
                name=name,
                topic_id=self.ids[name],
                partitions=[
                    MetadataResponsePartition(
                        partition_index=where.partition,
                        leader_id=self.logs[where].leader,
                        leader_epoch=self.logs[where].epoch,
                        replica_nodes=list(self.caches),
                        isr_nodes=list(self.caches),
                    )
                    for where in partitions
                ],
            )
            for name, partitions in names.items()
        ]
        brokers = [MetadataResponseBroker(node_id=node, host="host", port=9000 + node) for node in self.caches]
        into.take_in(MetadataResponse(brokers=brokers, topics=topics), None, self.clock.now)

    def fetch(self, task: FetchTask) -> messages.FetchResponse:
        """What the node answers at once."""
        version = self.version if task.at_most is None else min(self.version, task.at_most)
        data = encode(task.request(version), version)
        request, end = decode(messages.FetchRequest, version, data)
        assert end == len(data)
        answer = self._answer(task.node, request, version)
        response, _ = decode(messages.FetchResponse, version, encode(answer, version), parts=True)
        return response

    def _answer(self, node: int, request: messages.FetchRequest, version: int) -> messages.FetchResponse:
        cache = self.caches[node]
        session = None
        partitions: list[FetchPartition]
        if version < 7 or request.session_epoch in (0, -1):
            partitions = list(wanted_partitions(request, version))
            if request.session_id:
                cache.end(request.session_id)
            if version >= 7 and request.session_epoch == 0 and partitions:
                session = cache.begin(request, version, partitions)
            full = True
        else:
            try:
                session = cache.resume(request, version)
            except KafkaError as error:
                return messages.FetchResponse(error_code=error.code)
            partitions, full = list(session.partitions.values()), False
        topics: dict[str | UUID, list[messages.PartitionData]] = {}
        for wanted in partitions:
            data = self._partition(node, wanted)
            if full or data.records or data.error_code or data.preferred_read_replica >= 0:
                topics.setdefault(wanted.topic, []).append(data)
        return messages.FetchResponse(
            session_id=0 if session is None else session.session_id,
            responses=[
                messages.FetchableTopicResponse(topic_id=key, partitions=found)
                if isinstance(key, UUID)
                else messages.FetchableTopicResponse(topic=key, partitions=found)
                for key, found in topics.items()
            ],
            node_endpoints=[messages.NodeEndpoint(node_id=n, host="host", port=9000 + n) for n in self.caches],
        )

    def _partition(self, node: int, wanted: FetchPartition) -> messages.PartitionData:
        name = wanted.topic
        if isinstance(name, UUID):
            name = next((each for each, topic_id in self.ids.items() if topic_id == wanted.topic), "")
            if not name:
                return messages.PartitionData(partition_index=wanted.partition, error_code=100)
        where = TopicPartition(name, wanted.partition)
        log = self.logs.get(where)
        if log is None:
            return messages.PartitionData(partition_index=wanted.partition, error_code=3)
        code = log.error or self._fenced(node, where, log, wanted.current_leader_epoch)
        if code:
            told = code in (6, 74) and self.replies_with_leader
            leader = messages.LeaderIdAndEpoch(leader_id=log.leader, leader_epoch=log.epoch) if told else None
            return messages.PartitionData(partition_index=wanted.partition, error_code=code, current_leader=leader)
        end = log.end if node == log.leader else min(log.end, self.follower_ends.get(where, log.end))
        data = messages.PartitionData(
            partition_index=wanted.partition, high_watermark=end, last_stable_offset=end, log_start_offset=log.start
        )
        if not log.start <= wanted.fetch_offset <= end:
            data.error_code = 1
        elif node == log.leader and self.version >= 11 and self.preferred.get(where, node) != node:
            data.preferred_read_replica = self.preferred[where]
        elif wanted.fetch_offset < end:
            data.records = log.read(wanted.fetch_offset, wanted.max_bytes)
        return data

    def _fenced(self, node: int, where: TopicPartition, log: Log, epoch: int) -> int:
        if epoch >= 0 and epoch != log.epoch:
            return 74 if epoch < log.epoch else 75
        return 0 if node in (log.leader, self.preferred.get(where)) else 6
