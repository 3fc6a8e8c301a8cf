"""The transaction coordinator of the simulated cluster."""

from typing import TYPE_CHECKING, Any

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from barnabas.protocol.messages.end_txn import EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.records.batch import read_header
from barnabas.types import TopicPartition
from simulation.requests import ReceivedRequest

if TYPE_CHECKING:
    from simulation.cluster import Cluster

EMPTY, ONGOING, PREPARED, COMPLETE = "empty", "ongoing", "prepared", "complete"
NOT_COORDINATOR, FENCED_EPOCH, BAD_STATE, BAD_MAPPING, CONCURRENT, FENCED = 16, 47, 48, 49, 51, 90


class Transaction:
    """A transactional id at its coordinator."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = -1
        self.last_epoch = -1
        self.state = EMPTY
        self.commit = False
        self.version = 0
        self.partitions: set[tuple[str, int]] = set()
        self.groups: set[str] = set()
        self.marker_delay = 0
        """The requests to answer with CONCURRENT_TRANSACTIONS before the markers are written."""
        self.outcomes: list[bool] = []


class TransactionCoordinator:
    """`version` is that of transaction.version. With 0, brokers may ask the coordinator about the transaction of a
    batch or not (`verifies`, as those since 3.6). Markers are written when `marker_delay` requests were answered with
    CONCURRENT_TRANSACTIONS, or by `write_markers`."""

    def __init__(self, cluster: "Cluster") -> None:
        self.cluster = cluster
        self.version = 0
        self.verifies = True
        self.transactions: dict[str, Transaction] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}
        """Committed offsets, by group, topic and partition."""
        self.pending_offsets: dict[tuple[int, str], dict[tuple[str, int], int]] = {}
        self.errors: list[int] = []
        """Codes for the next requests, instead of doing what they ask."""
        self.errors_after: list[int] = []
        """Codes for the next requests, after doing it."""
        self.marker_delay = 0
        cluster.handlers |= {
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets,
            ApiKey.END_TXN: self.end,
            ApiKey.TXN_OFFSET_COMMIT: self.commit_offsets,
        }

    def _refused(self, received: ReceivedRequest) -> int:
        if received.node_id != self.cluster.coordinator:
            return NOT_COORDINATOR
        return self.errors.pop(0) if self.errors else 0

    def _answered(self, code: int) -> int:
        return self.errors_after.pop(0) if not code and self.errors_after else code

    def _busy(self, transaction: Transaction) -> bool:
        """Returns whether markers are still to be written."""
        if transaction.state is PREPARED:
            transaction.marker_delay -= 1
            if transaction.marker_delay < 0:
                self.write_markers(transaction)
                return False
        return transaction.state is PREPARED

    def write_markers(self, transaction: Transaction) -> None:
        if transaction.state is not PREPARED:
            return
        for topic, partition in transaction.partitions:
            self.cluster.log(topic, partition).end_transaction(
                transaction.producer_id, committed=transaction.commit, epoch=transaction.epoch
            )
        for group in transaction.groups:
            pending = self.pending_offsets.pop((transaction.producer_id, group), {})
            if transaction.commit:
                for (topic, partition), offset in pending.items():
                    self.offsets[group, topic, partition] = offset
        transaction.partitions.clear()
        transaction.groups.clear()
        transaction.state = COMPLETE

    def _prepare(self, transaction: Transaction, commit: bool, version: int) -> None:
        transaction.commit = commit
        transaction.version = version
        transaction.outcomes.append(commit)
        if version >= 2:
            transaction.last_epoch = transaction.epoch
            transaction.epoch += 1
        transaction.state = PREPARED
        transaction.marker_delay = self.marker_delay
        if not self.marker_delay:
            self.write_markers(transaction)

    def init_producer_id(self, received: ReceivedRequest) -> Any:
        request = received.request
        code = self._answered(self._refused(received) or self._initialise(request))
        if code:
            return InitProducerIdResponse(error_code=code)
        transaction = self.transactions[request.transactional_id]
        return InitProducerIdResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch)

    def _initialise(self, request: Any) -> int:
        transaction = self.transactions.get(request.transactional_id)
        if transaction is None:
            self.cluster.next_producer_id += 1
            transaction = Transaction(self.cluster.next_producer_id)
            self.transactions[request.transactional_id] = transaction
        expected = request.producer_epoch
        if self._busy(transaction):
            return CONCURRENT
        if transaction.state is ONGOING:
            self._prepare(transaction, False, 2)
            return CONCURRENT
        if expected < 0:
            transaction.epoch += 1
            transaction.last_epoch = -1
        elif expected == transaction.epoch:
            transaction.last_epoch = transaction.epoch
            transaction.epoch += 1
        elif expected != transaction.last_epoch:
            return FENCED
        transaction.state = EMPTY
        return 0

    def _add(self, name: str, producer_id: int, epoch: int, partitions: Any, group: str = "") -> int:
        """Adds partitions or a group to a transaction, which begins if there is none. Returns the error code."""
        transaction = self.transactions.get(name)
        if transaction is None:
            return BAD_MAPPING
        if self._busy(transaction):
            return CONCURRENT
        if producer_id != transaction.producer_id:
            return BAD_MAPPING
        if epoch != transaction.epoch:
            return FENCED
        transaction.state = ONGOING
        transaction.partitions |= set(partitions)
        if group:
            transaction.groups.add(group)
        return 0

    def add_partitions(self, received: ReceivedRequest) -> Any:
        request = received.request
        wanted = [(t.name, index) for t in request.v3_and_below_topics for index in t.partitions]
        code = self._refused(received) or self._add(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            wanted,
        )
        code = self._answered(code)
        results = [
            AddPartitionsToTxnTopicResult(
                name=topic,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                ],
            )
            for topic, index in wanted
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def add_offsets(self, received: ReceivedRequest) -> Any:
        r = received.request
        code = self._refused(received) or self._add(r.transactional_id, r.producer_id, r.producer_epoch, (), r.group_id)
        return AddOffsetsToTxnResponse(error_code=self._answered(code))

    def commit_offsets(self, received: ReceivedRequest) -> Any:
        r = received.request
        code = self._refused(received)
        if not code and received.version >= 5:
            code = self._add(r.transactional_id, r.producer_id, r.producer_epoch, (), r.group_id)
        elif not code:
            transaction = self.transactions[r.transactional_id]
            there = r.group_id in transaction.groups and transaction.state is ONGOING
            code = 0 if there and r.producer_epoch == transaction.epoch else FENCED_EPOCH
        if not code:
            pending = self.pending_offsets.setdefault((r.producer_id, r.group_id), {})
            pending.update({(t.name, p.partition_index): p.committed_offset for t in r.topics for p in t.partitions})
        code = self._answered(code)
        topics = [
            TxnOffsetCommitResponseTopic(
                name=t.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                    for p in t.partitions
                ],
            )
            for t in r.topics
        ]
        return TxnOffsetCommitResponse(topics=topics)

    def end(self, received: ReceivedRequest) -> Any:
        request = received.request
        code = self._refused(received) or self._end(request, 2 if received.version >= 5 else 0)
        code = self._answered(code)
        if code or received.version < 5:
            return EndTxnResponse(error_code=code)
        transaction = self.transactions[request.transactional_id]
        return EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch)

    def _end(self, request: Any, version: int) -> int:
        transaction = self.transactions.get(request.transactional_id)
        if transaction is None or transaction.producer_id != request.producer_id:
            return BAD_MAPPING
        same = request.producer_epoch == transaction.epoch
        repeated = version >= 2 and request.producer_epoch == transaction.epoch - 1
        if not same and not (repeated and transaction.state in (PREPARED, COMPLETE)):
            return FENCED
        if self._busy(transaction):
            if transaction.commit != request.committed or (version >= 2 and same):
                return CONCURRENT if version >= 2 and same else BAD_STATE
            return CONCURRENT
        if transaction.state is ONGOING:
            self._prepare(transaction, request.committed, version)
            return 0
        if transaction.state is COMPLETE and transaction.commit == request.committed and (version < 2 or repeated):
            return 0
        if version >= 2 and same and not request.committed:
            self._prepare(transaction, False, version)
            return 0
        return BAD_STATE

    def verify(self, received: ReceivedRequest, partition: TopicPartition, data: bytes) -> int:
        """Returns the error of a batch that does not belong to an open transaction of its producer, or 0."""
        header, request = read_header(data), received.request
        assert header.is_transactional == (request.transactional_id is not None)
        if request.transactional_id is None:
            return 0
        log = self.cluster.log(*partition)
        if header.producer_id in log.open and log.producers[header.producer_id][0] == header.producer_epoch:
            return 0
        if received.version >= 12:
            code = self._add(request.transactional_id, header.producer_id, header.producer_epoch, [partition])
            return FENCED_EPOCH if code == FENCED else code
        assert self.version < 2
        transaction = self.transactions[request.transactional_id]
        there = transaction.state is ONGOING and partition in transaction.partitions
        return BAD_STATE if self.verifies and not (there and transaction.epoch == header.producer_epoch) else 0
