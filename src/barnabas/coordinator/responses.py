"""Translates errors for coordinators' clients, and joins the responses to many requests into one."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
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
"""The groups or transactional ids of one request that are handled before other work is served. One takes 5 to 10 µs."""

A = TypeVar("A")
B = TypeVar("B")


def for_client(error: KafkaError) -> KafkaError:
    """Translates the error of a failed write to one that makes a client retry, find the coordinator anew, or give
    up."""
    if isinstance(error, UnknownTopicOrPartition | NotEnoughReplicas | NotEnoughReplicasAfterAppend | RequestTimedOut):
        return CoordinatorNotAvailable(error.message)
    if isinstance(error, NotLeaderOrFollower | KafkaStorageError):
        return NotCoordinator(error.message)
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        return UnknownServerError(error.message)
    return error


def client_error(error: KafkaError) -> int:
    return for_client(error).code


def producer_error(error: KafkaError | None, *, knows_fencing: bool) -> int:
    """Returns the code for a transactional producer. Older ones know INVALID_PRODUCER_EPOCH instead of
    PRODUCER_FENCED."""
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
    """Calls `start` for each item, then `finish` once with all responses in the items' order.

    After `at_once` items it continues when `later` calls back, so that other requests are served in between.
    """
    if not items:
        finish([])
        return
    responses: dict[int, B] = {}

    def collect(position: int, response: B) -> None:
        responses[position] = response
        if len(responses) == len(items):
            finish([responses[index] for index in range(len(items))])

    _start_from(0, items, start, collect, later, at_once)


def _start_from(
    first: int,
    items: Sequence[A],
    start: Callable[[A, Callable[[B], None]], None],
    collect: Callable[[int, B], None],
    later: Callable[[Callable[[], None]], object],
    at_once: int,
) -> None:
    # Not a closure: one that calls itself is a cycle, which lives until a garbage collection.
    end = first + at_once
    if end < len(items):
        later(partial(_start_from, end, items, start, collect, later, at_once))
    for position in range(first, min(end, len(items))):
        start(items[position], partial(collect, position))


def joined(parts: Iterable[list[A] | KafkaError]) -> list[A] | KafkaError:
    """Joins the responses of all partitions into one list. Partitions with another coordinator by now are left out:
    that one lists them. Any other error is the response, because the list would be incomplete."""
    whole: list[A] = []
    for part in parts:
        if isinstance(part, KafkaError):
            if not isinstance(part, NotCoordinator):
                return for_client(part)
        else:
            whole += part
    return whole
