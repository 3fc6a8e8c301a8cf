"""Two replicas of a few partitions: real fetchers, fetch handlers, partitions and logs, on a virtual clock and network.

Requests and responses are encoded, arrive late, and are lost with their connection. One seed decides all that happens.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from barnabas.broker.cluster.follower_fetch_sessions import FollowerFetchSessions
from barnabas.broker.cluster.replica_fetcher_manager import ReplicaFetcherManager
from barnabas.broker.handlers.peers import fetch as fetch_handler
from barnabas.broker.handlers.records import list_offsets
from barnabas.broker.process.failure_log import FailureLog
from barnabas.broker.purgatory import DelayedOperationPurgatory
from barnabas.config.broker import BrokerConfig
from barnabas.config.log_config import LogConfig
from barnabas.connection.broker.client_request import ClientRequest, connection_lost
from barnabas.errors import KafkaError
from barnabas.log.directories.disk import Disk
from barnabas.log.log_manager import LogManager
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.network.time_slicing import TimeSlicer
from barnabas.protocol.apis import message_classes
from barnabas.protocol.schema import Request
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.types import BrokerId, LeaderEpoch
from hand_clock import HandClock
from replication.rig import validated_batch

__all__ = ["Simulation"]

VERSION = 18
NODES = (BrokerId(1), BrokerId(2))
TOPIC_ID = UUID(int=77)
HEALED_S = 200.0
"""The time in which replicas become equal, even if the follower gets one batch after each sync."""
CONFIG = LogConfig(min_insync_replicas=1, segment_bytes=1000)


class QuickDisk(Disk):
    @staticmethod
    def fdatasync(fd: int) -> None: ...


class Reply:
    """The place of a late response on a connection."""

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.on_abandoned: Callable[[], None] | None = None
        self.parts: Any = None

    def resolve(self, parts: Any) -> None:
        self.parts = parts
        self.connection.flush()

    def fail(self, reason: str) -> None:
        raise AssertionError(reason)


class Connection:
    """The connection of one node to the other one. Responses leave in the order of the requests."""

    def __init__(self, simulation: "Simulation", sender: "Node", receiver: "Node") -> None:
        self.simulation = simulation
        self.sender = sender
        self.receiver = receiver
        self.closed = False
        self.in_flight: deque[ClientRequest] = deque()
        self.replies: deque[Reply] = deque()

    def send(self, request: ClientRequest) -> None:
        assert request.encode is not None
        body = b"".join(request.encode(VERSION))
        self.in_flight.append(request)
        self.simulation.later(partial(self._arrive, body))

    def _arrive(self, body: bytes) -> None:
        if self.closed:
            return
        reply = Reply(self)
        self.replies.append(reply)
        context: Any = SimpleNamespace(
            api_version=VERSION,
            correlation_id=1,
            connection=self,
            pending_reply=lambda: reply,
            peer=SimpleNamespace(identity=SimpleNamespace(node_id=self.sender.node_id)),
        )
        receiver: Any = self.receiver
        result = fetch_handler.handle_frame(receiver, memoryview(body), 0, context)
        if result is not reply:
            reply.parts = result
        self.flush()

    def flush(self) -> None:
        while self.replies and self.replies[0].parts is not None:
            parts = self.replies.popleft().parts
            data = b"".join(part if isinstance(part, bytes) else part.read() for part in parts)
            self.simulation.later(partial(self._respond, data))

    def _respond(self, data: bytes) -> None:
        if not self.closed:
            request = self.in_flight.popleft()
            assert request.decode is not None
            request.done(request.decode(data, 9, VERSION), None)

    def close(self) -> None:
        self.closed = True
        for reply in self.replies:
            if reply.on_abandoned is not None:
                reply.on_abandoned()
        for request in self.in_flight:
            request.done(None, connection_lost("peer", "request", "lost"))


class Node:
    """A broker without its network: the services of its handlers and of its fetchers."""

    def __init__(self, simulation: "Simulation", node_id: BrokerId, directory: Path, *, fsync: bool) -> None:
        self.simulation = simulation
        self.node_id = node_id
        self.loop = simulation.loop
        self.config = BrokerConfig.of({"log.dirs": str(directory), "replica.fetch.max.bytes": simulation.max_bytes})
        self.failures = FailureLog(logging.getLogger("simulation"), simulation.clock)
        self.time_slicer = TimeSlicer(self.loop)
        self.purgatory = DelayedOperationPurgatory(self.loop)
        self.disk = QuickDisk()
        self.log_manager = LogManager([directory], simulation.clock, disk=self.disk)
        self.log_manager.startup(lambda topic: CONFIG, node_id=node_id)
        self.to_flush: set[Partition] = set()
        self.replica_manager = ReplicaManager(
            node_id, self.log_manager, lambda topic: CONFIG, logging.getLogger("simulation"),
            flush_behind=self.to_flush.add if fsync else None,
        )  # fmt: skip
        self.follower_fetch_sessions = FollowerFetchSessions(self.replica_manager, simulation.clock)
        self.image = MetadataImage()
        self.manager: ReplicaFetcherManager | None = None
        self.connection: Connection | None = None
        self.log = logging.getLogger("simulation")

    @property
    def peers(self) -> Any:
        return self

    def submit_isr_change(self, change: object) -> None: ...

    def send_request(self, node_id: int, request: ClientRequest, *, role: object) -> None:
        if self.connection is None or self.connection.closed:
            self.connection = Connection(self.simulation, self, self.simulation.nodes[node_id])
        self.connection.send(request)

    def send(self, node_id: int, request: Request) -> "asyncio.Future[Any]":
        """Answers ListOffsets, on another connection."""
        receiver: Any = self.simulation.nodes[node_id]
        context: Any = SimpleNamespace(api_version=11, is_broker=True)
        future = self.loop.create_future()
        assert message_classes(2)[0] is type(request)

        def answer() -> None:
            response = list_offsets.handle(receiver, request, context)  # type: ignore[arg-type]
            topics = [SimpleNamespace(name=topic.name, partitions=list(topic.partitions)) for topic in response.topics]
            self.simulation.later(lambda: future.done() or future.set_result(SimpleNamespace(topics=topics)))

        self.simulation.later(answer)
        return future

    def take(self, image: MetadataImage) -> None:
        self.image = image
        self.replica_manager.apply(image)
        if self.manager is None:
            self.manager = ReplicaFetcherManager(self)  # type: ignore[arg-type]
        else:
            self.manager.image_changed(image, None)

    def flush(self) -> None:
        to_flush = list(self.to_flush)
        self.to_flush.clear()
        for each in to_flush:
            each.log.flush()
            each.flushed()


class Simulation:
    """Runs on a loop with virtual time."""

    def __init__(self, directory: Path, seed: int, *, fsync: bool = False, partitions: int = 3) -> None:
        self.random = random.Random(seed)
        self.loop = asyncio.get_running_loop()
        self.clock = HandClock()
        self.max_bytes = self.random.choice([1, 150, 1_000_000])
        self.fsync = fsync
        self.nodes: dict[int, Node] = {}
        self.count = 0
        self.committed: dict[tuple[int, int], bytes] = {}
        """The batches that were below a high watermark, by partition and base offset."""
        self.deleted = dict.fromkeys(range(partitions), 0)
        self.partitions = [
            PartitionImage(self.random.choice(NODES), LeaderEpoch(0), NODES, NODES, 0) for _ in range(partitions)
        ]
        self._version = 0
        self._due = 0.0
        for node_id in NODES:
            (directory / str(node_id)).mkdir()
            self.nodes[node_id] = Node(self, node_id, directory / str(node_id), fsync=fsync)
        for node in self.nodes.values():
            node.take(self.image())

    def image(self) -> MetadataImage:
        self._version += 1
        brokers = {node_id: BrokerImage(node_id, 5, ()) for node_id in NODES}
        topics = {"t": TopicImage("t", TOPIC_ID, tuple(self.partitions))}
        return MetadataImage("cluster", version=self._version, brokers=brokers, topics=topics)

    def later(self, action: Callable[[], object]) -> None:
        """Delivers something, in the order in which it was sent."""
        self._due = max(self._due + 1e-6, self.loop.time() + self.random.choice([0.0, 0.001, 0.02]))
        self.loop.call_at(self._due, action)

    # --- events -----------------------------------------------------------------------------------------------------

    async def run(self, steps: int) -> None:
        events: list[tuple[int, Callable[[], None]]] = [
            (40, self.append),
            (4, self.elect),
            (10, self.tell),
            (2, self.break_connection),
            (2, self.end_session),
            (2, self.delete_records),
            (2, self.fail_disk),
            (20 if self.fsync else 0, self.flush),
        ]
        weights = [weight for weight, _ in events]
        for _ in range(steps):
            self.random.choices(events, weights)[0][1]()
            await asyncio.sleep(self.random.choice([0, 0, 0.001, 0.03, 0.3]))
            self.clock.now = 1000 + self.loop.time()
            self.check()
        await self.heal()

    def replica(self, node_id: int, number: int) -> Partition:
        found = self.nodes[node_id].replica_manager.get("t", number)
        assert found is not None
        return found

    def append(self) -> None:
        number = self.random.randrange(len(self.partitions))
        for node_id in NODES:
            replica = self.replica(node_id, number)
            if replica.is_leader:
                for _ in range(self.random.choice([1, 1, 3, 100])):
                    self.count += 1
                    try:
                        replica.append_as_leader(validated_batch(b"%d" % self.count), -1)
                    except KafkaError:
                        return

    def elect(self) -> None:
        """Elects a leader. The nodes learn of it later, one before the other."""
        number = self.random.randrange(len(self.partitions))
        before = self.partitions[number]
        self.partitions[number] = before._replace(
            leader=self.random.choice(NODES),
            leader_epoch=before.leader_epoch + 1,
            partition_epoch=before.partition_epoch + 1,
        )

    def tell(self) -> None:
        self.nodes[self.random.choice(NODES)].take(self.image())

    def break_connection(self) -> None:
        connection = self.nodes[self.random.choice(NODES)].connection
        if connection is not None and not connection.closed:
            connection.close()

    def end_session(self) -> None:
        node = self.nodes[self.random.choice(NODES)]
        node.follower_fetch_sessions.end(NODES[0] if node.node_id == NODES[1] else NODES[1])

    def delete_records(self) -> None:
        number = self.random.randrange(len(self.partitions))
        for node_id in NODES:
            replica = self.replica(node_id, number)
            if replica.is_leader and replica.log.high_watermark > replica.log.log_start_offset:
                replica.delete_records(replica.log.high_watermark)
                self.deleted[number] = max(self.deleted[number], replica.log.log_start_offset)

    def fail_disk(self) -> None:
        disk = self.nodes[self.random.choice(NODES)].disk
        if disk.__dict__:
            disk.__dict__.clear()
            return

        def refuse(*_: object) -> int:
            raise OSError(28, "no space")

        disk.__dict__.update(pwritev=refuse)

    def flush(self) -> None:
        self.nodes[self.random.choice(NODES)].flush()

    # --- checks -----------------------------------------------------------------------------------------------------

    def batches(self, node_id: int, number: int) -> dict[int, bytes]:
        log = self.replica(node_id, number).log
        found: dict[int, bytes] = {}
        for segment in log.segments:
            data, position = segment.read(0, segment.size), 0
            while position < len(data):
                size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
                found[int.from_bytes(data[position : position + 8], "big")] = data[position : position + size]
                position += size
        return found

    def check(self) -> None:
        """A batch below a high watermark stays what it is."""
        for node_id in NODES:
            for number in range(len(self.partitions)):
                log = self.replica(node_id, number).log
                assert log.high_watermark <= log.log_end_offset
                for offset, batch in self.batches(node_id, number).items():
                    if offset < log.high_watermark:
                        assert self.committed.setdefault((number, offset), batch) == batch
        for number, offset in self.committed:
            leaders = [replica for node in NODES if (replica := self.replica(node, number)).is_leader]
            newest = max(leaders, key=lambda replica: replica.leader_epoch, default=None)
            if newest is not None and offset >= self.deleted[number]:
                assert newest.log.log_end_offset > offset, f"{number}: the leader has lost {offset}"

    async def heal(self) -> None:
        for node in self.nodes.values():
            node.disk.__dict__.clear()
            node.take(self.image())
        until = self.loop.time() + HEALED_S
        while self.loop.time() < until and not all(map(self.is_equal, range(len(self.partitions)))):
            await asyncio.sleep(0.02)
            self.clock.now = 1000 + self.loop.time()
            for node in self.nodes.values():
                node.flush()
        self.check()
        for number in range(len(self.partitions)):
            assert self.is_equal(number), [str(self.replica(node_id, number).log.offsets) for node_id in NODES]
            # a leader that was elected before it learned of a deletion may have more of the old records
            start = max(self.replica(node_id, number).log.log_start_offset for node_id in NODES)
            one, two = (
                {offset: batch for offset, batch in self.batches(node_id, number).items() if offset >= start}
                for node_id in NODES
            )
            assert one == two

    def is_equal(self, number: int) -> bool:
        """Returns whether both replicas have the same offsets, and all records are committed."""
        one, two = (self.replica(node_id, number).log for node_id in NODES)
        return one.log_end_offset == two.log_end_offset == one.high_watermark == two.high_watermark

    def close(self) -> None:
        for node in self.nodes.values():
            if node.manager is not None:
                node.manager.shutdown()
            node.log_manager.shutdown(flush=False)
