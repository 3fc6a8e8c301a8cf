"""The partitions and group offsets that are in a transaction or are being added to it, and the end of a transaction.

With transaction.version 2 (KIP-890) a Produce request adds its partitions, and the producer gets its next epoch at the
end of every transaction. With 0 and 1 the producer adds partitions and groups before it writes, and the epoch goes up
only after records were given up (KIP-360).
"""

from collections.abc import Mapping
from typing import Protocol

from barnabas.client.offset_messages import GroupMetadata, OffsetAndMetadata
from barnabas.client.producer.partition_batches import PartitionBatches
from barnabas.client.producer.record_accumulator import RecordAccumulator
from barnabas.client.producer.transactions.coordinator_client import CoordinatorClient
from barnabas.client.producer.transactions.errors import ABORTABLE
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise, resolved
from barnabas.errors import BarnabasError, ClientError, InvalidTxnState, KafkaError
from barnabas.types import TopicPartition

__all__ = ["TransactionContents"]


class TransactionRules(Protocol):
    """The part of the transaction manager that the contents of its transaction use."""

    @property
    def may_send(self) -> bool:
        """Whether partitions and offsets may still be added."""

    def refusal(self, what: str) -> BarnabasError:
        """Returns the error of the call `what`, which is not allowed now."""

    def request_failed(self, error: KafkaError | ClientError) -> BarnabasError:
        """Fails the transaction or the producer after a failed request. Returns the error for the application."""


class TransactionContents:
    """The contents of the open transaction."""

    def __init__(
        self,
        client: NetworkClient,
        accumulator: RecordAccumulator,
        coordinator: CoordinatorClient,
        rules: TransactionRules,
    ) -> None:
        self.implicit = False
        """Whether a Produce request adds its partitions (transaction.version 2)."""
        self.partitions: set[TopicPartition] = set()
        """The partitions in the transaction."""
        self._to_add: dict[TopicPartition, None] = {}
        self._adding = False
        self._offsets_under_way = 0
        self._offsets_before: Promise[None] = resolved(None)
        """Settled when no offsets are in flight: a retry of earlier offsets must not overtake later ones."""
        self.started = False
        """Whether the transaction may exist at the coordinator."""
        self.surely_started = False
        self._client = client
        self._accumulator = accumulator
        self._coordinator = coordinator
        self._rules = rules

    # --- adding -----------------------------------------------------------------------------------------------------

    def maybe_add_partition(self, topic_partition: TopicPartition) -> bool:
        """Returns whether the partition is in the transaction. If not, the partition will be added."""
        if topic_partition in self.partitions:
            return True
        if self.implicit:
            self.partitions.add(topic_partition)
            self.started = True
            return True
        self._to_add[topic_partition] = None
        return False

    @property
    def has_partitions_to_add(self) -> bool:
        """Whether partitions wait for `add_partitions`."""
        return bool(self._to_add) and not self._adding

    async def add_partitions(self) -> None:
        self._adding = True
        try:
            while self._to_add and self._rules.may_send:
                adding = list(self._to_add)
                self.started = True
                await self._coordinator.add_partitions(adding, lambda: self._rules.may_send)
                self.surely_started = True
                self.partitions.update(adding)
                for topic_partition in adding:
                    del self._to_add[topic_partition]
        except (KafkaError, ClientError) as error:
            self._rules.request_failed(error)
        finally:
            self._adding = False

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        before, mine = self._offsets_before, Promise[None]()
        self._offsets_before = mine
        self._offsets_under_way += 1
        try:
            await before
            if not self._rules.may_send:
                raise self._rules.refusal("send_offsets_to_transaction")
            self.started = True
            wanted = lambda: self._rules.may_send  # noqa: E731
            if not self.implicit:
                await self._coordinator.add_group(group.group_id, wanted)
                self.surely_started = True
            await self._coordinator.commit_offsets(offsets, group, implicit=self.implicit, wanted=wanted)
            self.surely_started = True
        except (KafkaError, ClientError) as error:
            raise self._rules.request_failed(error) from error
        finally:
            self._offsets_under_way -= 1
            mine.resolve(None)

    def drop_waiting(self) -> None:
        """Drops the partitions that were not added yet."""
        self._to_add.clear()

    # --- ending -----------------------------------------------------------------------------------------------------

    def is_quiet(self) -> bool:
        """Whether no batch or offset of the transaction is queued or in flight."""
        return (
            self._accumulator.is_idle()
            and not self._adding
            and not self._offsets_under_way
            and not any(partition.in_flight for partition in self._accumulator.partitions.values())
        )

    async def until_nothing_is_late(self) -> None:
        """Waits until no bytes of a lost connection can reach the brokers, which would add them to the next
        transaction."""
        quiet_from = max((written.quiet_from for written in self._written() if written.gap is not None), default=0.0)
        if quiet_from > self._client.now:
            over: Promise[None] = Promise()
            self._client.at(quiet_from, lambda: over.resolve(None))
            await over

    async def end(self, commit: bool) -> None:
        """Asks the coordinator to end the transaction, and raises the epoch if sequences have gaps."""
        bump = not self.implicit and any(written.gap is not None for written in self._written())
        if self.started:
            try:
                await self._coordinator.end(commit, implicit=self.implicit)
            except InvalidTxnState:
                if commit or self.surely_started:
                    raise
            except ABORTABLE:
                if commit:
                    raise
                bump = True  # InitProducerId aborts the transaction that is open under this id
        if bump:
            await self._coordinator.init_producer_id(self._coordinator.ids.current)
        current = self._coordinator.ids.current
        for written in self._written():  # these partitions go on under the producer's next epoch
            if written.producer_id_and_epoch != current:
                written.restart_sequences(current)

    def _written(self) -> list[PartitionBatches]:
        """Returns the batches of the transaction's partitions."""
        found = (self._accumulator.partitions.get(topic_partition) for topic_partition in self.partitions)
        return [batches for batches in found if batches is not None]

    def clear(self) -> None:
        """Drops the contents of the transaction, which has ended."""
        self.partitions.clear()
        self.started = self.surely_started = False
