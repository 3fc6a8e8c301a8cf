"""What the runtime and a coordinator's state machine say to each other.

A state machine reads its state, decides, and returns a `CoordinatorResult`: records to append and the response that may
leave once they are committed. It changes durable state in `replay` alone, so that the log and the memory cannot differ.
It knows no clock, no loop and no log: time and timers come in as values and through `CoordinatorTimer`.
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
    """Whose records an operation writes: they wait in the state machine for the end marker of this producer.

    `guard`: the transaction's coordinator has agreed to them; None where the log has records of it already.
    """

    producer_id: ProducerId
    producer_epoch: int
    guard: VerificationGuard | None


class CoordinatorResult(Generic[R, T]):
    """What an operation decided.

    `done` runs once: with None when the records are committed, with the error when they could not be written. It is for
    soft state that must follow the log, such as a group that becomes stable. It runs before the response leaves.
    `atomic` records share one batch; others may be split when they are too many for one.
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
"""No records, no response: an operation that only moved soft state."""

Operation = Callable[[], CoordinatorResult[R, Any]]


class CoordinatorTimer(Protocol):
    """Named timers of one partition's state machine. They end when the partition is unloaded."""

    def schedule(self, key: str, delay_ms: int, operation: Callable[[], CoordinatorResult[Any, Any]]) -> None:
        """Run the operation, and append what it decides, after `delay_ms`; replaces the timer of the same key."""

    def cancel(self, key: str) -> None:
        """Forget the timer, if there is one."""


class RecordSerde(Protocol[R]):
    """Records of an internal topic as bytes."""

    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """(key, value); a value of None deletes the key."""

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """None for a kind of record that this version does not know: loading goes on without it."""


class CoordinatorShard(Protocol[C]):
    """The state of one partition of an internal topic."""

    def replay(self, offset: Offset, producer_id: ProducerId, record: C) -> None:
        """Apply a record that is in the log. producer_id is -1 outside of transactions."""

    def replay_end_transaction(self, producer_id: ProducerId, committed: bool) -> None:
        """Apply the end marker of a transaction."""

    def loaded(self) -> None:
        """The log was replayed to its end: build soft state, start timers."""

    def unloaded(self) -> None:
        """This broker no longer leads the partition: answer everyone who waits with NotCoordinator."""
