"""TxnOffsetCommit v0-v6: offsets of a group as part of a producer's transaction (KIP-98, fenced by KIP-447 from v3 on).
Topics by name, from v6 on by id (KIP-1319).

The partition of __consumer_offsets that they go to has to be in the transaction: up to v4 AddOffsetsToTxn adds it, and
the transaction coordinator verifies that; from v5 on this request adds it (KIP-890).
"""

from collections.abc import Callable, Iterable
from typing import Final

from barnabas.broker.produce.add_partitions_to_txn_manager import ClientSupport, VerificationResults
from barnabas.broker.requests.committed_topics import merged, resolve
from barnabas.broker.requests.duplicates import topics_once
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.coordinator.responses import for_client
from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidGroupId,
    KafkaError,
    NetworkException,
)
from barnabas.log.producers.verification_guards import Sender
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.types import ProducerId, TopicPartition

_KNOWS_LOADING_FROM: Final = 2
"""Producers before 2.0 could fail for good on COORDINATOR_LOAD_IN_PROGRESS."""
_ABORTABLE_FROM: Final = 4
_ADDS_PARTITIONS_FROM: Final = 5
FIRST_VERSION_WITH_TOPIC_IDS: Final = 6


def handle(
    broker: BrokerServices, request: TxnOffsetCommitRequest, context: RequestContext
) -> MaybeFuture[TxnOffsetCommitResponse]:
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    topics = topics_once(request.topics, lambda topic: topic.topic_id if by_id else topic.name)
    request.topics, refused = resolve(broker.image, topics, by_id=by_id, refuse=_refusal)
    if not request.topics:
        return TxnOffsetCommitResponse(topics=refused)
    return answer(broker.loop, lambda reply: _Commit(broker, request, context.api_version, refused, reply).start())


def _refusal(topic: TxnOffsetCommitRequestTopic, partitions: Iterable[int], code: int) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[TxnOffsetCommitResponsePartition(partition_index=index, error_code=code) for index in partitions],
    )


class _Commit:
    """Verifies the partition of the group with the transaction coordinator, then commits with the group coordinator."""

    def __init__(
        self,
        broker: BrokerServices,
        request: TxnOffsetCommitRequest,
        version: int,
        refused: list[TxnOffsetCommitResponseTopic],
        reply: Callable[[TxnOffsetCommitResponse], None],
    ) -> None:
        self._broker = broker
        self._request = request
        self._version = version
        self._refused = refused
        self._reply = reply

    def start(self) -> None:
        broker, request = self._broker, self._request
        if not request.group_id:
            self._respond(InvalidGroupId())
            return
        try:
            partition = broker.replica_manager.leader_of(OFFSETS_TOPIC, broker.groups.partition_for(request.group_id))
        except KafkaError as error:
            self._respond(error)
            return
        sender = Sender(ProducerId(request.producer_id), request.producer_epoch)
        support = ClientSupport(self._version >= _ABORTABLE_FROM, self._version >= _ADDS_PARTITIONS_FROM)
        verify = broker.add_partitions_to_txn.verify
        results = verify(request.transactional_id, {partition: sender}, support, self._on_verified)
        if results is not None:
            self._on_verified(results)

    def _on_verified(self, results: VerificationResults) -> None:
        partition = self._broker.groups.partition_for(self._request.group_id)
        guard = results.get(TopicPartition(OFFSETS_TOPIC, partition))
        if isinstance(guard, KafkaError):
            self._respond(guard)
        else:
            self._broker.groups.commit_transactional_offsets(
                self._request, guard, api_version=self._version, reply=self._respond
            )

    def _respond(self, response: TxnOffsetCommitResponse | KafkaError) -> None:
        if isinstance(response, KafkaError):
            error = for_client(response)
            if isinstance(error, NetworkException):
                # The transaction coordinator is on another broker, which could not be asked: this one lets producers
                # repeat the request without looking for a coordinator.
                error = CoordinatorLoadInProgress(error.message)
            if isinstance(error, CoordinatorLoadInProgress) and self._version < _KNOWS_LOADING_FROM:
                error = CoordinatorNotAvailable(error.message)
            topics = [
                _refusal(topic, (each.partition_index for each in topic.partitions), error.code)
                for topic in self._request.topics
            ]
        else:
            topics = [*response.topics]
        self._reply(TxnOffsetCommitResponse(topics=merged(topics, self._refused)))
