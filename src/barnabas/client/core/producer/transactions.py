"""What a transactional producer is in the middle of, and what it may do there.

States are Kafka's. With transaction.version 2 (KIP-890) a partition joins by being written to, and every end gives the
producer its next epoch; with 0 and 1 partitions and groups are added first, and the epoch goes up only when records
were given up (KIP-360). In both cases the end is asked for when nothing of the transaction is on its way any more.
A failure that costs the transaction only is remembered until it is aborted; one that costs the producer stays.
"""

from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from barnabas.client.core.engine import GROUP, TRANSACTION, Coordinator, Engine
from barnabas.client.core.flow import settle
from barnabas.client.core.offset_messages import GroupMetadata, OffsetAndMetadata
from barnabas.client.core.producer.accumulator import Accumulator
from barnabas.client.core.producer.identity import Identity
from barnabas.client.core.producer.insisting import Insisting
from barnabas.client.core.producer.transaction_requests import (
    ABORTABLE,
    OFFSETS_V1_UNTIL,
    PARTITIONS_UNTIL,
    PREPARED_FROM,
    Identified,
    PreparedTransaction,
    add_partitions_request,
    added_error,
    fenced,
    init_error,
    is_fenced,
    offsets_error,
    offsets_request,
    produce_error_is_fatal,
)
from barnabas.client.core.promise import Promise
from barnabas.client.core.transaction_version import adds_by_itself, newest_end
from barnabas.client.errors import (
    ClientClosed,
    ClientError,
    CommitFailed,
    OperationTimedOut,
    TransactionAborted,
    TransactionFailed,
)
from barnabas.errors import (
    BarnabasError,
    FencedInstanceId,
    IllegalGeneration,
    InvalidTxnState,
    KafkaError,
    UnknownMemberId,
    UsageError,
)
from barnabas.types import TopicPartition

__all__ = ["TransactionState", "Transactions"]

T = TypeVar("T")


class TransactionState(Enum):
    """Each with what a caller is told who asks for something else."""

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

_BEFORE: Final = {
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
_SENDING: Final = frozenset((S.IN_TRANSACTION, S.PREPARING, S.COMMITTING))


class GivesUp(Protocol):
    """The sender, as far as transactions know it."""

    def give_up_waiting(self, error: BarnabasError) -> None:
        """Give up all records that are not in flight."""


class _Operation(NamedTuple):
    """What the application asked for; kept until it has heard the end."""

    what: str
    promise: Promise[Any]


class Transactions:
    """See the module. `gate` hears whether records may be sent."""

    sender: GivesUp

    def __init__(
        self,
        engine: Engine,
        accumulator: Accumulator,
        identity: Identity,
        *,
        transactional_id: str,
        timeout_ms: int,
        two_phase: bool,
        gate: Callable[[bool], None],
    ) -> None:
        self.transactional_id = transactional_id
        self.state = S.UNINITIALIZED
        self.error: BarnabasError | None = None
        """Why the transaction, or the producer, failed."""
        self._engine = engine
        self._accumulator = accumulator
        self._identity = identity
        self._timeout_ms = timeout_ms
        self._two_phase = two_phase
        self._gate = gate
        self._coordinator = Coordinator(transactional_id, TRANSACTION)
        self._insisting = Insisting(engine)
        self._operation: _Operation | None = None
        self._waiting: tuple[Promise[None], Callable[[], bool]] | None = None
        self._implicit = False
        """Partitions join by being written to (transaction.version 2)."""
        self._partitions: set[TopicPartition] = set()
        """Those in the transaction."""
        self._to_add: dict[TopicPartition, None] = {}
        self._adding = False
        self._offsets_under_way = 0
        self._offsets_before: Promise[None] = _done()
        """Settled when nobody's offsets are on their way: later ones must not be overtaken by a repeat."""
        self._started = False
        """The coordinator may know of the transaction."""
        self._surely_started = False
        self._kept: PreparedTransaction | None = None
        """What a predecessor has prepared."""
        gate(False)

    # --- for the sender ---------------------------------------------------------------------------------------------

    @property
    def may_send(self) -> bool:
        """Whether batches go out, also those that are sent again."""
        return self.state in _SENDING

    @property
    def is_implicit(self) -> bool:
        """Whether Produce is to be sent in a version that adds partitions by itself."""
        return self._implicit

    def may_write(self, where: TopicPartition) -> bool:
        """Whether the partition is in the transaction; if not it will be."""
        if where in self._partitions:
            return True
        if self._implicit:
            self._partitions.add(where)
            self._started = True
            return True
        self._to_add[where] = None
        return False

    def batch_failed(self, error: BarnabasError) -> None:
        """Records of the transaction were given up."""
        if self.may_send:
            if produce_error_is_fatal(error):
                self._fail_for_good(fenced(self.transactional_id) if is_fenced(error) else error)
            else:
                self._fail(error)

    # --- the engine's turn ------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """After the sender's turn."""
        if self._to_add and not self._adding and self.may_send:
            self._adding = True
            settle(self._add_partitions())
        if self._waiting is not None and self._waiting[1]():
            (promise, _), self._waiting = self._waiting, None
            promise.resolve(None)

    def close(self, error: ClientClosed) -> None:
        """Who waits hears it."""
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
        """Take the transactional id over; its last holder is fenced, and what that left open is aborted or kept."""
        if keep_prepared and not self._two_phase:
            raise UsageError("keep_prepared needs transaction.two.phase.commit.enable=true")
        if transactional_id == "":
            raise UsageError("transactional_id is empty; leave it out to use that of the settings")
        return self._operate(
            "init_transactions", S.INITIALIZING, lambda: self._initialise(transactional_id, keep_prepared, continuing)
        )

    def begin(self) -> None:
        """Raises UsageError in a transaction, TransactionFailed, or what ended the producer."""
        self._check_operation("begin_transaction")
        self._move("begin_transaction", S.IN_TRANSACTION)
        self._implicit = adds_by_itself(self._engine)

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> Promise[None]:
        """The group's offsets become those when the transaction is committed."""
        self._check_operation("send_offsets_to_transaction")
        if self.state is not S.IN_TRANSACTION:
            raise self.refusal("send_offsets_to_transaction")
        self._insisting.attempts.clear()
        if not offsets:
            return _done()
        return settle(self._send_offsets(offsets, group))

    def prepare(self) -> Promise[PreparedTransaction]:
        """Everything is written; only the outcome is open, and no timeout decides it (KIP-939)."""
        if not self._two_phase:
            raise UsageError("prepare_transaction needs transaction.two.phase.commit.enable=true")
        return self._operate("prepare_transaction", S.PREPARING, self._prepare)

    def release(self) -> Promise[PreparedTransaction | None]:
        """Everything is written, and somebody else ends it: this producer has nothing to do with it any more."""
        return self._operate("release_transaction", S.PREPARING, self._release)

    def commit(self) -> Promise[None]:
        """Write what waits, and let it be seen."""
        return self._operate("commit_transaction", S.COMMITTING, self._commit)

    def abort(self) -> Promise[None]:
        """Give up what waits, and let nothing be seen."""
        return self._operate("abort_transaction", S.ABORTING, self._abort)

    def complete(self, prepared: PreparedTransaction) -> Promise[None]:
        """Commit if this is what was prepared, abort if not; nothing where nothing is prepared."""
        operation = self._operation
        if operation is not None and self.state in (S.COMMITTING, S.ABORTING):
            return operation.promise
        if self.state is S.READY:
            return _done()
        if self.state is not S.PREPARED:
            raise self.refusal("complete_transaction")
        mine = self._kept or self._prepared()
        return self.commit() if PreparedTransaction(*prepared) == mine else self.abort()

    def end_for_close(self) -> Promise[Any]:
        """Abort what is open; what is being ended goes on. What is prepared is left to a successor."""
        operation = self._operation
        if operation is not None and not operation.promise.done:
            return operation.promise
        if self.state in (S.IN_TRANSACTION, S.ABORTABLE_ERROR):
            return self.abort()
        return _done()

    def heard(self, promise: Promise[Any]) -> None:
        """The application knows the end of what it asked for."""
        if self._operation is not None and self._operation.promise is promise:
            self._operation = None

    def timed_out(self, what: str, seconds: float) -> OperationTimedOut:
        attempts = tuple(self._insisting.attempts) or self._engine.unreachable().attempts
        why = f": {attempts[-1]}" if attempts else ""
        return OperationTimedOut(
            f"{what} did not end within {seconds:g} s, it goes on; call it again to wait longer{why}", attempts
        )

    def refusal(self, what: str) -> BarnabasError:
        """Why `what` cannot be done now."""
        error = self.error
        if self.state is S.FATAL_ERROR:
            assert error is not None
            return type(error)(str(error))
        if self.state is S.ABORTABLE_ERROR:
            return self._told_to_abort()
        return UsageError(f"{what}: the producer {self.state.value}")

    # --- states -----------------------------------------------------------------------------------------------------

    def _operate(self, what: str, target: TransactionState, flow: Callable[[], Coroutine[Any, Any, T]]) -> Promise[T]:
        """Begin it; or the same call once more, which waits for the same end."""
        operation = self._operation
        if operation is not None and operation.what == what:
            return operation.promise
        self._check_operation(what)
        self._move(what, target)
        self._insisting.attempts.clear()
        promise = settle(self._unless_interrupted(flow()))
        self._operation = _Operation(what, promise)
        return promise

    async def _unless_interrupted(self, flow: Coroutine[Any, Any, T]) -> T:
        """Ctrl-C between two steps of this leaves nothing that could be gone on with."""
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
        if self.state not in _BEFORE[target]:
            raise self.refusal(what)
        self._set(target)

    def _set(self, target: TransactionState) -> None:
        assert self.state in _BEFORE[target], (self.state, target)
        self.state = target
        self._gate(target is S.IN_TRANSACTION)

    def _told_to_abort(self) -> TransactionFailed:
        error = TransactionFailed(f"the transaction failed, call abort_transaction(): {self.error}")
        error.__cause__ = self.error
        return error

    def _fail(self, error: BarnabasError) -> None:
        """The transaction can only be aborted."""
        self.error = error
        self._set(S.ABORTABLE_ERROR)
        self.sender.give_up_waiting(TransactionFailed(f"not sent, because the transaction failed before: {error}"))

    def _fail_for_good(self, error: BarnabasError) -> None:
        self.error = error
        self._set(S.FATAL_ERROR)
        self.sender.give_up_waiting(error)

    def _refused(self, error: KafkaError | ClientError) -> BarnabasError:
        """A request failed: what that means, and what to tell."""
        if isinstance(error, ClientClosed):
            return error
        if self.state not in (*_SENDING, S.ABORTING):
            return self.refusal("the request")  # the transaction failed, or is over, while it was under way
        if self.state is S.ABORTING and error.retriable:
            return TransactionAborted("the transaction is being aborted")
        if isinstance(error, ABORTABLE) and self.may_send:
            self._fail(error)
            moved_on = isinstance(error, UnknownMemberId | IllegalGeneration | FencedInstanceId)
            if not moved_on:
                return self._told_to_abort()
            return CommitFailed(f"the group has moved on without this consumer, call abort_transaction(): {error}")
        final = fenced(self.transactional_id) if is_fenced(error) else error
        self._fail_for_good(final)
        return final

    # --- beginning --------------------------------------------------------------------------------------------------

    async def _initialise(
        self, transactional_id: str | None, keep_prepared: bool, continuing: PreparedTransaction | None
    ) -> None:
        if transactional_id is not None and transactional_id != self.transactional_id:
            self.transactional_id = transactional_id
            self._coordinator = Coordinator(transactional_id, TRANSACTION)
        if continuing is not None:
            self._identity.producer_id, self._identity.producer_epoch = continuing
        try:
            response = await self._init_producer_id(first=continuing is None, keep_prepared=keep_prepared)
        except (KafkaError, ClientError):
            self._set(S.UNINITIALIZED)
            raise
        if response.ongoing_txn_producer_id < 0:
            self._set(S.READY)
            return
        self._kept = PreparedTransaction(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
        self._implicit = adds_by_itself(self._engine)
        self._started = self._surely_started = True
        self._set(S.PREPARED)

    async def _init_producer_id(self, *, first: bool = False, keep_prepared: bool = False) -> Any:
        """Who we are from now on."""
        from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=-1 if first else self._identity.producer_id,
            producer_epoch=-1 if first else self._identity.producer_epoch,
            enable2_pc=self._two_phase,
            keep_prepared_txn=keep_prepared,
        )
        response = await self._insisting.ask(
            request,
            self._coordinator,
            lambda response: init_error(response.error_code, self.transactional_id, two_phase=self._two_phase),
            at_least=PREPARED_FROM if self._two_phase else 0,
        )
        self._identity.producer_id, self._identity.producer_epoch = response.producer_id, response.producer_epoch
        return response

    # --- joining ----------------------------------------------------------------------------------------------------

    def _who(self) -> Identified:
        return Identified(self.transactional_id, self._identity.producer_id, self._identity.producer_epoch)

    async def _add_partitions(self) -> None:
        try:
            while self._to_add and self.may_send:
                adding = list(self._to_add)
                self._started = True
                request = add_partitions_request(self._who(), adding)
                await self._insisting.ask(
                    request,
                    self._coordinator,
                    added_error,
                    at_most=PARTITIONS_UNTIL,
                    wanted=lambda: self.may_send,
                )
                self._surely_started = True
                self._partitions.update(adding)
                for where in adding:
                    del self._to_add[where]
        except (KafkaError, ClientError) as error:
            self._refused(error)
        finally:
            self._adding = False

    async def _send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

        before, mine = self._offsets_before, Promise[None]()
        self._offsets_before = mine
        self._offsets_under_way += 1
        try:
            await before
            if not self.may_send:
                raise self.refusal("send_offsets_to_transaction")
            who = self._who()
            self._started = True
            if not self._implicit:
                request = AddOffsetsToTxnRequest(
                    transactional_id=who.transactional_id,
                    producer_id=who.producer_id,
                    producer_epoch=who.producer_epoch,
                    group_id=group.group_id,
                )
                await self._insisting.ask(request, self._coordinator, _code, wanted=lambda: self.may_send)
                self._surely_started = True
            await self._insisting.ask(
                offsets_request(who, group, offsets),
                Coordinator(group.group_id, GROUP),
                lambda response: offsets_error(response, group.group_id),
                at_most=None if self._implicit else OFFSETS_V1_UNTIL,
                wanted=lambda: self.may_send,
            )
            self._surely_started = True
        except (KafkaError, ClientError) as error:
            raise self._refused(error) from error
        finally:
            self._offsets_under_way -= 1
            mine.resolve(None)

    # --- ending -----------------------------------------------------------------------------------------------------

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Asked after each of the engine's turns."""
        promise: Promise[None] = Promise()
        self._waiting = promise, condition
        await promise

    async def _written(self, during: TransactionState) -> None:
        """Everything of the transaction is acknowledged. Raises TransactionFailed."""
        self._accumulator.flushing += 1
        try:
            await self._until(lambda: self.state is not during or self._is_quiet())
        finally:
            self._accumulator.flushing -= 1
        if self.state is not during:
            raise self.refusal("the transaction")

    def _is_quiet(self) -> bool:
        """Nothing of the transaction waits or flies."""
        return (
            self._accumulator.is_idle()
            and not self._adding
            and not self._offsets_under_way
            and not any(state.in_flight for state in self._accumulator.partitions.values())
        )

    async def _prepare(self) -> PreparedTransaction:
        await self._written(S.PREPARING)
        self._set(S.PREPARED)
        return self._prepared()

    async def _release(self) -> PreparedTransaction | None:
        await self._written(S.PREPARING)
        released = self._prepared() if self._started else None
        self._forget()
        self._set(S.UNINITIALIZED)
        return released

    def _prepared(self) -> PreparedTransaction:
        return PreparedTransaction(self._identity.producer_id, self._identity.producer_epoch)

    async def _commit(self) -> None:
        await self._written(S.COMMITTING)
        try:
            await self._end(True)
        except (KafkaError, ClientError) as error:
            raise self._refused(error) from error

    async def _abort(self) -> None:
        self._to_add.clear()
        self.sender.give_up_waiting(TransactionAborted("not sent, because the transaction was aborted"))
        await self._until(self._is_quiet)
        if not self._implicit:
            await self._until_nothing_is_late()
        try:
            await self._end(False)
        except (KafkaError, ClientError) as error:
            raise self._refused(error) from error

    async def _until_nothing_is_late(self) -> None:
        """Brokers that do not check would take bytes of a lost connection for the next transaction's."""
        states = (self._accumulator.partitions.get(where) for where in self._partitions)
        quiet_from = max((state.quiet_from for state in states if state and state.gap is not None), default=0.0)
        if quiet_from > self._engine.now:
            over: Promise[None] = Promise()
            self._engine.at(quiet_from, lambda: over.resolve(None))
            await over

    async def _end(self, commit: bool) -> None:
        """Tell the coordinator, and begin anew where sequences have gaps."""
        bump = not self._implicit and self._has_gaps()
        if self._started:
            try:
                await self._end_txn(commit)
            except InvalidTxnState:
                if commit or self._surely_started:
                    raise
            except ABORTABLE:
                if commit:
                    raise
                bump = True  # which aborts whatever is open under this id
        if bump:
            await self._init_producer_id()
        self._begin_anew()

    async def _end_txn(self, commit: bool) -> None:
        from barnabas.protocol.messages.end_txn import EndTxnRequest

        who = self._who()
        request = EndTxnRequest(
            transactional_id=who.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            committed=commit,
        )
        response = await self._insisting.ask(request, self._coordinator, _code, at_most=newest_end(self._implicit))
        if response.producer_id >= 0:
            self._identity.producer_id, self._identity.producer_epoch = response.producer_id, response.producer_epoch

    def _has_gaps(self) -> bool:
        states = (self._accumulator.partitions.get(where) for where in self._partitions)
        return any(state is not None and state.gap is not None for state in states)

    def _begin_anew(self) -> None:
        current = self._prepared()
        for where in self._partitions:
            state = self._accumulator.partitions.get(where)
            if state is not None and (state.producer_id, state.producer_epoch) != current:
                state.adopt(*current)
        self._forget()
        self._set(S.READY)

    def _forget(self) -> None:
        self._partitions.clear()
        self._started = self._surely_started = False
        self._kept = None
        self.error = None


def _done() -> Promise[None]:
    promise: Promise[None] = Promise()
    promise.resolve(None)
    return promise


def _code(response: Any) -> int:
    code: int = response.error_code
    return code
