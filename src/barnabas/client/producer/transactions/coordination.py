"""What a transactional producer says to coordinators, its transaction's and those of groups, and what it learns of
itself by that. Each request is sent again until it is answered, or nobody wants that any more."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from barnabas.client.offset_messages import GroupMetadata, OffsetAndMetadata
from barnabas.client.producer.producer_id import Identity
from barnabas.client.producer.transactions.requests import (
    OFFSETS_V1_UNTIL,
    PARTITIONS_UNTIL,
    PREPARED_FROM,
    Identified,
    PreparedTransaction,
    add_partitions_request,
    added_error,
    init_error,
    offsets_error,
    offsets_request,
)
from barnabas.client.transaction_version import newest_end
from barnabas.connection.network_client import GROUP, TRANSACTION, Coordinator, NetworkClient
from barnabas.connection.retry import RequestBuilder, Retry
from barnabas.errors import Attempt
from barnabas.types import TopicPartition

__all__ = ["Coordination"]


class Coordination:
    """See the module. `wanted` says whether what is asked for still matters; `implicit`, whether the transaction is one
    of transaction.version 2."""

    def __init__(
        self, client: NetworkClient, identity: Identity, *, transactional_id: str, timeout_ms: int, two_phase: bool
    ) -> None:
        self.two_phase = two_phase
        self._identity = identity
        self._timeout_ms = timeout_ms
        self._client = client
        self.attempts: list[Attempt] = []
        """The last attempts that failed since somebody cleared this list."""
        self.be(transactional_id)

    def be(self, transactional_id: str) -> None:
        """This producer's transactional id from now on."""
        self.transactional_id = transactional_id
        self._coordinator = Coordinator(transactional_id, TRANSACTION)

    @property
    def producer(self) -> PreparedTransaction:
        """The producer that the transaction belongs to."""
        return PreparedTransaction(self._identity.producer_id, self._identity.producer_epoch)

    def _retry(self) -> Retry:
        return Retry(self._client, attempts=self.attempts)

    def _who(self) -> Identified:
        return Identified(self.transactional_id, *self.producer)

    def continue_as(self, producer: PreparedTransaction) -> None:
        self._identity.producer_id, self._identity.producer_epoch = producer

    async def init_producer_id(self, *, first: bool = False, keep_prepared: bool = False) -> Any:
        """Who we are from now on."""
        from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=-1 if first else self._identity.producer_id,
            producer_epoch=-1 if first else self._identity.producer_epoch,
            enable2_pc=self.two_phase,
            keep_prepared_txn=keep_prepared,
        )
        response = await self._retry().send(
            RequestBuilder(request, at_least=PREPARED_FROM if self.two_phase else 0),
            self._coordinator,
            lambda response: init_error(response.error_code, self.transactional_id, two_phase=self.two_phase),
        )
        self._identity.producer_id, self._identity.producer_epoch = response.producer_id, response.producer_epoch
        return response

    async def add_partitions(self, partitions: Collection[TopicPartition], wanted: Callable[[], bool]) -> None:
        request = RequestBuilder(add_partitions_request(self._who(), partitions), at_most=PARTITIONS_UNTIL)
        await self._retry().send(request, self._coordinator, added_error, is_wanted=wanted)

    async def add_group(self, group_id: str, wanted: Callable[[], bool]) -> None:
        from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

        who = self._who()
        request = AddOffsetsToTxnRequest(
            transactional_id=who.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            group_id=group_id,
        )
        await self._retry().send(request, self._coordinator, _code, is_wanted=wanted)

    async def commit_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        *,
        implicit: bool,
        wanted: Callable[[], bool],
    ) -> None:
        await self._retry().send(
            RequestBuilder(
                offsets_request(self._who(), group, offsets), at_most=None if implicit else OFFSETS_V1_UNTIL
            ),
            Coordinator(group.group_id, GROUP),
            lambda response: offsets_error(response, group.group_id),
            is_wanted=wanted,
        )

    async def end(self, commit: bool, *, implicit: bool) -> None:
        """The outcome; the answer may give the producer its next epoch."""
        from barnabas.protocol.messages.end_txn import EndTxnRequest

        who = self._who()
        end = EndTxnRequest(
            transactional_id=who.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            committed=commit,
        )
        response = await self._retry().send(RequestBuilder(end, at_most=newest_end(implicit)), self._coordinator, _code)
        if response.producer_id >= 0:
            self._identity.producer_id, self._identity.producer_epoch = response.producer_id, response.producer_epoch


def _code(response: Any) -> int:
    code: int = response.error_code
    return code
