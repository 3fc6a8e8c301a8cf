"""The interfaces between the runtime and a coordinator's state machine.

A shard reads its state, decides, and returns a `CoordinatorResult`: records to append and the response that may leave
once they are committed. It changes durable state in `replay` alone, so that the log and the memory cannot differ. It
uses no clock, event loop or log: callers pass the time, and `CoordinatorTimer` runs the timers.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from barnabas.errors import KafkaError
from barnabas.log.producers.verification_guards import VerificationGuard
from barnabas.types import Offset, ProducerId

__all__ = [
    "NOTHING",
    "CoordinatorResult",
    "CoordinatorShard",
    "CoordinatorTimer",
    "Operation",
    "RecordSerde",
    "Transaction",
]

R = TypeVar("R")
"""A decoded record."""
C = TypeVar("C", contravariant=True)
T = TypeVar("T", covariant=True)
"""A response."""


class Transaction(NamedTuple):
    """The producer whose records an operation writes. They wait in the shard for the end marker of this producer.

    `guard` shows that the transaction coordinator has agreed; None if the log has records of the transaction already.
    """

    producer_id: ProducerId
    producer_epoch: int
    guard: VerificationGuard | None


class CoordinatorResult(Generic[R, T]):
    """The result of an operation.

    `done` is called once before the response leaves: with None when the records are committed, or with the error if
    they could not be written. It changes soft state that must follow the log, such as a group that becomes stable.
    `atomic` records share one batch; others are split if they are too many for one.
    """

    __slots__ = ("atomic", "done", "records", "response")

    def __init__(
        self,
        records: Sequence[R] = (),
        response: T = None,  # type: ignore[assignment]
        *,
        done: Callable[[KafkaError | None], None] | None = None,
        atomic: bool = True,
    ) -> None:
        self.records = records
        self.response = response
        self.done = done
        self.atomic = atomic


NOTHING: Final[CoordinatorResult[Any, None]] = CoordinatorResult()
"""The result of an operation that changes soft state only: no records, no response."""

Operation = Callable[[], CoordinatorResult[R, Any]]


class CoordinatorTimer(Protocol):
    """The named timers of one shard. They end when the partition is unloaded."""

    def schedule(self, key: str, delay_ms: int, operation: Callable[[], CoordinatorResult[Any, Any]]) -> None:
        """Runs the operation and appends its records after `delay_ms`. Replaces the timer of the same key."""

    def cancel(self, key: str) -> None:
        """Cancels the timer, if there is one."""


class RecordSerde(Protocol[R]):
    """Encodes and decodes the records of an internal topic."""

    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """Returns the key and the value. A value of None deletes the key."""

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """Returns the record; None for an unknown kind of record, which loading skips."""


class CoordinatorShard(Protocol[C]):
    """The state of one partition of an internal topic."""

    def replay(self, offset: Offset, producer_id: ProducerId, record: C) -> None:
        """Applies a record of the log. `producer_id` is -1 outside of transactions."""

    def replay_end_transaction(self, producer_id: ProducerId, committed: bool) -> None:
        """Applies the end marker of a transaction."""

    def loaded(self) -> None:
        """Builds soft state and starts timers after the whole log has been replayed."""

    def unloaded(self) -> None:
        """Fails all waiting requests with NotCoordinator, because this broker no longer leads the partition."""
