"""The state of a transactional producer, and the calls of the application that each state allows.

The coordinator is asked to end a transaction when none of its batches is queued or in flight any more. An error of the
transaction lasts until the transaction is aborted; an error of the producer is final.
"""

from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.client.arguments import flag, refused, text
from barnabas.client.offset_messages import GroupMetadata, OffsetAndMetadata
from barnabas.client.producer.producer_id import NO_PRODUCER_ID_AND_EPOCH, ProducerIdAndEpoch, ProducerIds
from barnabas.client.producer.record_accumulator import RecordAccumulator
from barnabas.client.producer.transactions.contents import TransactionContents
from barnabas.client.producer.transactions.coordinator_client import CoordinatorClient
from barnabas.client.producer.transactions.errors import ABORTABLE, fenced, is_fenced, produce_error_is_fatal
from barnabas.client.transaction_version import adds_partitions_implicitly
from barnabas.connection.flow import settle
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise, resolved
from barnabas.errors import (
    BarnabasError,
    ClientClosed,
    ClientError,
    CommitFailed,
    FencedInstanceId,
    IllegalGeneration,
    KafkaError,
    OperationTimedOut,
    TransactionAborted,
    TransactionFailed,
    UnknownMemberId,
    UsageError,
)
from barnabas.types import ProducerId, TopicPartition

__all__ = ["PreparedTransaction", "TransactionManager", "TransactionState"]

T = TypeVar("T")


class TransactionState(Enum):
    """Kafka's states, each with the text of the error for a call that it does not allow."""

    UNINITIALIZED = "has not called init_transactions() yet"
    INITIALIZING = "is in init_transactions()"
    READY = "has no transaction open; call begin_transaction() first"
    IN_TRANSACTION = "has a transaction open; commit or abort it first"
    PREPARING = "is in prepare_transaction()"
    PREPARED = "has a prepared transaction; call complete_transaction(), commit_transaction() or abort_transaction()"
    COMMITTING = "is in commit_transaction()"
    ABORTING = "is in abort_transaction()"
    ABORTABLE_ERROR = "has a transaction that failed; call abort_transaction()"
    FATAL_ERROR = "cannot go on; close it"


S = TransactionState

VALID_PREVIOUS: Final = {
    S.UNINITIALIZED: {S.INITIALIZING, S.PREPARING},
    S.INITIALIZING: {S.UNINITIALIZED},
    S.READY: {S.INITIALIZING, S.COMMITTING, S.ABORTING},
    S.IN_TRANSACTION: {S.READY},
    S.PREPARING: {S.IN_TRANSACTION},
    S.PREPARED: {S.PREPARING, S.INITIALIZING},
    S.COMMITTING: {S.IN_TRANSACTION, S.PREPARED},
    S.ABORTING: {S.IN_TRANSACTION, S.PREPARED, S.ABORTABLE_ERROR},
    S.ABORTABLE_ERROR: {S.IN_TRANSACTION, S.PREPARING, S.COMMITTING},
    S.FATAL_ERROR: set(S),
}
SENDING: Final = frozenset((S.IN_TRANSACTION, S.PREPARING, S.COMMITTING))
"""The states in which batches are sent, also retried ones."""


class PreparedTransaction(NamedTuple):
    """A prepared transaction, as another system stores it until its decision. `str` makes the text to be stored."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> "PreparedTransaction":
        """Returns the transaction of a text that `str` made. Raises ValueError."""
        producer_id, _, producer_epoch = text.partition(":")
        return cls(int(producer_id), int(producer_epoch))


class _Operation(NamedTuple):
    """A call of the application, which is kept until the application has got its result."""

    what: str
    promise: Promise[Any]


class TransactionManager:
    """Begins and ends the transactions of a producer. The accumulator accepts records within a transaction only."""

    def __init__(
        self,
        client: NetworkClient,
        accumulator: RecordAccumulator,
        ids: ProducerIds,
        *,
        transactional_id: str,
        timeout_ms: int,
        two_phase: bool,
    ) -> None:
        self.state = S.UNINITIALIZED
        self.error: BarnabasError | None = None
        """The error of the transaction or of the producer."""
        self._client = client
        self._accumulator = accumulator
        self._coordinator = CoordinatorClient(
            client, ids, transactional_id=transactional_id, timeout_ms=timeout_ms, two_phase=two_phase
        )
        self._operation: _Operation | None = None
        self._waiting: tuple[Promise[None], Callable[[], bool]] | None = None
        self._contents = TransactionContents(client, accumulator, self._coordinator, self)
        self._prepared: PreparedTransaction | None = None
        """The transaction that a previous producer of this transactional id has prepared."""
        accumulator.accept_records(False)

    # --- for the sender ---------------------------------------------------------------------------------------------

    @property
    def transactional_id(self) -> str:
        return self._coordinator.transactional_id

    @property
    def may_send(self) -> bool:
        """Whether batches may be sent, also retried ones."""
        return self.state in SENDING

    @property
    def adds_implicitly(self) -> bool:
        """Whether a Produce request adds its partitions to the transaction (transaction.version 2)."""
        return self._contents.implicit

    def maybe_add_partition(self, topic_partition: TopicPartition) -> bool:
        """Returns whether the partition is in the transaction. If not, the partition will be added."""
        return self._contents.maybe_add_partition(topic_partition)

    def batch_failed(self, error: BarnabasError) -> None:
        """Fails the transaction of a batch that was given up."""
        if self.may_send:
            if produce_error_is_fatal(error):
                self._fail_for_good(fenced(self.transactional_id) if is_fenced(error) else error)
            else:
                self._fail(error)

    # --- the network client's turn ------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Continues the call that is under way, after the sender's turn."""
        if self._contents.has_partitions_to_add and self.may_send:
            settle(self._contents.add_partitions())
        if self._waiting is not None and self._waiting[1]():
            (promise, _), self._waiting = self._waiting, None
            promise.resolve(None)

    def close(self, error: ClientClosed) -> None:
        """Fails the call that is under way."""
        if self._operation is not None:
            self._operation.promise.fail(error)

    # --- for the application ----------------------------------------------------------------------------------------

    def init(
        self,
        *,
        transactional_id: str | None = None,
        keep_prepared: bool = False,
        continuing: PreparedTransaction | None = None,
    ) -> Promise[None]:
        """Takes over the transactional id, which fences its last producer. A transaction that this producer left open
        is aborted or kept."""
        if flag("keep_prepared", keep_prepared) and not self._coordinator.two_phase:
            raise UsageError("keep_prepared needs transaction.two.phase.commit.enable=true")
        if transactional_id is not None:
            text("transactional_id", transactional_id)
        if continuing is not None:
            continuing = prepared_transaction("continuing", continuing)
        return self._operate(
            "init_transactions", S.INITIALIZING, lambda: self._initialise(transactional_id, keep_prepared, continuing)
        )

    def begin(self) -> None:
        """Begins a transaction. Raises UsageError in a transaction, TransactionFailed, or the producer's final
        error."""
        self._check_operation("begin_transaction")
        self._move("begin_transaction", S.IN_TRANSACTION)
        self._contents.implicit = adds_partitions_implicitly(self._client)

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> Promise[None]:
        """Commits offsets of the group together with the transaction."""
        self._check_operation("send_offsets_to_transaction")
        if self.state is not S.IN_TRANSACTION:
            raise self.refusal("send_offsets_to_transaction")
        self._coordinator.attempts.clear()
        if not offsets:
            return resolved(None)
        return settle(self._contents.send_offsets(offsets, group))

    def prepare(self) -> Promise[PreparedTransaction]:
        """Writes all records. Afterwards only the outcome is open, and no timeout decides it (KIP-939)."""
        if not self._coordinator.two_phase:
            raise UsageError("prepare_transaction needs transaction.two.phase.commit.enable=true")
        return self._operate("prepare_transaction", S.PREPARING, self._prepare)

    def release(self) -> Promise[PreparedTransaction | None]:
        """Writes all records, and leaves the end of the transaction to an administrator."""
        return self._operate("release_transaction", S.PREPARING, self._release)

    def commit(self) -> Promise[None]:
        """Writes all records, and makes them visible."""
        return self._operate("commit_transaction", S.COMMITTING, self._commit)

    def abort(self) -> Promise[None]:
        """Gives up the records that are not sent, and makes no record of the transaction visible."""
        return self._operate("abort_transaction", S.ABORTING, self._abort)

    def complete(self, prepared: PreparedTransaction) -> Promise[None]:
        """Commits the prepared transaction if it is `prepared`, and aborts it otherwise. Does nothing if no transaction
        is prepared."""
        wanted = prepared_transaction("prepared", prepared)
        operation = self._operation
        if operation is not None and self.state in (S.COMMITTING, S.ABORTING):
            return operation.promise
        if self.state is S.READY:
            return resolved(None)
        if self.state is not S.PREPARED:
            raise self.refusal("complete_transaction")
        mine = self._prepared or PreparedTransaction(*self._coordinator.ids.current)
        return self.commit() if wanted == mine else self.abort()

    def end_for_close(self) -> Promise[Any]:
        """Aborts an open transaction, or continues its end. A prepared transaction is left to the next producer."""
        operation = self._operation
        if operation is not None and not operation.promise.done:
            return operation.promise
        if self.state in (S.IN_TRANSACTION, S.ABORTABLE_ERROR):
            return self.abort()
        return resolved(None)

    def heard(self, promise: Promise[Any]) -> None:
        """Drops a call whose result the application has got."""
        if self._operation is not None and self._operation.promise is promise:
            self._operation = None

    def timed_out(self, what: str, seconds: float) -> OperationTimedOut:
        attempts = tuple(self._coordinator.attempts) or self._client.unreachable().attempts
        why = f": {attempts[-1]}" if attempts else ""
        return OperationTimedOut(
            f"{what} did not end within {seconds:g} s, it goes on; call it again to wait longer{why}", attempts
        )

    def refusal(self, what: str) -> BarnabasError:
        """Returns the error of the call `what`, which this state does not allow."""
        error = self.error
        if self.state is S.FATAL_ERROR:
            assert error is not None
            return type(error)(str(error))
        if self.state is S.ABORTABLE_ERROR:
            return self._must_abort()
        return UsageError(f"{what}: the producer {self.state.value}")

    # --- states -----------------------------------------------------------------------------------------------------

    def _operate(self, what: str, target: TransactionState, flow: Callable[[], Coroutine[Any, Any, T]]) -> Promise[T]:
        """Begins a call. If the application repeats a call, that waits for the same end."""
        operation = self._operation
        if operation is not None and operation.what == what:
            return operation.promise
        self._check_operation(what)
        self._move(what, target)
        self._coordinator.attempts.clear()
        promise = settle(self._unless_interrupted(flow()))
        self._operation = _Operation(what, promise)
        return promise

    async def _unless_interrupted(self, flow: Coroutine[Any, Any, T]) -> T:
        """Runs a flow. If Ctrl-C comes between two steps, the transaction cannot continue, and the producer fails."""
        try:
            return await flow
        except KeyboardInterrupt:
            self._fail_for_good(ClientError("a transaction was interrupted half-way; close the producer"))
            raise

    def _check_operation(self, what: str) -> None:
        operation = self._operation
        if operation is not None and not operation.promise.done:
            raise UsageError(f"{what}: {operation.what} has not ended; call it again first, to wait for its end")
        self._operation = None

    def _move(self, what: str, target: TransactionState) -> None:
        if self.state not in VALID_PREVIOUS[target]:
            raise self.refusal(what)
        self._set(target)

    def _set(self, target: TransactionState) -> None:
        assert self.state in VALID_PREVIOUS[target], (self.state, target)
        self.state = target
        self._accumulator.accept_records(target is S.IN_TRANSACTION)

    def _must_abort(self) -> TransactionFailed:
        error = TransactionFailed(f"the transaction failed, call abort_transaction(): {self.error}")
        error.__cause__ = self.error
        return error

    def _fail(self, error: BarnabasError) -> None:
        """Moves to ABORTABLE_ERROR: the transaction can only be aborted."""
        self.error = error
        self._set(S.ABORTABLE_ERROR)
        self._accumulator.fail_queued(TransactionFailed(f"not sent, because the transaction failed before: {error}"))

    def _fail_for_good(self, error: BarnabasError) -> None:
        self.error = error
        self._set(S.FATAL_ERROR)
        self._accumulator.fail_queued(error)

    def request_failed(self, error: KafkaError | ClientError) -> BarnabasError:
        """Fails the transaction or the producer after a failed request. Returns the error for the application."""
        if isinstance(error, ClientClosed):
            return error
        if self.state not in (*SENDING, S.ABORTING):
            return self.refusal("the request")  # meanwhile the transaction has failed or ended
        if self.state is S.ABORTING and error.retriable:
            return TransactionAborted("the transaction is being aborted")
        if isinstance(error, ABORTABLE) and self.may_send:
            self._fail(error)
            moved_on = isinstance(error, UnknownMemberId | IllegalGeneration | FencedInstanceId)
            if not moved_on:
                return self._must_abort()
            return CommitFailed(f"the group has moved on without this consumer, call abort_transaction(): {error}")
        final = fenced(self.transactional_id) if is_fenced(error) else error
        self._fail_for_good(final)
        return final

    # --- beginning --------------------------------------------------------------------------------------------------

    async def _initialise(
        self, transactional_id: str | None, keep_prepared: bool, continuing: PreparedTransaction | None
    ) -> None:
        if transactional_id is not None:
            self._coordinator.transactional_id = transactional_id
        current = NO_PRODUCER_ID_AND_EPOCH
        if continuing is not None:
            current = ProducerIdAndEpoch(ProducerId(continuing.producer_id), continuing.producer_epoch)
        try:
            response = await self._coordinator.init_producer_id(current, keep_prepared=keep_prepared)
        except (KafkaError, ClientError):
            self._set(S.UNINITIALIZED)
            raise
        if response.ongoing_txn_producer_id < 0:
            self._set(S.READY)
            return
        self._prepared = PreparedTransaction(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
        self._contents.implicit = adds_partitions_implicitly(self._client)
        self._contents.started = self._contents.surely_started = True
        self._set(S.PREPARED)

    # --- ending -----------------------------------------------------------------------------------------------------

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Waits until `condition()` returns True after a turn of the network client."""
        promise: Promise[None] = Promise()
        self._waiting = promise, condition
        await promise

    async def _write_all(self, during: TransactionState) -> None:
        """Waits until all records of the transaction are acknowledged. Raises TransactionFailed."""
        self._accumulator.flushing += 1
        try:
            await self._until(lambda: self.state is not during or self._contents.is_quiet())
        finally:
            self._accumulator.flushing -= 1
        if self.state is not during:
            raise self.refusal("the transaction")

    async def _prepare(self) -> PreparedTransaction:
        await self._write_all(S.PREPARING)
        self._set(S.PREPARED)
        return PreparedTransaction(*self._coordinator.ids.current)

    async def _release(self) -> PreparedTransaction | None:
        await self._write_all(S.PREPARING)
        released = PreparedTransaction(*self._coordinator.ids.current) if self._contents.started else None
        self._forget()
        self._set(S.UNINITIALIZED)
        return released

    async def _commit(self) -> None:
        await self._write_all(S.COMMITTING)
        try:
            await self._end(commit=True)
        except (KafkaError, ClientError) as error:
            raise self.request_failed(error) from error

    async def _abort(self) -> None:
        self._contents.drop_waiting()
        self._accumulator.fail_queued(TransactionAborted("not sent, because the transaction was aborted"))
        await self._until(self._contents.is_quiet)
        if not self._contents.implicit:
            await self._contents.until_nothing_is_late()
        try:
            await self._end(commit=False)
        except (KafkaError, ClientError) as error:
            raise self.request_failed(error) from error

    async def _end(self, *, commit: bool) -> None:
        await self._contents.end(commit)
        self._forget()
        self._set(S.READY)

    def _forget(self) -> None:
        self._contents.clear()
        self._prepared = None
        self.error = None


def prepared_transaction(what: str, given: object) -> PreparedTransaction:
    """Checks an argument, which may be a plain tuple."""
    match given:
        case (int(producer_id), int(producer_epoch)):
            return PreparedTransaction(producer_id, producer_epoch)
    raise refused(what, given, "give a PreparedTransaction, or PreparedTransaction.parse(text)")
