"""A transaction coordinator on a virtual clock, with a log in memory and a channel for end markers that can fail."""

import itertools
from collections.abc import Callable
from typing import Any

from barnabas.coordinator.coordinator_shard import CoordinatorResult
from barnabas.coordinator.transaction.config import TransactionConfig
from barnabas.coordinator.transaction.end_txn import EndTransaction
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.transaction_marker_channel_manager import EndMarkers
from barnabas.coordinator.transaction.transaction_metadata import TransactionMetadata
from barnabas.errors import KafkaError
from barnabas.types import TopicPartition
from coordinator.group_rig import Later, MemoryLog, VirtualScheduler

Errors = dict[TopicPartition, KafkaError | None]

ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("other", 1)


class MarkerChannel:
    """Notes what is sent. `errors` are answered once each, by partition; `held` keeps all answers back."""

    def __init__(self) -> None:
        self.sent: list[EndMarkers] = []
        self.written: list[tuple[TopicPartition, EndMarkers]] = []
        self.errors: dict[TopicPartition, list[KafkaError]] = {}
        self.held = False
        self.held_partitions: set[TopicPartition] = set()
        """The partitions whose answers alone are kept back."""
        self._waiting: list[tuple[EndMarkers, Callable[[Errors], None]]] = []

    def __call__(self, markers: EndMarkers, reply: Callable[[Errors], None]) -> None:
        self.sent.append(markers)
        if self.held:
            self._waiting.append((markers, reply))
        else:
            self._answer(markers, reply)

    def release(self) -> None:
        self.held = False
        self.held_partitions.clear()
        waiting, self._waiting = self._waiting, []
        for markers, reply in waiting:
            self._answer(markers, reply)

    def _answer(self, markers: EndMarkers, reply: Callable[[Errors], None]) -> None:
        errors: Errors = {}
        for partition in markers.partitions:
            if partition in self.held_partitions:
                self._waiting.append((markers._replace(partitions=(partition,)), reply))
                continue
            queue = self.errors.get(partition)
            errors[partition] = queue.pop(0) if queue else None
            if errors[partition] is None:
                self.written.append((partition, markers))
        if errors:
            reply(errors)


class TransactionRig:
    """One broker's coordinator; `restart` reads the log again with a new one."""

    def __init__(self, partitions: int = 1, **config: Any) -> None:
        self.scheduler = VirtualScheduler()
        self.log = MemoryLog()
        self.markers = MarkerChannel()
        self.config = TransactionConfig(**config)
        self.partitions = partitions
        self.epoch = 0
        self.producer_ids = itertools.count(1000)
        self.is_in_doubt = False
        """The process stood still."""
        self.no_producer_ids: KafkaError | None = None
        self.transactions = self._make()

    def new_producer_id(self) -> int:
        if self.no_producer_ids is not None:
            raise self.no_producer_ids
        return next(self.producer_ids)

    def _make(self) -> TransactionCoordinator:
        transactions = TransactionCoordinator(
            config=self.config,
            log=self.log,
            scheduler=self.scheduler,
            wall_ms=self.scheduler.wall_ms,
            partition_count=lambda: self.partitions,
            new_producer_id=self.new_producer_id,
            send_markers=self.markers,
            may_be_replaced=lambda: self.is_in_doubt,
        )
        self.epoch += 1
        for partition in range(self.partitions):
            transactions.on_elected(partition, self.epoch)
        self.scheduler.advance(0.001)
        return transactions

    def restart(self) -> None:
        self.transactions.shutdown()
        self.markers.held = False
        self.transactions = self._make()

    def advance(self, seconds: float) -> None:
        self.scheduler.advance(seconds)

    def settle(self) -> None:
        """All that needs no time happens."""
        self.scheduler.advance(0.0)

    def shard(self, transactional_id: str = "t") -> Any:
        return self.transactions.runtime.peek(self.transactions.partition_for(transactional_id))

    def metadata(self, transactional_id: str = "t") -> TransactionMetadata:
        found: TransactionMetadata = self.shard(transactional_id).transactions[transactional_id]
        return found

    def state(self, transactional_id: str = "t") -> str:
        return self.metadata(transactional_id).state.kafka_name

    def put(self, transactional_id: str, **changes: Any) -> None:
        """Write what the coordinator would need thousands of requests to get to."""
        record = TransactionRecord(transactional_id, self.metadata(transactional_id)._replace(**changes))
        partition = self.transactions.partition_for(transactional_id)
        self.transactions.runtime.run(partition, lambda shard: CoordinatorResult([record]), Later())

    # --- requests -----------------------------------------------------------------------------------------------------

    def init_later(self, transactional_id: str = "t", timeout_ms: int = 60_000, **options: Any) -> Later:
        later = Later()
        self.transactions.init_producer_id(transactional_id, timeout_ms, **options, reply=later)
        return later

    def init(self, transactional_id: str = "t", timeout_ms: int = 60_000, **options: Any) -> Any:
        return self.init_later(transactional_id, timeout_ms, **options).value

    def producer(self, transactional_id: str = "t", timeout_ms: int = 60_000, **options: Any) -> tuple[int, int]:
        answer = self.init(transactional_id, timeout_ms, **options)
        assert not isinstance(answer, KafkaError), answer
        return answer.producer_id, answer.producer_epoch

    def add_later(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        transactional_id: str = "t",
        transaction_version: int = 2,
    ) -> Later:
        later = Later()
        self.transactions.add_partitions(
            transactional_id,
            producer,
            partitions or (ORDERS,),
            transaction_version=transaction_version,
            reply=later,
        )
        return later

    def add(self, producer: tuple[int, int], *partitions: TopicPartition, **options: Any) -> Any:
        return self.add_later(producer, *partitions, **options).value

    def end_later(
        self,
        producer: tuple[int, int],
        commit: bool = True,
        *,
        transactional_id: str = "t",
        transaction_version: int = 2,
    ) -> Later:
        later = Later()
        request = EndTransaction(transactional_id, *producer, commit, transaction_version)
        self.transactions.end_transaction(request, reply=later)
        return later

    def end(self, producer: tuple[int, int], commit: bool = True, **options: Any) -> Any:
        return self.end_later(producer, commit, **options).value

    def describe(self, transactional_id: str = "t") -> Any:
        later = Later()
        self.transactions.describe(transactional_id, reply=later)
        return later.value

    def verify_or_add(
        self, producer: tuple[int, int], *partitions: TopicPartition, verify_only: bool, transactional_id: str = "t"
    ) -> Any:
        later = Later()
        self.transactions.verify_or_add(
            transactional_id, *producer, partitions or (ORDERS,), verify_only=verify_only, reply=later
        )
        return later.value


def prepared_rig(commit: bool = True) -> tuple[TransactionRig, tuple[int, int]]:
    """A transaction whose end markers are held back."""
    rig = TransactionRig()
    producer = rig.producer()
    rig.add(producer, ORDERS, OTHER)
    rig.markers.held = True
    after = rig.end(producer, commit)
    rig.settle()
    assert rig.state() == ("PrepareCommit" if commit else "PrepareAbort")
    return rig, after
