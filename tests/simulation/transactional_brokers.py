"""Simulated brokers with transactions: coordinator, markers, offsets, and what a read_committed reader sees.

`version` is that of transaction.version. With 0 brokers may ask the coordinator about the transaction of a batch or not
(`verifies`, as those since 3.6). Markers are written when somebody has asked often enough, or by `write_markers`.
"""

from collections import deque
from typing import Any

from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from barnabas.protocol.messages.end_txn import EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from simulation.broker_logs import Brokers, Log
from simulation.world import Asked, World

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
        self.patience = 0
        """So often CONCURRENT_TRANSACTIONS before the markers stand."""
        self.outcomes: list[bool] = []


class TransactionLog(Log):
    """A partition whose records belong to transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[int, bytes | bool | None]] = []
        """(producer id, value), or True and False for markers of commits and aborts."""

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether this epoch of the producer has written to a transaction that has no marker yet."""
        if self.producers.get(producer_id, (-1, None))[0] != epoch:
            return False
        for owner, value in reversed(self.entries):
            if owner == producer_id:
                return not isinstance(value, bool)
        return False

    def append(self, data: bytes) -> tuple[int, int]:
        before = len(self.records)
        code, offset = super().append(data)
        if code == 0:
            producer_id = self.headers[-1].producer_id if self.headers else -1
            self.entries += [(producer_id, value) for value in self.records[before:]]
        return code, offset

    def mark(self, producer_id: int, epoch: int, commit: bool) -> None:
        self.entries.append((producer_id, commit))
        known = self.producers.get(producer_id)
        if known is None or epoch > known[0]:
            self.producers[producer_id] = epoch, deque()

    def read_committed(self) -> list[bytes | None]:
        """What a reader gets: nothing from the first record on whose transaction is open."""
        outcome: dict[int, bool] = {}
        fates: list[bool | None] = []
        for owner, value in reversed(self.entries):
            if isinstance(value, bool):
                outcome[owner] = value
                fates.append(None)
            else:
                fates.append(outcome.get(owner, "open"))  # type: ignore[arg-type]
        seen: list[bytes | None] = []
        for (_, value), fate in zip(self.entries, reversed(fates), strict=True):
            if fate == "open":
                break
            if fate:
                assert not isinstance(value, bool)
                seen.append(value)
        return seen


class TransactionalBrokers(Brokers):
    """See the module."""

    def __init__(self, world: World, *, version: int = 2, verifies: bool = True) -> None:
        super().__init__(world)
        self.version = version
        self.verifies = verifies
        self.transactions: dict[str, Transaction] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.pending: dict[tuple[int, str], dict[tuple[str, int], int]] = {}
        self.coordinator_error: list[int] = []
        """Codes for the next requests to coordinators, instead of doing what they ask."""
        self.coordinator_error_after: list[int] = []
        """Codes after doing it."""
        self.patience = 0
        self._asked: Asked
        handlers = {
            18: self.api_versions,
            22: self.init_producer_id,
            24: self.add_partitions,
            25: self.add_offsets,
            26: self.end,
            28: self.commit_offsets,
        }
        world.handlers.update(handlers)

    def log(self, topic: str, partition: int) -> TransactionLog:
        log = self.logs.setdefault((topic, partition), TransactionLog())
        assert isinstance(log, TransactionLog)
        return log

    def api_versions(self, asked: Asked) -> Any:
        known = [ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.world.versions.items()]
        feature = FinalizedFeatureKey(
            name="transaction.version", max_version_level=self.version, min_version_level=self.version
        )
        features = [feature] if self.version else []
        return ApiVersionsResponse(api_keys=known, finalized_features_epoch=1, finalized_features=features)

    # --- the coordinator --------------------------------------------------------------------------------------------

    def _refusal(self, asked: Asked) -> int:
        if asked.node_id != self.world.coordinator:
            return NOT_COORDINATOR
        return self.coordinator_error.pop(0) if self.coordinator_error else 0

    def _answered(self, code: int) -> int:
        return self.coordinator_error_after.pop(0) if not code and self.coordinator_error_after else code

    def _busy(self, transaction: Transaction) -> bool:
        """Whether markers are still to be written; asking often helps."""
        if transaction.state is PREPARED:
            transaction.patience -= 1
            if transaction.patience < 0:
                self.write_markers(transaction)
                return False
        return transaction.state is PREPARED

    def write_markers(self, transaction: Transaction) -> None:
        if transaction.state is not PREPARED:
            return
        for topic, partition in transaction.partitions:
            self.log(topic, partition).mark(transaction.producer_id, transaction.epoch, transaction.commit)
        for group in transaction.groups:
            pending = self.pending.pop((transaction.producer_id, group), {})
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
        transaction.patience = self.patience
        if not self.patience:
            self.write_markers(transaction)

    def init_producer_id(self, asked: Asked) -> Any:
        request = asked.request
        if request.transactional_id is None:
            return super().init_producer_id(asked)
        code = self._refusal(asked) or self._initialise(request)
        if self._answered(code):
            return InitProducerIdResponse(error_code=self._answered(code) or 14)
        transaction = self.transactions[request.transactional_id]
        return InitProducerIdResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch)

    def _initialise(self, request: Any) -> int:
        transaction = self.transactions.get(request.transactional_id)
        if transaction is None:
            self.next_id += 1
            transaction = self.transactions[request.transactional_id] = Transaction(self.next_id)
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

    def _join(self, request: Any, name: str = "") -> tuple[int, Transaction | None]:
        """Whether something may join the transaction now."""
        transaction = self.transactions.get(name or request.transactional_id)
        if transaction is None:
            return BAD_MAPPING, None
        if self._busy(transaction):
            return CONCURRENT, None
        return 0, transaction

    def _add(self, name: str, producer_id: int, epoch: int, partitions: Any, group: str = "") -> int:
        code, transaction = self._join(None, name)
        if transaction is None:
            return code
        if producer_id != transaction.producer_id:
            return BAD_MAPPING
        if epoch != transaction.epoch:
            return FENCED
        transaction.state = ONGOING
        transaction.partitions |= set(partitions)
        if group:
            transaction.groups.add(group)
        return 0

    def add_partitions(self, asked: Asked) -> Any:
        request = asked.request
        wanted = [(t.name, index) for t in request.v3_and_below_topics for index in t.partitions]
        code = self._refusal(asked) or self._add(
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

    def add_offsets(self, asked: Asked) -> Any:
        r = asked.request
        code = self._refusal(asked) or self._add(r.transactional_id, r.producer_id, r.producer_epoch, (), r.group_id)
        return AddOffsetsToTxnResponse(error_code=self._answered(code))

    def commit_offsets(self, asked: Asked) -> Any:
        r = asked.request
        code = self._refusal(asked)
        if not code and asked.version >= 5:
            code = self._add(r.transactional_id, r.producer_id, r.producer_epoch, (), r.group_id)
        elif not code:
            transaction = self.transactions[r.transactional_id]
            there = r.group_id in transaction.groups and transaction.state is ONGOING
            code = 0 if there and r.producer_epoch == transaction.epoch else FENCED_EPOCH
        if not code:
            pending = self.pending.setdefault((r.producer_id, r.group_id), {})
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

    def end(self, asked: Asked) -> Any:
        request = asked.request
        code = self._refusal(asked) or self._end(request, 2 if asked.version >= 5 else 0)
        code = self._answered(code)
        if code or asked.version < 5:
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

    # --- partitions -------------------------------------------------------------------------------------------------

    def produce(self, asked: Asked) -> Any:
        self._asked = asked
        return super().produce(asked)

    def _append(self, node_id: int, topic: str, partition: int, data: bytes) -> Any:
        code = self._verify(topic, partition, data)
        if code and self.world.topics.get(topic, {}).get(partition) == node_id:
            self.next_error.insert(0, code)
        return super()._append(node_id, topic, partition, data)

    def _verify(self, topic: str, partition: int, data: bytes) -> int:
        from barnabas.records.batch import read_header

        header = read_header(data)
        request = self._asked.request
        assert header.is_transactional == (request.transactional_id is not None)
        if request.transactional_id is None or self.log(topic, partition).is_open(
            header.producer_id, header.producer_epoch
        ):
            return 0
        if self._asked.version >= 12:
            code = self._add(request.transactional_id, header.producer_id, header.producer_epoch, [(topic, partition)])
            return FENCED_EPOCH if code == FENCED else code
        assert self.version < 2
        transaction = self.transactions[request.transactional_id]
        there = transaction.state is ONGOING and (topic, partition) in transaction.partitions
        return BAD_STATE if self.verifies and not (there and transaction.epoch == header.producer_epoch) else 0
