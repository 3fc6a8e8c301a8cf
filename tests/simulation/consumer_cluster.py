"""Many clients and one cluster without sockets: the real group coordinator, logs in memory, a network in our hands.

Each connection is served one request at a time, as brokers do it. `Cluster.run` lets everything happen at once and then
jumps to the next deadline; faults say what becomes of requests to come.
"""

import random
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid5

sys.path.insert(0, str(Path(__file__).parents[1] / "coordinator"))

from group_rig import Rig

from barnabas.protocol.messages import (
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_offsets,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from barnabas.types import TopicPartition
from simulation.group_log import Log
from simulation.world import Asked, Link, World, frame_response

FETCH, LIST_OFFSETS, METADATA, COMMIT, COMMITTED, FIND = 1, 2, 3, 8, 9, 10
JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
EPOCH_ENDS = 23
NOT_COORDINATOR = 16
OFFSET_OUT_OF_RANGE, NOT_LEADER = 1, 6
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75
EARLIEST = -2

CUT = "cut"
"""A fault: the connection breaks before the request is handled."""
LOSE = "lose"
"""A fault: the request is handled, and the connection breaks before the answer is out."""
TWICE = "twice"
"""A fault: the answer comes twice."""


class Late(NamedTuple):
    """A fault: the request is handled, and the answer takes its time."""

    seconds: float


class Whole(NamedTuple):
    """A fault: a Fetch is refused as a whole."""

    code: int


class Client(World):
    """One client's engine and its connections."""

    def __init__(self, cluster: "Cluster", name: str, seed: int) -> None:
        super().__init__(nodes=cluster.nodes, seed=seed)
        self.cluster = cluster
        self.name = name
        self.now = self.network_client.now = cluster.now
        self.topics = cluster.topics
        self.epochs = cluster.epochs
        self.up = cluster.up
        self.arrivals: deque[tuple[int, Asked, Any]] = deque()
        """Answers under way: connection, request, response."""
        for api_key in (FETCH, LIST_OFFSETS, EPOCH_ENDS, COMMIT, COMMITTED, FIND, JOIN, HEARTBEAT, LEAVE, SYNC):
            self.handlers[api_key] = cluster.serve

    def serve_one(self) -> bool:
        """Let one answer arrive or one request be handled; whether there was any."""
        while self.arrivals:
            number, asked, response = self.arrivals.popleft()
            link = self.links.get(number)
            if link is not None:
                link.stalled = False
                self.network_client.received(number, frame_response(asked, response), self.now)
                return True
        for link in list(self.links.values()):
            if link.pending and not link.stalled:
                self._serve(link)
                return True
        return False

    def _serve(self, link: Link) -> None:
        fault = self.cluster.fault_for(self, link.pending[0])
        if fault == CUT:
            self.cut(link)
            return
        asked = link.pending.popleft()
        asked.link = link  # type: ignore[attr-defined]
        asked.client = self  # type: ignore[attr-defined]
        asked.fault = fault  # type: ignore[attr-defined]
        self.asked.append(asked)
        link.stalled = True
        if isinstance(fault, Whole):
            self.reply(asked, fetch.FetchResponse(error_code=fault.code))
            return
        if isinstance(fault, int):
            self.reply(asked, refusal(asked, fault))
            return
        response = self.handlers[asked.api_key](asked)
        if response is not None:
            self.reply(asked, response)
        if fault == LOSE:
            self.cut(link)

    def reply(self, asked: Asked, response: Any) -> None:
        arrival = (asked.link.number, asked, response)  # type: ignore[attr-defined]
        fault = asked.fault  # type: ignore[attr-defined]
        if isinstance(fault, Late):
            self.cluster.rig.scheduler.call_later(fault.seconds, lambda: self.arrivals.append(arrival))
        else:
            self.arrivals.append(arrival)
            if fault == TWICE:
                self.arrivals.append(arrival)

    def crash(self) -> None:
        """The process is gone; its connections break."""
        self.cluster.clients.remove(self)
        self.links.clear()


class Cluster:
    """See the module."""

    def __init__(self, topics: dict[str, int], *, nodes: int = 2, **config: Any) -> None:
        self.nodes = nodes
        self.up = set(range(1, nodes + 1))
        self.rig = Rig(**config)
        self.coordinator = 1
        self.topics = {name: {i: 1 + i % nodes for i in range(count)} for name, count in topics.items()}
        self.logs: dict[TopicPartition, Log] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        """Of the partitions' leaders, as metadata tells them."""
        self.clients: list[Client] = []
        self.faults: dict[int, deque[Any]] = {}
        """By API: what becomes of its next requests, whoever sends them."""
        self.parked: list[Asked] = []
        """Fetches that wait for records."""
        self._seeds = random.Random(0)

    @property
    def now(self) -> float:
        return self.rig.scheduler.now

    def client(self, name: str) -> Client:
        client = Client(self, name, self._seeds.randrange(1 << 30))
        self.clients.append(client)
        return client

    def log(self, topic: str, partition: int) -> Log:
        return self.logs.setdefault(TopicPartition(topic, partition), Log())

    def fault_for(self, client: Client, asked: Asked) -> Any:
        waiting = self.faults.get(asked.api_key)
        return waiting.popleft() if waiting else None

    def add_fault(self, api_key: int, *faults: Any) -> None:
        self.faults.setdefault(api_key, deque()).extend(faults)

    def move_coordinator(self, node_id: int) -> None:
        """Another broker coordinates from now on; it reads the log."""
        self.coordinator = node_id
        self.rig.restart()

    def move_leader(self, where: TopicPartition, node_id: int) -> None:
        self.topics[where.topic][where.partition] = node_id
        self.log(*where).epoch += 1
        self.epochs[where] = self.log(*where).epoch

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """What the coordinator has."""
        found: list[Any] = []
        group = OffsetFetchRequestGroup(group_id=group_id)
        group.topics = None  # type: ignore[assignment]
        self.rig.groups.fetch_offsets([group], require_stable=False, reply=found.extend)
        return {
            TopicPartition(topic.name, p.partition_index): p.committed_offset
            for answer in found
            for topic in answer.topics
            for p in topic.partitions
        }

    def stop(self, node_id: int) -> None:
        self.up.discard(node_id)
        for client in self.clients:
            for link in [link for link in client.links.values() if link.node_id == node_id]:
                client.cut(link)

    # --- time -------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Everything that can happen at this moment."""
        for _ in range(100_000):
            if not self._happen():
                return
        raise AssertionError("the cluster does not come to rest")

    def _happen(self) -> bool:
        for client in self.clients:
            client.now = self.now
            if client.turn() or client.serve_one():
                return True
        return False

    def run(self, until: Callable[[], bool] = lambda: False, *, seconds: float = 3600.0) -> bool:
        """False when the time is over before `until()`."""
        end = self.now + seconds
        while not until():
            if self._happen():
                continue
            if until():
                break
            due = min(
                [client.network_client.next_deadline() for client in self.clients] + [self.rig.scheduler.next_due()]
            )
            if due > end:
                self.rig.scheduler.advance(max(end - self.now, 0.0))
                return False
            self.rig.scheduler.advance(max(due - self.now, 1e-6))
        return True

    # --- the brokers ------------------------------------------------------------------------------------------------

    def serve(self, asked: Asked) -> Any:
        client: Client = asked.client  # type: ignore[attr-defined]
        if asked.api_key == FIND:
            client.coordinator = self.coordinator
            return client._find_coordinator(asked)
        if asked.api_key == FETCH:
            return self._fetch(asked)
        if asked.api_key == LIST_OFFSETS:
            return self._list_offsets(asked)
        if asked.api_key == EPOCH_ENDS:
            return self._epoch_ends(asked)
        if asked.node_id != self.coordinator:
            return refusal(asked, NOT_COORDINATOR)
        groups, request = self.rig.groups, asked.request

        def reply(response: Any) -> None:
            client.reply(asked, response)

        if asked.api_key == JOIN:
            groups.join(
                request, client_id=client.name, client_host="/127.0.0.1", api_version=asked.version, reply=reply
            )
        elif asked.api_key == SYNC:
            groups.sync(request, reply=reply)
        elif asked.api_key == HEARTBEAT:
            groups.heartbeat(request, reply=reply)
        elif asked.api_key == LEAVE:
            groups.leave(request, reply=reply)
        elif asked.api_key == COMMIT:
            groups.commit_offsets(request, api_version=asked.version, reply=reply)
        elif asked.api_key == COMMITTED:
            groups.fetch_offsets(
                request.groups,
                require_stable=request.require_stable,
                reply=lambda found: reply(offset_fetch.OffsetFetchResponse(groups=found)),
            )
        return None

    def _list_offsets(self, asked: Asked) -> Any:
        topics = []
        for topic in asked.request.topics:
            partitions = []
            for p in topic.partitions:
                log = self.log(topic.name, p.partition_index)
                end = log.last_stable_offset if asked.request.isolation_level else log.end
                offset = log.start if p.timestamp == EARLIEST else end
                where = TopicPartition(topic.name, p.partition_index)
                code = self._fenced(asked.node_id, where, p.current_leader_epoch)
                partitions.append(
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=p.partition_index, offset=offset, error_code=code, leader_epoch=log.epoch
                    )
                )
            topics.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        return list_offsets.ListOffsetsResponse(topics=topics)

    def _epoch_ends(self, asked: Asked) -> Any:
        topics = []
        for topic in asked.request.topics:
            found = []
            for p in topic.partitions:
                where = TopicPartition(topic.topic, p.partition)
                code = self._fenced(asked.node_id, where, p.current_leader_epoch)
                epoch, end = (-1, -1) if code else self.log(*where).end_of_epoch(p.leader_epoch)
                found.append(
                    offset_for_leader_epoch.EpochEndOffset(
                        partition=p.partition, error_code=code, leader_epoch=epoch, end_offset=end
                    )
                )
            topics.append(offset_for_leader_epoch.OffsetForLeaderTopicResult(topic=topic.topic, partitions=found))
        return offset_for_leader_epoch.OffsetForLeaderEpochResponse(topics=topics)

    def _fenced(self, node_id: int, where: TopicPartition, epoch: int) -> int:
        """The error of a request to that broker with that leader epoch."""
        if self.topics[where.topic].get(where.partition) != node_id:
            return NOT_LEADER
        known = self.log(*where).epoch
        if epoch in (-1, known):
            return 0
        return FENCED_LEADER_EPOCH if epoch < known else UNKNOWN_LEADER_EPOCH

    # --- fetches ----------------------------------------------------------------------------------------------------

    def _fetch(self, asked: Asked) -> Any:
        """At once if there is something, otherwise when there is or the wait is over. Nobody keeps sessions."""
        client: Client = asked.client  # type: ignore[attr-defined]
        answer = self._read(asked)
        if answer is not None:
            return answer
        self.parked.append(asked)

        def give_up() -> None:
            if asked in self.parked:
                self.parked.remove(asked)
                client.reply(asked, self._read(asked, at_once=True))

        self.rig.scheduler.call_later(asked.request.max_wait_ms / 1000, give_up)
        return None

    def written(self) -> None:
        """Records were appended: fetches that waited for them are answered."""
        for asked in list(self.parked):
            answer = self._read(asked)
            if answer is not None:
                self.parked.remove(asked)
                asked.client.reply(asked, answer)  # type: ignore[attr-defined]

    def _read(self, asked: Asked, *, at_once: bool = False) -> Any:
        found = at_once
        topics = []
        for topic in asked.request.topics:
            name = topic.topic or next(name for name in self.topics if topic_id(name) == topic.topic_id)
            partitions = []
            for p in topic.partitions:
                committed = bool(asked.request.isolation_level)
                answer = self._read_partition(asked.node_id, TopicPartition(name, p.partition), p, committed)
                found = found or bool(answer.records or answer.error_code or answer.preferred_read_replica >= 0)
                partitions.append(answer)
            topics.append(fetch.FetchableTopicResponse(topic=name, topic_id=topic.topic_id, partitions=partitions))
        return fetch.FetchResponse(responses=topics) if found else None

    def _read_partition(self, node_id: int, where: TopicPartition, asked: Any, read_committed: bool) -> Any:
        log = self.log(*where)
        answer = fetch.PartitionData(
            partition_index=where.partition,
            high_watermark=log.end,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.start,
            records=b"",
        )
        answer.error_code = self._fenced(node_id, where, asked.current_leader_epoch)
        if answer.error_code:
            return answer
        if not log.start <= asked.fetch_offset <= log.end:
            answer.error_code = OFFSET_OUT_OF_RANGE
            return answer
        offset = asked.fetch_offset
        answer.records = log.read(offset, asked.partition_max_bytes, read_committed=read_committed)
        if read_committed:
            answer.aborted_transactions = [
                fetch.AbortedTransaction(producer_id=producer_id, first_offset=first)
                for producer_id, first in log.aborted_from(offset)
            ]
        return answer


def topic_id(name: str) -> UUID:
    return uuid5(UUID(int=1), name)


def refusal(asked: Asked, code: int) -> Any:
    """The answer to a request that says nothing but this error."""
    request = asked.request
    if asked.api_key == COMMIT:
        return offset_commit.OffsetCommitResponse(
            topics=[
                offset_commit.OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        offset_commit.OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    if asked.api_key == COMMITTED:
        groups = [
            offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups
        ]
        return offset_fetch.OffsetFetchResponse(groups=groups)
    if asked.api_key == FIND:
        found = [find_coordinator.Coordinator(key=key, error_code=code) for key in request.coordinator_keys]
        return find_coordinator.FindCoordinatorResponse(coordinators=found)
    if asked.api_key == FETCH:
        return fetch.FetchResponse(
            responses=[
                fetch.FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        fetch.PartitionData(partition_index=p.partition, error_code=code, records=b"")
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    if asked.api_key == LIST_OFFSETS:
        return list_offsets.ListOffsetsResponse(
            topics=[
                list_offsets.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        list_offsets.ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=code)
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    if asked.api_key == EPOCH_ENDS:
        return offset_for_leader_epoch.OffsetForLeaderEpochResponse(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[
                        offset_for_leader_epoch.EpochEndOffset(partition=p.partition, error_code=code)
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    kinds = {
        JOIN: join_group.JoinGroupResponse,
        SYNC: sync_group.SyncGroupResponse,
        HEARTBEAT: heartbeat.HeartbeatResponse,
        LEAVE: leave_group.LeaveGroupResponse,
    }
    return kinds[asked.api_key](error_code=code)
