"""What is in the transaction that is open and what is on its way into it: partitions, offsets of groups; and its end.

With transaction.version 2 (KIP-890) a partition joins by being written to, and every end gives the producer its next
epoch; with 0 and 1 partitions and groups are added first, and the epoch goes up only when records were given up
(KIP-360).
"""

from collections.abc import Mapping
from typing import Protocol

from barnabas.client.offset_messages import GroupMetadata, OffsetAndMetadata
from barnabas.client.producer.record_accumulator import RecordAccumulator
from barnabas.client.producer.transactions.coordination import Coordination
from barnabas.client.producer.transactions.requests import ABORTABLE
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise, resolved
from barnabas.errors import BarnabasError, ClientError, InvalidTxnState, KafkaError
from barnabas.types import TopicPartition

__all__ = ["TransactionContents"]


class Rules(Protocol):
    """What the producer's state allows."""

    @property
    def may_send(self) -> bool:
        """Whether the transaction still takes something in."""

    def refusal(self, what: str) -> BarnabasError:
        """Why `what` cannot be done now."""

    def refused(self, error: KafkaError | ClientError) -> BarnabasError:
        """A request failed: what that means, and what to tell."""


class TransactionContents:
    """See the module."""

    def __init__(
        self, client: NetworkClient, accumulator: RecordAccumulator, coordination: Coordination, rules: Rules
    ) -> None:
        self.implicit = False
        """Partitions join by being written to (transaction.version 2)."""
        self.partitions: set[TopicPartition] = set()
        """Those in the transaction."""
        self._to_add: dict[TopicPartition, None] = {}
        self._adding = False
        self._offsets_under_way = 0
        self._offsets_before: Promise[None] = resolved(None)
        """Settled when nobody's offsets are on their way: later ones must not be overtaken by a repeat."""
        self.started = False
        """The coordinator may know of the transaction."""
        self.surely_started = False
        self._client = client
        self._accumulator = accumulator
        self._coordination = coordination
        self._rules = rules

    # --- joining ----------------------------------------------------------------------------------------------------

    def may_write(self, where: TopicPartition) -> bool:
        """Whether the partition is in the transaction; if not it will be."""
        if where in self.partitions:
            return True
        if self.implicit:
            self.partitions.add(where)
            self.started = True
            return True
        self._to_add[where] = None
        return False

    @property
    def is_to_add(self) -> bool:
        """Whether partitions wait for somebody to add them."""
        return bool(self._to_add) and not self._adding

    async def add_partitions(self) -> None:
        self._adding = True
        try:
            while self._to_add and self._rules.may_send:
                adding = list(self._to_add)
                self.started = True
                await self._coordination.add_partitions(adding, lambda: self._rules.may_send)
                self.surely_started = True
                self.partitions.update(adding)
                for where in adding:
                    del self._to_add[where]
        except (KafkaError, ClientError) as error:
            self._rules.refused(error)
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
                await self._coordination.add_group(group.group_id, wanted)
                self.surely_started = True
            await self._coordination.commit_offsets(offsets, group, implicit=self.implicit, wanted=wanted)
            self.surely_started = True
        except (KafkaError, ClientError) as error:
            raise self._rules.refused(error) from error
        finally:
            self._offsets_under_way -= 1
            mine.resolve(None)

    def drop_waiting(self) -> None:
        """What was not added yet stays outside."""
        self._to_add.clear()

    # --- ending -----------------------------------------------------------------------------------------------------

    def is_quiet(self) -> bool:
        """Nothing of the transaction waits or flies."""
        return (
            self._accumulator.is_idle()
            and not self._adding
            and not self._offsets_under_way
            and not any(state.in_flight for state in self._accumulator.partitions.values())
        )

    async def until_nothing_is_late(self) -> None:
        """Brokers that do not check would take bytes of a lost connection for the next transaction's."""
        states = (self._accumulator.partitions.get(where) for where in self.partitions)
        quiet_from = max((state.quiet_from for state in states if state and state.gap is not None), default=0.0)
        if quiet_from > self._client.now:
            over: Promise[None] = Promise()
            self._client.at(quiet_from, lambda: over.resolve(None))
            await over

    async def end(self, commit: bool) -> None:
        """Tell the coordinator, and begin anew where sequences have gaps."""
        bump = not self.implicit and self._has_gaps()
        if self.started:
            try:
                await self._coordination.end(commit, implicit=self.implicit)
            except InvalidTxnState:
                if commit or self.surely_started:
                    raise
            except ABORTABLE:
                if commit:
                    raise
                bump = True  # which aborts whatever is open under this id
        if bump:
            await self._coordination.init_producer_id()
        self._adopt()

    def _has_gaps(self) -> bool:
        states = (self._accumulator.partitions.get(where) for where in self.partitions)
        return any(state is not None and state.gap is not None for state in states)

    def _adopt(self) -> None:
        """What was written goes on as the producer's next epoch."""
        current = self._coordination.producer
        for where in self.partitions:
            state = self._accumulator.partitions.get(where)
            if state is not None and (state.producer_id, state.producer_epoch) != current:
                state.adopt(*current)

    def clear(self) -> None:
        """There is no transaction any more."""
        self.partitions.clear()
        self.started = self.surely_started = False
