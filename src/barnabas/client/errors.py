"""What can go wrong between a client and a broker, with every attempt: where, at which stage, why, what next.

A broker's own answer is a `barnabas.errors.KafkaError`; the classes here are for when no answer came.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from barnabas.errors import BarnabasError, UnknownTopicOrPartition

__all__ = [
    "Attempt",
    "BrokerUnreachable",
    "BufferExhausted",
    "ClientClosed",
    "ClientError",
    "CommitFailed",
    "ConnectionLost",
    "FailedRows",
    "ItemsFailed",
    "KeysMove",
    "OperationTimedOut",
    "RecordsFailed",
    "RecordsPurged",
    "TopicNotFound",
    "TransactionAborted",
    "TransactionFailed",
    "WokenUp",
]


class Attempt(NamedTuple):
    """One try to reach or use a broker."""

    address: str
    stage: str
    """`dns`, `tcp`, `tls`, `version` (the ApiVersions handshake), `sasl`, or `request`."""
    error: str
    """The operating system's or the decoder's words."""
    hint: str
    """What to look at, or empty."""
    elapsed_ms: float = 0.0

    def __str__(self) -> str:
        return f"{self.address}: {self.stage}: {self.error}"


class ClientError(BarnabasError):
    """No usable answer came. `attempts` says what was tried, oldest first."""

    retriable: ClassVar[bool] = False

    def __init__(self, message: str, attempts: tuple[Attempt, ...] = ()) -> None:
        super().__init__(message)
        self.attempts = attempts


class ConnectionLost(ClientError):
    """A connection could not be made or broke; another try may succeed. What was in flight may have happened or not."""

    retriable = True


class BrokerUnreachable(ClientError):
    """No bootstrap address led to a broker."""


class TopicNotFound(UnknownTopicOrPartition):
    """Metadata does not have the topic or partition: asking a leader again would not help, unlike for its base."""

    retriable = False


class OperationTimedOut(ClientError):
    """The deadline passed. `attempts` has the reasons of the tries before it."""


class ClientClosed(ClientError):
    """`close` was called, here or in another thread, or the process forked: this object does nothing any more."""


class CommitFailed(ClientError):
    """The group has moved on without this consumer, and others may have its partitions: what it read since its last
    commit is read again. The next poll joins the group again."""


class KeysMove(UserWarning):
    """A topic with records gets more partitions: records of one key may go to another partition from now on."""


_NAMED_MAX: Final = 20


class ItemsFailed(ClientError):
    """A call about several things (topics, partitions, groups, ...) failed for some of them.

    `failed` has the error of each, `succeeded` the results of the others: what was done stays done. `attempts` are the
    tries that failed, also those that were made up for later.
    """

    def __init__(
        self,
        what: str,
        failed: Mapping[Any, BarnabasError],
        succeeded: Mapping[Any, Any],
        attempts: tuple[Attempt, ...] = (),
    ) -> None:
        count = len(failed) + len(succeeded)
        named = [f"{_item(item)}: {error}" for item, error in list(failed.items())[:_NAMED_MAX]]
        if len(failed) > _NAMED_MAX:
            named.append(f"and {len(failed) - _NAMED_MAX} more")
        super().__init__(f"{what} failed for {len(failed)} of {count}: {'; '.join(named)}", attempts)
        self.failed = dict(failed)
        self.succeeded = dict(succeeded)

    def only(self, *kinds: type[BarnabasError]) -> bool:
        """Whether all that failed did so with one of these: `if not error.only(TopicAlreadyExists): raise`."""
        return all(isinstance(error, kinds) for error in self.failed.values())


def _item(item: Any) -> str:
    """`orders`, `orders-0`, `topic orders`, `broker 1`."""
    return f"broker {item}" if isinstance(item, int) else " ".join(map(str, item)) if type(item) is tuple else str(item)


class BufferExhausted(OperationTimedOut):
    """The producer's buffer stayed full for as long as a call may block."""


class RecordsPurged(ClientError):
    """The application told the producer to give these records up."""


class TransactionFailed(ClientError):
    """Something of the transaction failed: nothing of it will be seen. Abort it; then the next one may begin."""


class TransactionAborted(ClientError):
    """The record was not sent, or not waited for, because its transaction was aborted."""


class FailedRows(NamedTuple):
    """Rows of the call that failed together. `partition` is -1 for rows that were never taken."""

    topic: str
    partition: int
    rows: Sequence[int]
    """Their numbers from 0 on, a range where they follow one another."""
    error: BaseException | None


class RecordsFailed(ClientError):
    """Some or all records of a bulk call failed. `failed` says which rows and why, `sent` where the others stand as
    far as that is known; `delivery` is the call's, for those that may still be under way."""

    def __init__(self, delivery: Any, failed: tuple[FailedRows, ...], sent: tuple[Any, ...]) -> None:
        count = sum(len(part.rows) for part in failed)
        named = "; ".join(map(_named, failed[:3])) + (f"; and {len(failed) - 3} more" if len(failed) > 3 else "")
        super().__init__(f"{count} of {delivery.count} records for {delivery.topic} failed: {named}")
        self.delivery = delivery
        self.failed = failed
        self.sent = sent


def _named(part: FailedRows) -> str:
    first, last = part.rows[0], part.rows[-1]
    rows = f"row {first}" if first == last else f"{len(part.rows)} rows from {first} to {last}"
    return f"{rows}: {part.error}"


class WokenUp(ClientError):
    """`wakeup` was called while, or before, this consumer waited."""
