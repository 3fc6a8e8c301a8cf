"""A coordinator on a virtual clock and a log in memory, and a small language for stories about groups."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any

from barnabas import errors
from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.group_coordinator import GroupCoordinator
from barnabas.coordinator.group.rebalance_history import Trigger
from barnabas.errors import KafkaError, KafkaStorageError, UnstableOffsetCommit
from barnabas.log.producers.verification_guards import VerificationGuard
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.records.batch import iter_batches, read_header, set_crc

FENCED = errors.FencedInstanceId.code
FULL = errors.GroupMaxSizeReached.code
ILLEGAL = errors.IllegalGeneration.code
INCONSISTENT = errors.InconsistentGroupProtocol.code
MEMBER_ID_REQUIRED = errors.MemberIdRequired.code
REBALANCE = errors.RebalanceInProgress.code
UNKNOWN = errors.UnknownMemberId.code


class VirtualScheduler:
    """Time that jumps from timer to timer."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self._timers: list[tuple[float, int, Callable[[], None], list[bool]]] = []
        self._ids = itertools.count()

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> "Handle":
        cancelled = [False]
        heapq.heappush(self._timers, (self.now + delay_s, next(self._ids), callback, cancelled))
        return Handle(cancelled)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            due, _, callback, cancelled = heapq.heappop(self._timers)
            self.now = max(self.now, due)
            if not cancelled[0]:
                callback()
        self.now = end

    def next_due(self) -> float:
        """The time of the next timer; infinity if there is none."""
        while self._timers and self._timers[0][3][0]:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else float("inf")

    def pending(self) -> int:
        return sum(not cancelled[0] for *_, cancelled in self._timers)


class Handle:
    def __init__(self, cancelled: list[bool]) -> None:
        self._cancelled = cancelled

    def cancel(self) -> None:
        self._cancelled[0] = True


class MemoryLog:
    """Partitions as lists of batches. `replicated` off holds the high watermark until `commit`."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.ends: dict[int, int] = {}
        self.marks: dict[int, int] = {}
        self.replicated = True
        self.fail: KafkaError | None = None
        self.max_bytes = 1024**2
        self.appends = 0
        self.reads = 0

    def append(
        self,
        partition: int,
        batch: bytes,
        leader_epoch: int,
        *,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> int:
        if self.fail is not None:
            raise self.fail
        self.appends += 1
        end = self.ends.get(partition, 0)
        header = read_header(batch)
        placed = bytearray(batch)
        placed[0:8] = end.to_bytes(8, "big")
        set_crc(placed)
        self.batches.setdefault(partition, []).append(bytes(placed))
        self.ends[partition] = end + header.record_count
        if self.replicated:
            self.marks[partition] = self.ends[partition]
        return self.ends[partition]

    def commit(self, partition: int) -> int:
        self.marks[partition] = self.ends.get(partition, 0)
        return self.marks[partition]

    def truncate(self, partition: int) -> None:
        """Drops the batches that are not replicated, as the next leader does not have them."""
        end = self.marks.get(partition, 0)
        kept = [batch for batch in self.batches.get(partition, []) if read_header(batch).last_offset < end]
        self.batches[partition], self.ends[partition] = kept, end

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        self.reads += 1
        out = b""
        for batch in self.batches.get(partition, []):
            if read_header(batch).last_offset >= offset:
                if out and len(out) + len(batch) > max_bytes:
                    break
                out += batch
        return out

    def log_range(self, partition: int) -> tuple[int, int]:
        return 0, self.ends.get(partition, 0)

    def high_watermark(self, partition: int) -> int:
        return self.marks.get(partition, 0)

    def max_batch_bytes(self, partition: int) -> int:
        return self.max_bytes


class Later:
    """An answer that is there or not yet; more than one is a failure."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def __call__(self, response: Any) -> None:
        self.answers.append(response)
        assert len(self.answers) == 1, self.answers

    @property
    def done(self) -> bool:
        return bool(self.answers)

    @property
    def value(self) -> Any:
        assert self.answers, "no answer yet"
        return self.answers[0]

    @property
    def error(self) -> int:
        return int(self.value.error_code)


SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\6orders" + b"\xff\xff\xff\xff"
"""ConsumerProtocolSubscription v0 of the topic "orders"."""


class Rig:
    """One broker's coordinator; `restart` reads the log again with a new one."""

    def __init__(self, partitions: int = 1, *, scheduler: VirtualScheduler | None = None, **config: Any) -> None:
        self.scheduler = scheduler or VirtualScheduler()
        self.log = MemoryLog()
        self.config = GroupConfig(**({"settle_ms": 0} | config))
        self.partitions = partitions
        self.epoch = 0
        self._ids = itertools.count(1)
        self.groups = self._make()

    def _make(self) -> GroupCoordinator:
        groups = GroupCoordinator(
            config=self.config,
            log=self.log,
            scheduler=self.scheduler,
            wall_ms=self.scheduler.wall_ms,
            partition_count=lambda: self.partitions,
            new_id=lambda: str(next(self._ids)),
        )
        self.epoch += 1
        for partition in range(self.partitions):
            groups.on_elected(partition, self.epoch)
        self.scheduler.advance(0.001)
        return groups

    def restart(self) -> None:
        self.groups.shutdown()
        self.groups = self._make()

    def advance(self, seconds: float) -> None:
        self.scheduler.advance(seconds)

    def shard(self, group_id: str = "g") -> Any:
        return self.groups.runtime.peek(self.groups.partition_for(group_id))

    def group(self, group_id: str = "g") -> Any:
        shard = self.shard(group_id)
        return None if shard is None else shard.groups.get(group_id)

    def state(self, group_id: str = "g") -> str:
        return str(self.group(group_id).state.value)

    # --- requests -----------------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        client: str = "c",
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        version: int = 9,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        reason: str | None = None,
    ) -> Later:
        later = Later()
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in (protocols if protocols is not None else {"range": SUBSCRIPTION}).items()
            ],
            reason=reason,
        )
        self.groups.join(request, client_id=client, client_host="/127.0.0.1", api_version=version, reply=later)
        return later

    def join_twice(self, **options: Any) -> Later:
        """As a client since KIP-394: without an id, then with the one it got."""
        first: JoinGroupResponse = self.join(**options).value
        assert first.error_code == 79, first
        return self.join(first.member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
    ) -> Later:
        later = Later()
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=data)
                for name, data in (assignments or {}).items()
            ],
        )
        self.groups.sync(request, reply=later)
        return later

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> int:
        later = Later()
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        self.groups.heartbeat(request, reply=later)
        return later.error

    def leave(self, *members: str, group: str = "g", instances: tuple[str, ...] = (), reason: str | None = None) -> Any:
        later = Later()
        identities = [MemberIdentity(member_id=name, group_instance_id=None, reason=reason) for name in members]
        identities += [MemberIdentity(member_id="", group_instance_id=name, reason=reason) for name in instances]
        self.groups.leave(LeaveGroupRequest(group_id=group, members=identities), reply=later)
        return later.value

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        member_id: str = "",
        generation: int = -1,
        group: str = "g",
        instance: str | None = None,
        version: int = 9,
        metadata: str | None = "",
        retention_ms: int = -1,
    ) -> Later:
        later = Later()
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            generation_id_or_member_epoch=generation,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        self.groups.commit_offsets(request, api_version=version, reply=later)
        return later

    def commit_in_transaction(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        producer: tuple[int, int] = (9, 0),
        member_id: str = "",
        generation: int = -1,
        group: str = "g",
        instance: str | None = None,
        metadata: str | None = "",
        version: int = 5,
    ) -> Later:
        later = Later()
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id="mine",
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            generation_id=generation,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        self.groups.commit_transactional_offsets(request, None, api_version=version, reply=later)
        return later

    def end_transaction(self, *, commit: bool, producer: tuple[int, int] = (9, 0), group: str = "g") -> Later:
        later = Later()
        self.groups.end_transaction(
            self.groups.partition_for(group),
            producer_id=producer[0],
            producer_epoch=producer[1],
            commit=commit,
            coordinator_epoch=0,
            transaction_version=1,
            reply=later,
        )
        return later

    def commit_code(self, *arguments: Any, **options: Any) -> int:
        return int(self.commit(*arguments, **options).value.topics[0].partitions[0].error_code)

    def fetch(
        self,
        topic: str = "orders",
        partitions: tuple[int, ...] = (0,),
        *,
        group: str = "g",
        require_stable: bool = False,
    ) -> list[int]:
        """-2 stands for an offset that is not decided yet."""
        later = Later()
        wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))]
        self.groups.fetch_offsets(
            [OffsetFetchRequestGroup(group_id=group, topics=wanted)], require_stable=require_stable, reply=later
        )
        answered = later.value[0]
        assert answered.error_code == 0, answered
        unstable = UnstableOffsetCommit.code
        return [-2 if p.error_code == unstable else p.committed_offset for p in answered.topics[0].partitions]

    def fetch_everything(self, group: str = "g") -> dict[tuple[str, int], int]:
        later = Later()
        self.groups.fetch_offsets(
            [OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=False, reply=later
        )
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in later.value[0].topics
            for partition in topic.partitions
        }

    # --- whole stories ------------------------------------------------------------------------------------------------

    def stable(self, *clients: str, **options: Any) -> list[str]:
        """A stable group of these clients, each assigned its own name; returns the member ids, leader first."""
        ids: list[str] = []
        for client in clients:
            joined = self.join_twice(client=client, **options)
            again = {name: self.join(name, **options) for name in ids}
            new = joined.value
            assert new.error_code == 0
            ids.append(new.member_id)
            leader = new.leader
            generation = new.generation_id
            del again
        assignments = {name: name.encode() for name in ids}
        for name in sorted(ids, key=lambda one: one == leader):
            self.sync(name, generation, assignments if name == leader else None)
        assert self.state() == "Stable"
        return ids

    @property
    def generation(self) -> int:
        return int(self.group().generation_id)


def failing() -> KafkaStorageError:
    return KafkaStorageError("the disk is full")


def triggers(rig: Rig, group: str = "g") -> list[Trigger]:
    return [event.trigger for event in rig.groups.history(group)]


def batches_of(data: bytes) -> list[bytes]:
    return [bytes(batch) for _, batch in iter_batches(data)]
