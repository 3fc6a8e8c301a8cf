"""The calls of a consumer that wait for brokers, as coroutines, and the checks of their arguments.

Both fronts make their methods of these calls.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.client import arguments
from barnabas.client.consumer.group.offset_commits import Offsets
from barnabas.client.consumer.kafka_consumer import KafkaConsumer
from barnabas.client.consumer.subscription_state import Pattern
from barnabas.client.offset_messages import EARLIEST, LATEST, OffsetAndMetadata, OffsetsOfPartitions
from barnabas.connection.cluster import PartitionView
from barnabas.records.consumer_record import AnyRecord, ConsumerRecord
from barnabas.types import TopicPartition

__all__ = ["ConsumerCalls", "OffsetAndTimestamp", "OffsetsArgument", "Partitions", "read_offsets", "read_topics"]

Partitions = Iterable[TopicPartition | tuple[str, int]]
Times = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]
OffsetsArgument = AnyRecord | OffsetsOfPartitions
"""A record to commit, with all records of its partition before it, or the next offsets to read."""


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp: int
    leader_epoch: int


class ConsumerCalls:
    def __init__(self, state: KafkaConsumer) -> None:
        self._state = state

    def _timeout(self, timeout: float | None) -> float:
        if timeout is None:
            return self._state.settings.default_api_timeout_ms / 1000
        return arguments.seconds("timeout", timeout)

    async def commit(self, offsets: OffsetsArgument | None = None, timeout: float | None = None) -> None:
        """Commits all delivered records (also the current one of an iteration), a record with all before it, or the
        next offsets to read by partition. Retriable errors are retried for `timeout` seconds
        (`default.api.timeout.ms`).

        Raises RebalanceInProgress (poll, then commit again), CommitFailed (other members may have the partitions), and
        other errors of the coordinator.
        """
        timeout_s, given = self._timeout(timeout), read_offsets(offsets)
        commits = self._state.group().commits
        await commits.commit(self._state.offsets_to_commit(given), timeout_s=timeout_s)

    async def committed(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the offsets that the group has committed, None for partitions without one."""
        timeout_s, wanted = self._timeout(timeout), arguments.partitions("partitions", partitions)
        return await self._state.group().commits.committed(wanted, timeout_s)

    async def position(self, partition: TopicPartition | tuple[str, int], timeout: float | None = None) -> int:
        """Returns the offset behind the last delivered record. Waits for the initial position."""
        timeout_s = self._timeout(timeout)
        return await self._state.position(arguments.partition("partition", partition), timeout_s)

    async def offsets_for_times(
        self, timestamps: Times, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the first record of each partition at or after a time in milliseconds, None if there is none."""
        times = _times("timestamps", timestamps)
        found = await self._state.list_offsets(times, self._timeout(timeout))
        return {partition: OffsetAndTimestamp(*each) if each.offset >= 0 else None for partition, each in found.items()}

    async def beginning_offsets(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition."""
        return await self._offsets(partitions, EARLIEST, timeout)

    async def end_offsets(self, partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """Returns the offset behind the last record of each partition (with `read_committed` the last readable one)."""
        return await self._offsets(partitions, LATEST, timeout)

    async def _offsets(
        self, partitions: Partitions, timestamp: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        timestamps = dict.fromkeys(arguments.partitions("partitions", partitions), timestamp)
        found = await self._state.list_offsets(timestamps, self._timeout(timeout))
        return {partition: each.offset for partition, each in found.items()}

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionView]:
        """Returns the topic's partitions in the order of their numbers. Raises TopicNotFound, OperationTimedOut."""
        timeout_s = self._timeout(timeout)
        view = await self._state.client.topic(arguments.topic_name("topic", topic), timeout_s)
        return view.in_order()


# --- arguments --------------------------------------------------------------------------------------------------------


class _Topics:
    """A pattern of several names of topics and regular expressions."""

    def __init__(self, wanted: list[str]) -> None:
        self._names = {text for text in wanted if not text.startswith("^")}
        self._expressions = [_expression(text) for text in wanted if text.startswith("^")]

    def fullmatch(self, name: str, /) -> bool | None:
        return name in self._names or any(expression.match(name) for expression in self._expressions) or None


def read_topics(given: "Iterable[str] | re.Pattern[str]") -> list[str] | Pattern:
    """Returns the topics to subscribe to: names, or a pattern if one of them begins with `^`. Raises UsageError."""
    if isinstance(given, re.Pattern):
        return given
    wanted = _topics("topics", [given] if isinstance(given, str) else given)
    return _Topics(wanted) if any(text.startswith("^") for text in wanted) else wanted


def _expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise arguments.refused("topics", text, f"it begins with ^ and is no regular expression: {error}") from None


def _topic(what: str, given: object) -> str:
    if isinstance(given, re.Pattern):
        raise arguments.refused(
            what, given, 'give names of topics, one pattern alone, or texts that begin with ^, "^orders-"'
        )
    return arguments.text(what, given)


_topics: Final = arguments.several(_topic, 'topics, such as ["orders"]')
_offsets_of: Final = arguments.by_partition(arguments.offset, "100")
_times: Final = arguments.by_partition(arguments.time_ms, "int(time.time() * 1000)")


def read_offsets(given: OffsetsArgument | None) -> Offsets | None:
    if isinstance(given, ConsumerRecord):
        partition = TopicPartition(given.topic, given.partition)
        return {partition: OffsetAndMetadata(given.offset + 1, "", given.leader_epoch)}
    return None if given is None else _offsets_of("offsets", given)
