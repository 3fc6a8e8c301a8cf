"""Calls about transactions: lists from every broker, descriptions from coordinators, producers from leaders."""

from collections.abc import Iterable
from typing import Any

from barnabas.client.admin.base import Calls, names_of, partitions_of
from barnabas.client.admin.job import Answer, Query, coordinator_moves
from barnabas.client.admin.topics import partition_answers
from barnabas.client.admin.transactions import (
    ProducerOnPartition,
    TransactionDescription,
    TransactionListing,
    abort_error,
    abort_request,
    check_listing,
    end_error,
    list_request,
    marker_answers,
    oldest_version,
    producers_of,
    producers_request,
    transaction_description,
    transaction_error,
    transaction_listings,
)
from barnabas.client.transaction_version import adds_by_itself, newest_end
from barnabas.connection.network_client import TRANSACTION, Coordinator, Node
from barnabas.errors import KafkaError, error_for
from barnabas.types import TopicPartition

__all__ = ["TransactionCalls"]


class TransactionCalls(Calls):
    """See the module. `timeout` is in seconds, default.api.timeout.ms by default."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        running_longer_than_ms: int = -1,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of every broker, sorted; `pattern` is a regular expression for the whole id.

        Raises UsageError for a state that does not exist, ItemsFailed, by broker (UnsupportedVersion where one is too
        old for a filter).
        """
        job = self._job("list_transactions", timeout)
        request = list_request(names_of(states), set(producer_ids), running_longer_than_ms, pattern)
        query = Query(request, at_least=oldest_version(running_longer_than_ms, pattern))

        def answers(response: Any, asked: list[int]) -> Iterable[Answer[int, list[TransactionListing]]]:
            try:
                check_listing(response, pattern)
            except KafkaError as error:
                yield asked[0], error, []
            yield asked[0], 0, transaction_listings(response, asked[0])

        brokers = await self._brokers(job, None)
        found = (await job.each(brokers, Node, lambda _: query, answers, again=coordinator_moves)).result()
        return sorted(listing for listings in found.values() for listing in listings)

    async def describe_transactions(
        self, transactional_ids: str | Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TransactionDescription]:
        """State, producer and partitions of transactional ids. Raises ItemsFailed (TransactionalIdNotFound, ...)."""
        from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest

        def target(transactional_id: str) -> Coordinator:
            return Coordinator(transactional_id, TRANSACTION)

        def answers(response: Any, asked: list[str]) -> Iterable[Answer[str, TransactionDescription]]:
            node_id = self._client.coordinator(target(asked[0]))
            for t in response.transaction_states:
                error = t.error_code and transaction_error(t.error_code, t.transactional_id)
                yield t.transactional_id, error, transaction_description(t, -1 if node_id is None else node_id)

        job = self._job("describe_transactions", timeout)
        outcome = await job.each(
            names_of(transactional_ids),
            target,
            lambda asked: DescribeTransactionsRequest(transactional_ids=asked),
            answers,
            again=coordinator_moves,
        )
        return outcome.result()

    async def describe_producers(
        self,
        partitions: Iterable[tuple[str, int]],
        *,
        broker_id: int | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, list[ProducerOnPartition]]:
        """The producers that the partitions' leaders remember, or one broker as a replica. Raises ItemsFailed."""
        job = self._job("describe_producers", timeout)
        wanted = partitions_of(partitions)

        def answers(response: Any, _: object) -> Iterable[Answer[TopicPartition, list[ProducerOnPartition]]]:
            for where, code, p in partition_answers(response):
                yield where, code and error_for(code, f"{where}: {p.error_message or error_for(code)}"), producers_of(p)

        if broker_id is None:
            return await self._at_leaders(job, wanted, producers_request, answers)
        await self._brokers(job, [broker_id])
        return (await job.each(wanted, lambda _: Node(broker_id), producers_request, answers)).result()

    async def abort_transaction(
        self,
        partition: tuple[str, int],
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        timeout: float | None = None,
    ) -> None:
        """Write the marker that no coordinator will write, so that read_committed readers go on; the numbers are those
        of `describe_producers`. Raises ItemsFailed (InvalidProducerEpoch, TransactionCoordinatorFenced, ...)."""
        job = self._job("abort_transaction", timeout)
        wanted = partitions_of([partition])

        def answers(response: Any, _: object) -> Iterable[Answer[TopicPartition, None]]:
            for where, code, _answer in marker_answers(response):
                yield where, code and abort_error(code, where, producer_id), None

        await self._at_leaders(
            job,
            wanted,
            lambda asked: abort_request(
                asked[0],
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
            ),
            answers,
        )

    async def end_transaction(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        timeout: float | None = None,
    ) -> None:
        """Commit or abort a transaction that a producer elsewhere has left open, when everything of it is written.

        For whoever decides about the transactions of several producers; the numbers are those of the producer, as its
        `metrics()` or `prepare_transaction()` tell them. Nobody needs to run under the id. A repeat of the same end
        succeeds. Raises ProducerFenced when the id has gone on, InvalidTxnState when the transaction has ended
        otherwise or was never begun.
        """
        from barnabas.protocol.messages.end_txn import EndTxnRequest

        job = self._job("end_transaction", timeout)
        if not self._client.metadata.view.brokers:
            await job.fresh_metadata()  # a connection tells how the cluster ends transactions
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=committed,
        )
        await job.ask(
            Query(request, at_most=newest_end(adds_by_itself(self._client))),
            Coordinator(transactional_id, TRANSACTION),
            check=lambda response: response.error_code and end_error(response.error_code, transactional_id),
        )
