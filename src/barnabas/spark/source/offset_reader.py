"""Reads from brokers which partitions a query has, and which offsets these have."""

import logging
import re
import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.errors import ItemsFailed
from barnabas.client.log_watcher import LogWatcher
from barnabas.client.settings import AdminSettings
from barnabas.config.definitions import nearest
from barnabas.errors import (
    InvalidTopic,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    UsageError,
)
from barnabas.spark.source.offsets import EARLIEST, LATEST, partitions_text
from barnabas.spark.source.options import Position, SourceOptions
from barnabas.types import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    from barnabas.client.offset_messages import PartitionOffset
    from barnabas.connection.cluster import TopicView

__all__ = ["LogEnd", "OffsetReader", "Topics"]

_log = logging.getLogger("barnabas.spark")

_SIZES_S: Final = 60.0
_RECORD_BYTES: Final = 1000
_NO_ID: Final = "00000000-0000-0000-0000-000000000000"


class Topics:
    """The partitions of a subscription, and the ids of their topics."""

    def __init__(self, partitions: Iterable[TopicPartition], ids: Mapping[str, str]) -> None:
        self.partitions = sorted(partitions)
        self.ids = {topic: each for topic, each in ids.items() if each != _NO_ID}
        """Brokers before 2.8 have no topic ids."""


class LogEnd(NamedTuple):
    """The offset behind the last record, and the leader epoch of that or a later one; -1 where brokers do not say."""

    offset: int
    epoch: int = NO_LEADER_EPOCH


class OffsetReader:
    """Asks brokers over connections that are kept. Close it."""

    def __init__(self, options: SourceOptions) -> None:
        known = AdminSettings.definitions
        settings = {name: value for name, value in options.client.items() if name in known}
        self._watcher = LogWatcher({"client.id": "barnabas-spark", **settings})
        self._options = options
        self._sizes: dict[TopicPartition, float] = {}
        self._sizes_until = float("-inf")
        self._read_committed = options.client.get("isolation.level") == "read_committed"
        self._tells_epochs = True

    def close(self) -> None:
        self._watcher.close()

    def __enter__(self) -> "OffsetReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- partitions -------------------------------------------------------------------------------------------------

    def topics(self, *, missing_ok: bool = False) -> Topics:
        """Returns the partitions of the subscription. Raises UsageError for those that do not exist, unless
        `missing_ok`."""
        wanted = self._options.subscription
        if wanted.pattern is not None:
            pattern = re.compile(wanted.pattern)
            return _all_of(
                [
                    view
                    for view in self._watcher.admin(lambda calls: calls.list_topics())
                    if pattern.fullmatch(view.name)
                ]
            )
        names = wanted.topics or tuple(dict.fromkeys(partition.topic for partition in wanted.partitions))
        views = self._described(names, missing_ok=missing_ok)
        if wanted.topics:
            return _all_of(views.values())
        there = [partition for partition in wanted.partitions if partition.topic in views]
        there = [partition for partition in there if partition.partition in views[partition.topic].partitions]
        if len(there) < len(wanted.partitions) and not missing_ok:
            gone = partitions_text(set(wanted.partitions).difference(there))
            raise UsageError(f"option assign: {gone} does not exist; the topic has fewer partitions")
        return Topics(there, {name: str(view.topic_id) for name, view in views.items()})

    def _list_topics(self) -> "list[TopicView]":
        return self._watcher.admin(lambda calls: calls.list_topics())

    def _described(self, names: Collection[str], *, missing_ok: bool) -> "dict[str, TopicView]":
        try:
            return self._watcher.admin(lambda calls: calls.describe_topics(names))
        except ItemsFailed as error:
            missing = [name for name, each in error.failed.items() if isinstance(each, UnknownTopicOrPartition)]
            if missing_ok and len(missing) == len(error.failed):
                return dict(error.succeeded)
            if missing:
                raise self._no_topics(missing) from None
            name, first = next(iter(error.failed.items()))
            if isinstance(first, InvalidTopic | TopicAuthorizationFailed):
                raise UsageError(f"option {self._option()}: topic {name!r}: {first}") from None
            raise

    def _option(self) -> str:
        return "assign" if self._options.subscription.partitions else "subscribe"

    def _no_topics(self, missing: list[str]) -> UsageError:
        there = [view.name for view in self._list_topics()]
        close = nearest(missing[0], there)
        hint = f"did you mean {close}?" if close else "create it first, or use subscribePattern for topics to come"
        which = f"topic {missing[0]!r} does not" if len(missing) == 1 else f"topics {', '.join(missing)} do not"
        return UsageError(
            f"option {self._option()}: {which} exist at {self._options.client['bootstrap.servers']}; {hint}"
        )

    # --- offsets ----------------------------------------------------------------------------------------------------

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.at_times(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the offsets behind the last records; with read_committed the last stable offsets."""
        return self.at_times(dict.fromkeys(partitions, LATEST))

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogEnd]:
        """Returns the ends as `latest` does, with leader epochs."""
        found = self._asked(dict.fromkeys(partitions, LATEST))
        return {partition: LogEnd(each.offset, each.leader_epoch) for partition, each in found.items()}

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the offset of the first record at or after each time in ms, -1 for none."""
        return {partition: each.offset for partition, each in self._asked(times).items()}

    def _asked(self, times: Mapping[TopicPartition, int]) -> "dict[TopicPartition, PartitionOffset]":
        return self._watcher.offsets_at(times, read_committed=self._read_committed) if times else {}

    def ends_of_epochs(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the end of each leader epoch, or of the last one before it; nothing for partitions whose brokers do
        not know."""
        if not self._tells_epochs:
            return {}
        try:
            found = self._watcher.epoch_ends(epochs)
        except UnsupportedVersion as error:
            _log.warning("whether logs were cut cannot be told: %s", error)
            self._tells_epochs = False
            return {}
        return {partition: end for partition, (_, end) in found.items() if end >= 0}

    def wait_for_records(self, offsets: Mapping[TopicPartition, int], seconds: float) -> bool:
        """Waits for a record at one of the offsets, or an error. Returns False if there is neither in time."""
        return self._watcher.wait_for_records(offsets, seconds, read_committed=self._read_committed)

    def resolve(self, position: Position, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the offsets that an option means. Raises UsageError."""
        kind = position.kind
        if kind == "earliest":
            return self.earliest(partitions)
        if kind == "latest":
            return self.latest(partitions)
        if kind == "group":
            return self._committed(partitions)
        if kind == "time":
            return self._timed(position, dict.fromkeys(partitions, position.time_ms))
        _check_same(position, partitions)
        if kind == "times":
            return self._timed(position, position.offsets)
        return self._settled(position.offsets)

    def _settled(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the offsets with numbers in place of -1 and -2."""
        return {
            **offsets,
            **self.latest(partition for partition, offset in offsets.items() if offset == LATEST),
            **self.earliest(partition for partition, offset in offsets.items() if offset == EARLIEST),
        }

    def _timed(self, position: Position, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = self.at_times(times)
        late = [partition for partition, offset in found.items() if offset < 0]
        if late and position.option.startswith("starting") and not self._options.begins_at_end:
            raise UsageError(
                f"option {position.option}: {partitions_text(late)} has no record at or after {times[late[0]]} ms;"
                " give an earlier time, or startingOffsetsByTimestampStrategy=latest to begin at the end"
            )
        return self._settled(found)

    def _committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the offsets that the group has committed; the first offsets of partitions without a commit."""
        group_id = self._options.group_id
        assert group_id is not None, "checked with the options"
        committed = self._watcher.admin(
            lambda calls: calls.list_group_offsets(group_id, partitions, require_stable=True)
        )
        return {
            partition: committed[partition].offset if partition in committed else offset
            for partition, offset in self.earliest(partitions).items()
        }

    def record_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        """Returns the mean size of each partition's records on disk, at most a minute old; a guess if brokers do not
        tell."""
        now = time.monotonic()
        if now > self._sizes_until or not self._sizes.keys() >= set(partitions):
            self._sizes, self._sizes_until = self._mean_sizes(partitions), now + _SIZES_S
        return self._sizes

    def _mean_sizes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        earliest, latest = self.earliest(partitions), self.latest(partitions)
        stored = dict.fromkeys(partitions, 0)
        try:
            found = self._watcher.admin(lambda calls: calls.describe_log_dirs(partitions=partitions))
            for directories in found.values():
                for replica in (each for directory in directories for each in directory.replicas):
                    partition = TopicPartition(replica.topic, replica.partition)
                    stored[partition] = max(stored.get(partition, 0), replica.size_bytes)
        except KafkaError as error:
            _log.warning("the size of records is taken for %d bytes: %s", _RECORD_BYTES, error)
        sizes = {}
        for partition in partitions:
            count = latest[partition] - earliest[partition]
            sizes[partition] = stored[partition] / count if stored[partition] and count > 0 else float(_RECORD_BYTES)
        return sizes

    def commit_for_lag(self, group_id: str, ends: Mapping[TopicPartition, LogEnd]) -> None:
        """Commits offsets for tools that show lag."""
        from barnabas.client.offset_messages import OffsetAndMetadata

        offsets = {partition: OffsetAndMetadata(each.offset, "", each.epoch) for partition, each in ends.items()}
        self._watcher.admin(lambda calls: calls.alter_group_offsets(group_id, dict(offsets.items()), timeout=5))


def _all_of(views: "Iterable[TopicView]") -> Topics:
    there = list(views)
    partitions = [TopicPartition(view.name, number) for view in there for number in view.partitions]
    return Topics(partitions, {view.name: str(view.topic_id) for view in there})


def _check_same(position: Position, partitions: Collection[TopicPartition]) -> None:
    """Raises UsageError unless the option has an offset for each partition and no other, as with Spark's connector: a
    partition without one would begin anywhere."""
    there, given = set(partitions), set(position.offsets)
    if there - given:
        raise UsageError(
            f"option {position.option} says nothing of {partitions_text(there - given)}; all partitions need an offset"
            " (-2: from the beginning, -1: the end)"
        )
    if given - there:
        raise UsageError(
            f"option {position.option} names {partitions_text(given - there)}, which the query does not read; leave it"
            " out, or subscribe to it"
        )
