"""What all coordinators' answers have in common: which error a client understands, and one answer made of many."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from barnabas.errors import (
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    ProducerFenced,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)

__all__ = ["STARTED_AT_ONCE", "client_error", "each", "for_client", "joined", "producer_error"]

STARTED_AT_ONCE: Final = 100
"""Of what one request asks for. One takes 5 to 10 µs."""

A = TypeVar("A")
B = TypeVar("B")


def for_client(error: KafkaError) -> KafkaError:
    """What a coordinator's client understands for a failed write: look again, look elsewhere, or give up."""
    if isinstance(error, UnknownTopicOrPartition | NotEnoughReplicas | NotEnoughReplicasAfterAppend | RequestTimedOut):
        return CoordinatorNotAvailable(error.message)
    if isinstance(error, NotLeaderOrFollower | KafkaStorageError):
        return NotCoordinator(error.message)
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        return UnknownServerError(error.message)
    return error


def client_error(error: KafkaError) -> int:
    """Its code."""
    return for_client(error).code


def producer_error(error: KafkaError | None, *, knows_fencing: bool) -> int:
    """The code for a transactional producer; older ones know a fenced producer by its epoch."""
    if error is None:
        return 0
    if isinstance(error, ProducerFenced) and not knows_fencing:
        return InvalidProducerEpoch.code
    return error.code


def each(
    items: Sequence[A],
    start: Callable[[A, Callable[[B], None]], None],
    finish: Callable[[list[B]], None],
    later: Callable[[Callable[[], None]], object],
    at_once: int = STARTED_AT_ONCE,
) -> None:
    """Start all, finish once with all answers in the items' order. After `at_once` items it goes on when `later` calls
    back: many items do not hold up everybody else."""
    answers: dict[int, B] = {}

    def collect(position: int, response: B) -> None:
        answers[position] = response
        if len(answers) == len(items):
            finish([answers[index] for index in range(len(items))])

    def go_on(first: int) -> None:
        end = first + at_once
        if end < len(items):
            later(lambda: go_on(end))
        for position in range(first, min(end, len(items))):
            start(items[position], lambda response, position=position: collect(position, response))  # type: ignore[misc]

    if items:
        go_on(0)
    else:
        finish([])


def joined(parts: Iterable[list[A] | KafkaError]) -> list[A] | KafkaError:
    """The answers of all partitions as one list. What has another coordinator by now is listed there; any other error
    is the answer, as the list would be wrong without that part."""
    whole: list[A] = []
    for part in parts:
        if isinstance(part, KafkaError):
            if not isinstance(part, NotCoordinator):
                return for_client(part)
        else:
            whole += part
    return whole
