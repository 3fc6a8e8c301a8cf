"""The clients of a simulated cluster, which note what they are promised."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable
from typing import Any, Final

import barnabas.aio
from barnabas.errors import BarnabasError
from barnabas.types import TopicPartition
from whole_cluster.cluster import Cluster
from whole_cluster.invariants import RENEWED, Invariants
from whole_cluster.world import SimulationError

__all__ = ["GroupMember", "GroupState", "Renewals", "Transactions", "Writer"]

BACKOFF: Final[dict[str, Any]] = {
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 200,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
}
PARTITIONS: Final = 2


class _Client:
    def __init__(self, cluster: Cluster, invariants: Invariants, name: str) -> None:
        self.name = name
        self.random = random.Random(cluster.world.random.random())
        self.host = cluster.client_host(name)
        self.cluster = cluster
        self.invariants = invariants
        self.is_stopping = False
        self.has_ended = False
        cluster.spawn(self.host, self._run())

    async def _run(self) -> None:
        await self.work()
        self.has_ended = True

    async def work(self) -> None:
        raise NotImplementedError

    async def pause(self, mean_s: float) -> None:
        await asyncio.sleep(self.random.random() * 2 * mean_s)


class Writer(_Client):
    """An idempotent producer. All its records are acknowledged in the end, each is there once, and in order."""

    def __init__(self, cluster: Cluster, invariants: Invariants, name: str, topic: str) -> None:
        self.topic = topic
        self.sent: list[tuple[int, bytes]] = []
        super().__init__(cluster, invariants, name)

    async def work(self) -> None:
        producer = barnabas.aio.Producer(
            bootstrap_servers=self.cluster.bootstrap_servers, acks="all", linger_ms=0,
            delivery_timeout_ms=600_000, request_timeout_ms=3_000, **BACKOFF,
        )  # fmt: skip
        handles = []
        while not self.is_stopping:
            for _ in range(self.random.choice((1, 1, 1, 3))):
                partition = self.random.randrange(PARTITIONS)
                value = f"{self.name}-{len(self.sent)};".encode()
                self.sent.append((partition, value))
                handle = await producer.send(self.topic, value, partition=partition, timestamp=self.host.wall_ms())
                handles.append(asyncio.ensure_future(self._acknowledged(handle, value)))
            await self.pause(0.15)
        await asyncio.gather(*handles)
        await producer.close()

    async def _acknowledged(self, handle: Any, value: bytes) -> None:
        metadata = await handle
        if metadata.offset is not None and metadata.offset >= 0:
            self.invariants.acknowledged(TopicPartition(self.topic, metadata.partition), metadata.offset, value)

    def check(self, contents: dict[int, bytes]) -> None:
        """Checks what the partitions of the topic have in the end."""
        for partition, data in contents.items():
            positions = [data.find(value) for sent_to, value in self.sent if sent_to == partition]
            if -1 in positions:
                raise SimulationError(f"{self.name}: an acknowledged record is lost")
            if positions != sorted(positions):
                raise SimulationError(f"{self.name}: records of {self.topic}-{partition} are not in their order")
            if any(data.count(value) > 1 for _, value in self.sent):
                raise SimulationError(f"{self.name}: a record is there twice")


class GroupState:
    """What is known of a consumer group: its commits and its generation never go back."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.generation = -1


class GroupMember(_Client):
    """A member of a consumer group, which commits what it has read."""

    def __init__(self, cluster: Cluster, invariants: Invariants, name: str, topic: str, group: GroupState) -> None:
        self.topic = topic
        self.group = group
        self.count = 0
        super().__init__(cluster, invariants, name)

    async def work(self) -> None:
        async with barnabas.aio.Consumer(
            self.topic, bootstrap_servers=self.cluster.bootstrap_servers, group_id="readers",
            auto_offset_reset="earliest", enable_auto_commit=False, session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000, request_timeout_ms=5_000, **BACKOFF,
        ) as consumer:  # fmt: skip
            while not self.is_stopping:
                records = await consumer.poll(0.5)
                for record in records:
                    self.invariants.read(TopicPartition(record.topic, record.partition), record.offset, record.value)
                if records:
                    await self._commit(consumer)
                if self.random.random() < 0.1:
                    await self._look(consumer)
                await self.pause(0.05)

    async def _commit(self, consumer: Any) -> None:
        metadata = consumer.group_metadata()
        try:
            await consumer.commit()
        except BarnabasError:
            return
        if metadata.generation_id < self.group.generation:
            raise SimulationError(f"{self.name}: a commit in the old generation {metadata.generation_id} is accepted")
        self.group.generation = metadata.generation_id

    async def _look(self, consumer: Any) -> None:
        """The committed offsets are at least those of before."""
        before = dict(self.group.committed)
        try:
            found = await consumer.committed([TopicPartition(self.topic, index) for index in range(PARTITIONS)])
        except BarnabasError:
            return
        for tp, committed in found.items():
            offset = -1 if committed is None else int(getattr(committed, "offset", committed))
            if offset < before.get(tp, -1):
                raise SimulationError(f"the committed offset of {tp} goes back from {before[tp]} to {offset}")
            self.group.committed[tp] = max(self.group.committed.get(tp, -1), offset)


class Transactions(_Client):
    """A transactional producer. Each transaction writes the same value to both partitions, whole or not at all."""

    def __init__(self, cluster: Cluster, invariants: Invariants, name: str, topic: str) -> None:
        self.topic = topic
        self.outcomes: dict[bytes, bool | None] = {}
        """Whether a transaction was committed, by its value; None if that is unknown."""
        super().__init__(cluster, invariants, name)

    async def work(self) -> None:
        while not self.is_stopping:
            producer = barnabas.aio.Producer(
                bootstrap_servers=self.cluster.bootstrap_servers, transactional_id=self.name, linger_ms=0,
                transaction_timeout_ms=5_000, delivery_timeout_ms=6_000, request_timeout_ms=3_000, **BACKOFF,
            )  # fmt: skip
            try:
                await producer.init_transactions()
                while not self.is_stopping:
                    await self._transaction(producer)
                    await self.pause(0.2)
            except BarnabasError as error:
                self.cluster.world.note(f"{self.name}: {error!r}")
            finally:
                await producer.close(1.0)
            await self.pause(0.2)

    async def _transaction(self, producer: Any) -> None:
        value = f"{self.name}-{len(self.outcomes)};".encode()
        wants_commit = self.random.random() < 0.7
        self.outcomes[value] = None if wants_commit else False
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            await producer.send(self.topic, value, partition=partition, timestamp=self.host.wall_ms())
            if self.random.random() < 0.3:
                await self.pause(0.1)
        if wants_commit:
            await producer.commit_transaction()
            self.outcomes[value] = True
        else:
            await producer.abort_transaction()

    def check(self, contents: dict[int, list[bytes]]) -> None:
        """Checks the records that a reader of committed transactions finds in the partitions."""
        counts = [Counter(values) for values in contents.values()]
        for value, outcome in self.outcomes.items():
            found = [count[value] for count in counts]
            if len(set(found)) > 1 or found[0] > 1:
                raise SimulationError(f"{value!r} is in the partitions {found} times")
            if outcome is not None and bool(found[0]) != outcome:
                raise SimulationError(f"{value!r}: committed {outcome}, found {found[0]} times")


class Renewals(_Client):
    """Deletes a topic and creates it again, with one record each time: a new topic has no record of those before."""

    async def work(self) -> None:
        is_new = False
        async with barnabas.aio.Admin(
            bootstrap_servers=self.cluster.bootstrap_servers, request_timeout_ms=3_000, **BACKOFF
        ) as admin:
            while not (is_new and self.is_stopping):
                is_new = await self._renew(admin)
                await self.pause(0.3)

    async def _renew(self, admin: barnabas.aio.Admin) -> bool:
        """Returns whether there is a new topic with one record. What is not answered may be carried out later."""
        is_gone = await self._did(admin.delete_topics(RENEWED, timeout=5))
        is_made = await self._did(admin.create_topics(RENEWED, timeout=5))
        producer = barnabas.aio.Producer(
            bootstrap_servers=self.cluster.bootstrap_servers, acks="all", linger_ms=0,
            delivery_timeout_ms=6_000, request_timeout_ms=3_000, **BACKOFF,
        )  # fmt: skip
        try:
            handle = await producer.send(RENEWED, self.name.encode(), partition=0, timestamp=self.host.wall_ms())
            metadata = await handle
        except BarnabasError as error:
            self.cluster.world.note(f"{self.name}: {error!r}")
            return False
        finally:
            await producer.close(1.0)
        if is_gone and is_made and metadata.offset > 0:
            raise SimulationError(f"{self.name}: a new topic begins with {metadata.offset} records")
        return is_gone and is_made

    async def _did(self, request: Awaitable[object]) -> bool:
        try:
            await request
        except BarnabasError as error:
            self.cluster.world.note(f"{self.name}: {error!r}")
            return False
        return True
