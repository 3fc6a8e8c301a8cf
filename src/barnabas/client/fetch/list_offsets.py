"""Questions about partitions that only their leaders answer: offsets by time, ends of epochs.

One request to each leader; what fails for a passing reason is asked again once metadata is fresh.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from barnabas.client.offset_messages import (
    PartitionOffset,
    epoch_answers,
    epoch_request,
    offset_answers,
    offset_request,
)
from barnabas.connection.flow import settle
from barnabas.connection.metadata import Metadata
from barnabas.connection.network_client import NetworkClient, Node
from barnabas.connection.promise import Promise
from barnabas.connection.retry import Answer, Results, Retry
from barnabas.errors import KafkaError, OperationTimedOut, TopicNotFound, error_for
from barnabas.protocol.schema import Request
from barnabas.types import TopicPartition

__all__ = ["ask_leaders", "epoch_ends", "list_offsets"]

REQUEST_MAX_S: Final = 86_400.0
"""That a broker is told to work on a request, where the caller has no end to its patience."""

T = TypeVar("T")
Answers = Callable[[Any], Iterable[tuple[TopicPartition, int, T]]]
Each = Callable[[TopicPartition, T], None]


def list_offsets(
    client: NetworkClient,
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    timeout_s: float,
    each: Each[PartitionOffset] | None = None,
) -> Promise[dict[TopicPartition, PartitionOffset]]:
    """The first offset at or after each timestamp (ms), or of EARLIEST, LATEST, MAX_TIMESTAMP; offset -1: none."""

    def request(partitions: list[TopicPartition]) -> Request:
        wanted = {where: timestamps[where] for where in partitions}
        epochs = _leader_epochs(client, partitions)
        return offset_request(
            wanted,
            read_committed=read_committed,
            timeout_ms=round(min(timeout_s, REQUEST_MAX_S) * 1000),
            leader_epochs=epochs,
        )

    return ask_leaders(client, list(timestamps), request, offset_answers, timeout_s, each)


def epoch_ends(
    client: NetworkClient,
    epochs: Mapping[TopicPartition, int],
    timeout_s: float,
    each: Each[tuple[int, int]] | None = None,
) -> Promise[dict[TopicPartition, tuple[int, int]]]:
    """(epoch, end offset) of the largest epoch that is not above the asked one; -1 for none."""

    def request(partitions: list[TopicPartition]) -> Request:
        return epoch_request({where: epochs[where] for where in partitions}, _leader_epochs(client, partitions))

    return ask_leaders(client, list(epochs), request, epoch_answers, timeout_s, each)


def _leader_epochs(client: NetworkClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the leader epochs that the client knows: a leader of another epoch refuses the request, instead of
    answering for a log that may be truncated yet."""
    found: dict[TopicPartition, int] = {}
    for where in partitions:
        view = client.metadata.partition(where)
        if view is not None:
            found[where] = view.leader_epoch
    return found


def ask_leaders(
    client: NetworkClient,
    partitions: list[TopicPartition],
    request: Callable[[list[TopicPartition]], Request],
    answers: Answers[T],
    timeout_s: float,
    each: Each[T] | None = None,
) -> Promise[dict[TopicPartition, T]]:
    """The answer of each partition's leader; `each` hears them as they come. Fails with the first error that does not
    pass, with the last one when the time is over, or with OperationTimedOut and what was tried."""
    return settle(_ask_leaders(client, partitions, request, answers, timeout_s, each or (lambda *_: None)))


async def _ask_leaders(
    client: NetworkClient,
    partitions: list[TopicPartition],
    request: Callable[[list[TopicPartition]], Request],
    answers: Answers[T],
    timeout_s: float,
    each: Each[T],
) -> dict[TopicPartition, T]:
    metadata, retry = client.metadata, Retry(client, timeout_s=timeout_s)
    results: Results[TopicPartition, T] = Results(partitions)

    def leader_of(topic_partition: TopicPartition) -> Node | None:
        leader = metadata.leader(topic_partition)
        return Node(leader) if leader >= 0 else None

    def read(response: Any, _: list[TopicPartition]) -> Iterable[Answer[TopicPartition, T]]:
        for topic_partition, code, answer in answers(response):
            yield topic_partition, code and error_for(code, f"{topic_partition}: {error_for(code)}"), answer

    client.add_topics({partition.topic for partition in partitions})
    try:
        if any(leader_of(partition) is None for partition in partitions):
            await retry.refresh_metadata()
        await retry.send_each(results, leader_of, request, read, on_success=each, ends_with_first_failure=True)
    except OperationTimedOut as timed_out:
        results.failed = dict.fromkeys(results.pending, timed_out)
    for error in results.failed.values():
        unknown = next((where for where in partitions if metadata.partition(where) is None), None)
        if isinstance(error, OperationTimedOut) and unknown is not None and metadata.version and not retry.attempts:
            raise why_unknown(metadata, unknown)
        raise error
    return results.succeeded


def why_unknown(metadata: Metadata, topic_partition: TopicPartition) -> KafkaError:
    """Returns why the metadata has no such partition."""
    topic = metadata.topic(topic_partition.topic)
    if topic is None:
        return metadata.topic_error(topic_partition.topic)
    last = len(topic.partitions) - 1
    return TopicNotFound(
        f"topic {topic_partition.topic!r} has partitions 0 to {last}, there is no {topic_partition.partition}"
    )
