"""The state machine over all transactional ids of one partition of __transaction_state.

The state of each id in the log is durable; `replay` alone changes it. The timers of ongoing transactions, and the end
markers in flight, are soft state: both start anew from the durable state after a load.
"""

from __future__ import annotations  # annotations of nested functions would be evaluated at every call

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from barnabas.coordinator.coordinator_shard import NOTHING, CoordinatorResult, CoordinatorTimer
from barnabas.coordinator.transaction import end_txn, init_producer_id
from barnabas.coordinator.transaction.config import TransactionConfig
from barnabas.coordinator.transaction.end_txn import EndTransaction
from barnabas.coordinator.transaction.init_producer_id import InitProducerId, NewProducerId
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.transaction_metadata import (
    IDLE,
    PREPARED,
    TV2,
    TransactionMetadata,
    TransactionState,
)
from barnabas.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdNotFound,
)
from barnabas.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Offset, ProducerId, TopicPartition

__all__ = ["InitProducerIdResult", "TransactionCoordinatorShard"]

S = TransactionState
T = TypeVar("T")

RESUME: Final = ""
"""The key of the timer that resumes decided transactions after a load; no transactional id is empty."""

OnPrepared = Callable[[str, TransactionMetadata], None]
"""Called when the outcome of a transaction is committed to the log, so that its end markers are due."""
Errors = dict[TopicPartition, KafkaError | None]


class InitProducerIdResult(NamedTuple):
    """The response to InitProducerId. `ongoing_*` is the producer of a transaction that was kept, -1 if there is
    none."""

    producer_id: ProducerId
    producer_epoch: int
    ongoing_producer_id: ProducerId = NO_PRODUCER_ID
    ongoing_producer_epoch: int = NO_PRODUCER_EPOCH


class TransactionCoordinatorShard:
    """The state machine over the transactional ids of one partition."""

    def __init__(
        self,
        config: TransactionConfig,
        timers: CoordinatorTimer,
        now_ms: Callable[[], int],
        new_producer_id: NewProducerId,
        on_prepared: OnPrepared,
        logger: logging.Logger | None = None,
    ) -> None:
        self._config = config
        self._timers = timers
        self._now_ms = now_ms
        self._new_producer_id = new_producer_id
        self._on_prepared = on_prepared
        self._log = logger or logging.getLogger(__name__)
        self.transactions: dict[str, TransactionMetadata] = {}
        self._loading = True

    # --- the log ------------------------------------------------------------------------------------------------------

    def replay(self, offset: Offset, producer_id: ProducerId, record: TransactionRecord) -> None:
        """Applies a record of the log: the only place where durable state changes."""
        transactional_id, metadata = record
        before = self.transactions.get(transactional_id)
        if metadata is None:
            self.transactions.pop(transactional_id, None)
            self._timers.cancel(transactional_id)
            return
        self.transactions[transactional_id] = metadata
        if not self._loading and metadata.state is S.ONGOING and (before is None or before.state is not S.ONGOING):
            self._start_timer(transactional_id, metadata, self._now_ms())

    def replay_end_transaction(self, producer_id: ProducerId, committed: bool) -> None:
        """Does nothing: no record of this topic belongs to a transaction."""

    def loaded(self) -> None:
        """Starts the timers of ongoing transactions and the end markers of decided ones."""
        self._loading = False
        now_ms = self._now_ms()
        decided: list[tuple[str, TransactionMetadata]] = []
        for transactional_id, metadata in self.transactions.items():
            if metadata.state is S.ONGOING:
                self._start_timer(transactional_id, metadata, now_ms)
            elif metadata.state in PREPARED:
                decided.append((transactional_id, metadata))
        if decided:
            self._log.info("%d transactions are decided and get their end markers", len(decided))
            # An operation without records: it is complete once all loaded records are committed, the decisions
            # included. What is decided meanwhile is not yet committed then, and has its own end markers.
            self._timers.schedule(RESUME, 0, lambda: CoordinatorResult(done=partial(self._resume, decided)))

    def _resume(self, decided: list[tuple[str, TransactionMetadata]], error: KafkaError | None) -> None:
        """Begins the end markers of the decisions that were loaded and still wait for them."""
        if error is None:
            for transactional_id, metadata in decided:
                if self.transactions.get(transactional_id) is metadata:
                    self._on_prepared(transactional_id, metadata)

    def unloaded(self) -> None:
        """Does nothing: the next leader of the partition writes the missing end markers."""
        self.transactions.clear()

    # --- producers ----------------------------------------------------------------------------------------------------

    def init_producer_id(
        self, request: InitProducerId
    ) -> CoordinatorResult[TransactionRecord, InitProducerIdResult | KafkaError]:
        """Handles InitProducerId. An open transaction is aborted first, and the response is ConcurrentTransactions,
        which the client retries. Raises ProducerFenced, ConcurrentTransactions, and the errors of `new_producer_id`."""
        current = self.transactions.get(request.transactional_id)
        now_ms = self._now_ms()
        if current is None or current.state is not S.ONGOING:
            after = init_producer_id.initialised(current, request, now_ms, self._new_producer_id)
            return self._write(request.transactional_id, after, InitProducerIdResult(*after.client_producer))
        if request.keep_prepared:
            after = init_producer_id.kept(current, request.expected, now_ms, self._new_producer_id)
            response = InitProducerIdResult(*after.client_producer, current.producer_id, current.producer_epoch)
            return self._write(request.transactional_id, after, response)
        after = init_producer_id.fenced(current, request.expected, now_ms, self._new_producer_id)
        refusal = ConcurrentTransactions(f"the open transaction of {request.transactional_id} is being aborted")
        return self._write(request.transactional_id, after, refusal)

    # --- partitions ---------------------------------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Sequence[TopicPartition],
        transaction_version: int,
    ) -> CoordinatorResult[TransactionRecord, None]:
        """Adds partitions to the transaction, and begins it. Raises KafkaError if none can be added."""
        current = self._held_by(transactional_id, producer)
        added = frozenset(partitions)
        if current.state is S.ONGOING and added <= current.partitions:
            return CoordinatorResult()
        after = current.with_partitions(added, self._now_ms(), transaction_version)
        return self._write(transactional_id, after, None)

    def verify_partitions(
        self, transactional_id: str, producer: tuple[int, int], partitions: Sequence[TopicPartition]
    ) -> CoordinatorResult[TransactionRecord, Errors]:
        """The response is an error for each partition: None if it is in the transaction, TransactionAbortable
        otherwise. Raises KafkaError for all."""
        current = self._held_by(transactional_id, producer)
        errors: Errors = {
            partition: None
            if partition in current.partitions
            else TransactionAbortable(f"{partition} is not in the transaction of {transactional_id}")
            for partition in partitions
        }
        return self.confirmed(transactional_id, errors) if any(errors.values()) else CoordinatorResult(response=errors)

    def confirmed(self, transactional_id: str, response: T) -> CoordinatorResult[TransactionRecord, T]:
        """Returns a response that ends the producer or its transaction, to be sent once a record that changes nothing
        is committed. A coordinator that is cut off and does not know of the next one, where the transaction goes on,
        cannot commit anything: its producers get an error that they retry."""
        record = TransactionRecord(transactional_id, self.transactions.get(transactional_id))
        return CoordinatorResult([record], response)

    def _held_by(self, transactional_id: str, producer: tuple[int, int]) -> TransactionMetadata:
        current = self.transactions.get(transactional_id)
        if current is None:
            raise InvalidProducerIdMapping(f"no producer was initialised as {transactional_id}")
        if producer == current.successor:
            raise ConcurrentTransactions(f"the end markers of {transactional_id} are being written")
        producer_id, producer_epoch = current.client_producer
        if producer[0] != producer_id:
            raise InvalidProducerIdMapping(f"{transactional_id} belongs to producer {producer_id}")
        if producer[1] != producer_epoch:
            raise ProducerFenced(f"{transactional_id} is at epoch {producer_epoch}, not {producer[1]}")
        if current.state in PREPARED:
            raise ConcurrentTransactions(f"the end markers of {transactional_id} are being written")
        if current.is_kept:
            raise InvalidTxnState(f"the transaction that {transactional_id} kept can be ended, not continued")
        return current

    # --- the end ------------------------------------------------------------------------------------------------------

    def end(self, request: EndTransaction) -> CoordinatorResult[TransactionRecord, tuple[int, int]]:
        """Handles EndTxn. The response is the producer id and epoch to continue with. Raises KafkaError."""
        current = self.transactions.get(request.transactional_id)
        if current is None:
            raise InvalidProducerIdMapping(f"no producer was initialised as {request.transactional_id}")
        after = end_txn.ended(current, request, self._now_ms(), self._new_producer_id)
        if after is None:
            return self.confirmed(request.transactional_id, end_txn.answered(current))
        return self._write(request.transactional_id, after, end_txn.answered(after))

    def complete(
        self, transactional_id: str, prepared: TransactionMetadata
    ) -> CoordinatorResult[TransactionRecord, None]:
        """Completes the transaction, because all end markers of `prepared` are written."""
        if self.transactions.get(transactional_id) is not prepared:
            return NOTHING
        return self._write(transactional_id, prepared.completed(self._now_ms()), None)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _start_timer(self, transactional_id: str, metadata: TransactionMetadata, now_ms: int) -> None:
        # The timer is never cancelled: the next transaction of the id only postpones it, which costs less than a new
        # timer.
        if metadata.has_timeout:
            delay_ms = max(0, metadata.timed_out_at_ms - now_ms)
            self._timers.schedule(transactional_id, delay_ms, lambda: self._time_out(transactional_id))

    def _time_out(self, transactional_id: str) -> CoordinatorResult[TransactionRecord, None]:
        current = self.transactions.get(transactional_id)
        if current is None or current.state is not S.ONGOING or not current.has_timeout:
            return NOTHING
        now_ms = self._now_ms()
        if now_ms < current.timed_out_at_ms:
            self._start_timer(transactional_id, current, now_ms)
            return NOTHING
        try:
            after = end_txn.prepared(current, S.PREPARE_ABORT, TV2, now_ms, self._new_producer_id)
        except KafkaError as error:
            self._try_abort_again(transactional_id, error)
            return NOTHING
        open_ms = now_ms - current.start_timestamp_ms
        self._log.info("Transaction of %s is aborted: it was open for %d ms", transactional_id, open_ms)

        def done(error: KafkaError | None) -> None:
            if error is None:
                self._on_prepared(transactional_id, after)
            else:
                self._try_abort_again(transactional_id, error)

        return CoordinatorResult([TransactionRecord(transactional_id, after)], done=done)

    def _try_abort_again(self, transactional_id: str, error: KafkaError) -> None:
        self._log.warning(
            "The transaction of %s is over its time and could not be aborted: %s", transactional_id, error
        )
        self._timers.schedule(
            transactional_id, self._config.abort_interval_ms, lambda: self._time_out(transactional_id)
        )

    def expire(self) -> CoordinatorResult[TransactionRecord, int]:
        """Removes ids that have not changed for transactional.id.expiration.ms. The response is their number."""
        latest_ms = self._now_ms() - self._config.id_expiration_ms
        records = [
            TransactionRecord(transactional_id, None)
            for transactional_id, metadata in self.transactions.items()
            if metadata.state in IDLE and metadata.last_update_timestamp_ms <= latest_ms
        ]
        if records:
            self._log.info("%d transactional ids expired", len(records))
        return CoordinatorResult(records, len(records), atomic=False)

    # --- administration -----------------------------------------------------------------------------------------------

    def find(self, transactional_id: str) -> TransactionMetadata:
        """Returns the state of an id. Raises TransactionalIdNotFound."""
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            raise TransactionalIdNotFound(f"transactional id {transactional_id} is not known")
        return metadata

    def listed(self, wanted: Callable[[str, TransactionMetadata, int], bool]) -> list[tuple[str, TransactionMetadata]]:
        """Returns the ids for which `wanted` (id, metadata, now in ms) is true."""
        now_ms = self._now_ms()
        return [entry for entry in self.transactions.items() if wanted(*entry, now_ms)]

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _write(
        self, transactional_id: str, after: TransactionMetadata, response: T
    ) -> CoordinatorResult[TransactionRecord, T]:
        records = [TransactionRecord(transactional_id, after)]
        if after.state not in PREPARED:
            return CoordinatorResult(records, response)

        def done(error: KafkaError | None) -> None:
            if error is None:
                self._on_prepared(transactional_id, after)

        return CoordinatorResult(records, response, done=done)
