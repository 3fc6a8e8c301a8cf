"""Requests about partitions that only their leaders answer: offsets by time, ends of leader epochs."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from barnabas.client.offset_messages import (
    PartitionOffset,
    epoch_answers,
    epoch_request,
    offset_answers,
    offset_request,
)
from barnabas.connection.flow import settle
from barnabas.connection.network_client import NetworkClient, Node
from barnabas.connection.promise import Promise
from barnabas.connection.retry import Answer, Results, Retry, leader_of
from barnabas.errors import OperationTimedOut, error_for
from barnabas.protocol.schema import Request
from barnabas.types import LeaderEpoch, Offset, TopicPartition

__all__ = ["epoch_ends", "list_offsets"]

REQUEST_MAX_S: Final = 86_400.0
"""The longest timeout that a broker is given, also if the caller waits for ever."""

T = TypeVar("T")
OnSuccess = Callable[[TopicPartition, T], None]


def list_offsets(
    client: NetworkClient,
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    timeout_s: float,
    each: OnSuccess[PartitionOffset] | None = None,
) -> Promise[dict[TopicPartition, PartitionOffset]]:
    """Returns the first offset at or after each timestamp (ms), or of EARLIEST, LATEST, MAX_TIMESTAMP; -1 for none."""

    def request(partitions: list[TopicPartition]) -> Request:
        return offset_request(
            {partition: timestamps[partition] for partition in partitions},
            read_committed=read_committed,
            timeout_ms=round(min(timeout_s, REQUEST_MAX_S) * 1000),
            leader_epochs=_leader_epochs(client, partitions),
        )

    return settle(_ask_leaders(client, list(timestamps), request, offset_answers, timeout_s, each))


def epoch_ends(
    client: NetworkClient,
    epochs: Mapping[TopicPartition, int],
    timeout_s: float,
    each: OnSuccess[tuple[LeaderEpoch, Offset]] | None = None,
) -> Promise[dict[TopicPartition, tuple[LeaderEpoch, Offset]]]:
    """Returns (epoch, end offset) of the largest epoch that is not above the given one; -1 for none."""

    def request(partitions: list[TopicPartition]) -> Request:
        return epoch_request(
            {partition: epochs[partition] for partition in partitions}, _leader_epochs(client, partitions)
        )

    return settle(_ask_leaders(client, list(epochs), request, epoch_answers, timeout_s, each))


def _leader_epochs(client: NetworkClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LeaderEpoch]:
    """Returns the leader epochs that the client knows: a leader of another epoch refuses the request, instead of
    answering for a log that may be truncated yet."""
    views = {partition: client.metadata.partition(partition) for partition in partitions}
    return {partition: view.leader_epoch for partition, view in views.items() if view is not None}


async def _ask_leaders(
    client: NetworkClient,
    partitions: list[TopicPartition],
    request: Callable[[list[TopicPartition]], Request],
    answers: Callable[[Any], Iterable[tuple[TopicPartition, int, T]]],
    timeout_s: float,
    each: OnSuccess[T] | None,
) -> dict[TopicPartition, T]:
    """Returns the answer of each partition's leader; `each` is called when one comes. Raises the first error that is
    not retriable, the last error when the time is over, or OperationTimedOut with the attempts."""
    metadata, retry = client.metadata, Retry(client, timeout_s=timeout_s)
    results: Results[TopicPartition, T] = Results(partitions)
    leader = partial(leader_of, client)

    def read(response: Any, _: list[TopicPartition]) -> Iterable[Answer[TopicPartition, T]]:
        for topic_partition, code, answer in answers(response):
            yield topic_partition, code and error_for(code, f"{topic_partition}: {error_for(code)}"), answer

    client.add_topics({partition.topic for partition in partitions})
    try:
        if not all(isinstance(leader(partition), Node) for partition in partitions):
            await retry.refresh_metadata()
        on_success = each or (lambda partition, answer: None)
        await retry.send_each(results, leader, request, read, on_success=on_success, ends_with_first_failure=True)
    except OperationTimedOut as timed_out:
        results.failed = dict.fromkeys(results.pending, timed_out)
    for error in results.failed.values():
        unknown = next((partition for partition in partitions if metadata.partition(partition) is None), None)
        if isinstance(error, OperationTimedOut) and unknown is not None and metadata.version and not retry.attempts:
            raise metadata.partition_error(unknown)
        raise error
    return results.succeeded
