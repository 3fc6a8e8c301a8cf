"""Sends the requests of a transactional producer to the transaction coordinator and to group coordinators."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from barnabas.client.offset_messages import GroupMetadata, OffsetAndMetadata, by_topic, grouped
from barnabas.client.producer.producer_id import ProducerIdAndEpoch, ProducerIds
from barnabas.client.producer.transactions.errors import add_partitions_error, init_error, offsets_error
from barnabas.client.transaction_version import newest_end_txn_version
from barnabas.connection.network_client import GROUP, TRANSACTION, Coordinator, NetworkClient
from barnabas.connection.retry import RequestBuilder, Retry
from barnabas.errors import Attempt
from barnabas.types import TopicPartition

__all__ = ["CoordinatorClient"]

ADD_PARTITIONS_VERSION_MAX: Final = 3
"""The last version of AddPartitionsToTxn for clients; only brokers send later ones."""
OFFSETS_VERSION_MAX: Final = 4
"""The last version of TxnOffsetCommit for transaction.version 0 and 1."""
IMPLICIT_OFFSETS_VERSION_MAX: Final = 5
"""Its last version whose topics have names."""
TWO_PHASE_VERSION_MIN: Final = 6
"""The first version of InitProducerId with two-phase commits (KIP-939)."""

Wanted = Callable[[], bool]


class CoordinatorClient:
    """Sends each request until it is answered, or until `wanted()` is False because the response is not needed any
    more. `implicit` says whether the transaction is one of transaction.version 2."""

    def __init__(
        self, client: NetworkClient, ids: ProducerIds, *, transactional_id: str, timeout_ms: int, two_phase: bool
    ) -> None:
        self.transactional_id = transactional_id
        self.two_phase = two_phase
        self.ids = ids
        self.attempts: list[Attempt] = []
        """The last failed attempts since the application's call began."""
        self._timeout_ms = timeout_ms
        self._client = client

    async def init_producer_id(self, current: ProducerIdAndEpoch, *, keep_prepared: bool = False) -> Any:
        """Returns the response with the producer's next id and epoch. `current` is its present id and epoch, or
        NO_PRODUCER_ID to fence any other producer."""
        from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=current.producer_id,
            producer_epoch=current.producer_epoch,
            enable2_pc=self.two_phase,
            keep_prepared_txn=keep_prepared,
        )
        response = await self._send(
            RequestBuilder(request, at_least=TWO_PHASE_VERSION_MIN if self.two_phase else 0),
            lambda response: init_error(response.error_code, self.transactional_id, two_phase=self.two_phase),
        )
        self.ids.take_response(response)
        return response

    async def add_partitions(self, partitions: Collection[TopicPartition], wanted: Wanted) -> None:
        from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic

        request = AddPartitionsToTxnRequest(
            **self._producer("v3_and_below_"),
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ],
        )
        await self._send(RequestBuilder(request, at_most=ADD_PARTITIONS_VERSION_MAX), add_partitions_error, wanted)

    async def add_group(self, group_id: str, wanted: Wanted) -> None:
        from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

        request = AddOffsetsToTxnRequest(**self._producer(), group_id=group_id)
        await self._send(RequestBuilder(request), _error_code, wanted)

    async def commit_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        *,
        implicit: bool,
        wanted: Wanted,
    ) -> None:
        from barnabas.protocol.messages import txn_offset_commit as messages

        def partition(topic_partition: TopicPartition) -> messages.TxnOffsetCommitRequestPartition:
            offset = offsets[topic_partition]
            return messages.TxnOffsetCommitRequestPartition(
                partition_index=topic_partition.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )

        request = messages.TxnOffsetCommitRequest(
            **self._producer(),
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=grouped(
                offsets,
                partition,
                lambda name, partitions: messages.TxnOffsetCommitRequestTopic(name=name, partitions=partitions),
            ),
        )
        await self._send(
            RequestBuilder(request, at_most=IMPLICIT_OFFSETS_VERSION_MAX if implicit else OFFSETS_VERSION_MAX),
            lambda response: offsets_error(response, group.group_id),
            wanted,
            Coordinator(group.group_id, GROUP),
        )

    async def end(self, commit: bool, *, implicit: bool) -> None:
        """Commits or aborts the transaction. The response may give the producer its next epoch."""
        from barnabas.protocol.messages.end_txn import EndTxnRequest

        request = EndTxnRequest(**self._producer(), committed=commit)
        response = await self._send(RequestBuilder(request, at_most=newest_end_txn_version(implicit)), _error_code)
        if response.producer_id >= 0:
            self.ids.take_response(response)

    def _producer(self, prefix: str = "") -> dict[str, Any]:
        """Returns the fields of a request that identify the producer."""
        fields = {"transactional_id": self.transactional_id, **self.ids.current._asdict()}
        return {prefix + name: value for name, value in fields.items()}

    async def _send(
        self,
        request: RequestBuilder,
        check: Callable[[Any], Any],
        wanted: Wanted = lambda: True,
        coordinator: Coordinator | None = None,
    ) -> Any:
        coordinator = coordinator or Coordinator(self.transactional_id, TRANSACTION)
        return await Retry(self._client, attempts=self.attempts).send(request, coordinator, check, is_wanted=wanted)


def _error_code(response: Any) -> int:
    code: int = response.error_code
    return code
