"""Plans the micro-batches of a streaming query.

MicroBatches lives in the process that Spark keeps on the driver for each source of a query. Spark writes the offsets
that it returns into the checkpoint before anything is read, so that a replay reads the same.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from barnabas.errors import BarnabasError
from barnabas.spark.source.data_loss import lost, lost_from
from barnabas.spark.source.offset_reader import LogEnd, Topics
from barnabas.spark.source.offsets import Plan, StreamOffset, partitions_text
from barnabas.spark.source.options import Position, SourceOptions
from barnabas.spark.source.planning import OffsetRange, bounded, bounded_by_bytes
from barnabas.types import NO_LEADER_EPOCH, TopicPartition

__all__ = ["Cluster", "MicroBatches", "ranges_of"]

_log = logging.getLogger("barnabas.spark")

_PAUSE_FIRST_S: Final = 0.01
_PAUSE_MAX_S: Final = 0.05
"""The pause before the ends are asked for again, when there were too few new records or an error."""
_RETREATS: Final = 3
_RETREAT_S: Final = 0.3
"""The pause before an end that moved back is asked for again: a new leader may need a moment to know its end."""

Offsets = Mapping[TopicPartition, int]


class Cluster(Protocol):
    """The questions to brokers, which OffsetReader answers."""

    def topics(self, *, missing_ok: bool = False) -> Topics: ...
    def earliest(self, partitions: Any) -> dict[TopicPartition, int]: ...
    def ends(self, partitions: Any) -> dict[TopicPartition, LogEnd]: ...
    def ends_of_epochs(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]: ...
    def wait_for_records(self, offsets: Offsets, seconds: float) -> bool: ...
    def resolve(self, position: Position, partitions: Any) -> dict[TopicPartition, int]: ...
    def record_bytes(self, partitions: Any) -> dict[TopicPartition, float]: ...
    def commit_for_lag(self, group_id: str, ends: Mapping[TopicPartition, LogEnd]) -> None: ...


def ranges_of(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """Returns the ranges of a micro-batch. They depend on its two offsets alone, so that a replay reads the same."""
    if start == end:  # it says where its own batch began, which is not to be read again
        return []
    begin = {**start.offsets, **end.start}
    return [
        OffsetRange(partition, begin.get(partition, offset), offset)
        for partition, offset in sorted(end.offsets.items())
    ]


class _Seen(NamedTuple):
    """The topics, and the ends and leader epochs of their partitions, at one time."""

    topics: Topics
    ends: dict[TopicPartition, int]
    epochs: dict[TopicPartition, int]


class MicroBatches:
    """Decides where a streaming query begins, where each micro-batch ends, and how far the query is behind."""

    def __init__(
        self,
        options: SourceOptions,
        cluster: Cluster,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._clock = clock
        self._sleep = sleep
        self._frozen = False
        self._known: _Seen | None = None
        """The last known state, or the state when it was frozen."""
        self._batch_at = float("-inf")
        """The time when the last micro-batch was planned."""
        self._given: StreamOffset | None = None
        self._committed: Offsets = {}
        self._sound: dict[TopicPartition, tuple[int, int]] = {}
        """Partitions whose logs were not truncated between these two epochs, below the records that were read."""

    # --- what Spark asks --------------------------------------------------------------------------------------------

    def initial(self) -> StreamOffset:
        """Returns the first offsets of a query without a checkpoint. Spark asks again until the first batch has
        succeeded."""
        topics = self._cluster.topics()
        offsets = self._cluster.resolve(self._options.starting, topics.partitions)
        return StreamOffset(offsets, ids=topics.ids, is_initial=True)

    def freeze(self) -> None:
        """Freezes the ends at the next look at the brokers (trigger AvailableNow)."""
        self._frozen = True
        self._known = None

    def latest(self) -> dict[TopicPartition, int] | None:
        """Returns the ends of the partitions as they were known last."""
        return None if self._known is None else self._known.ends

    def behind(self) -> dict[str, str]:
        """Returns how far the latest micro-batch ends behind the ends of its partitions, under the names of the metrics
        of Spark's Kafka connector, as texts; nothing before the first micro-batch.

        The bytes are those on disk: the offsets of each partition times the mean size of its records.
        """
        if self._known is None or self._given is None:
            return {}
        read, ends = self._given.offsets, self._known.ends
        lags = {partition: max(end - read.get(partition, end), 0) for partition, end in ends.items()}
        if not lags:
            return {}
        found = {
            "minOffsetsBehindLatest": str(min(lags.values())),
            "maxOffsetsBehindLatest": str(max(lags.values())),
            "avgOffsetsBehindLatest": str(sum(lags.values()) / len(lags)),
        }
        try:
            sizes = self._cluster.record_bytes(list(lags)) if any(lags.values()) else {}
        except BarnabasError as error:  # a report is no reason to end a query
            _log.warning("how many bytes the query is behind cannot be told: %s", error)
            return found
        size = sum(lag * sizes.get(partition, 0) for partition, lag in lags.items())
        return {**found, "estimatedTotalBytesBehindLatest": str(round(size))}

    def to_read(self, start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
        """Returns the ranges of a micro-batch. Those of topics that were created anew before a replay are left out:
        their offsets mean nothing there. Raises DataLoss."""
        ranges = ranges_of(start, end)
        if end == self._given or not end.ids:
            return ranges
        ids = self._cluster.topics(missing_ok=True).ids
        known = [each for each in ranges if each.size and each.partition.topic in end.ids]
        gone = [each for each in known if ids.get(each.partition.topic) != end.ids[each.partition.topic]]
        if gone:
            why = "they were to be read when the query stopped, and their topic is another one now or there is none"
            lost(self._options.on_data_loss, gone, why)
        return [each for each in ranges if each not in gone]

    def after(self, start: StreamOffset, *, everything: bool = False) -> StreamOffset:
        """Returns the end of the next micro-batch; `start` itself if there is nothing to do. `everything`: without
        limits. Raises DataLoss."""
        self._commit_for_lag(start)
        deadline = self._clock() + self._options.poll_timeout_ms / 1000
        pause = 0.0
        while True:
            seen = self._look(start)
            begin = self._begin(start, seen)
            moved = any(
                begin.get(partition) != offset or not _is_same(start, seen.topics, partition.topic)
                for partition, offset in start.offsets.items()
            )
            if start.is_initial or moved or self._is_enough(begin, seen.ends, everything):
                self._batch_at = self._clock()
                self._given = self._offset(start, seen, begin, self._bounded(begin, seen.ends, everything))
                return self._given
            left = deadline - self._clock()
            if self._frozen or left <= 0 or not self._cluster.wait_for_records(seen.ends, left):
                return start
            self._sleep(pause)
            pause = min(max(2 * pause, _PAUSE_FIRST_S), _PAUSE_MAX_S)

    # --- what there is ----------------------------------------------------------------------------------------------

    def _look(self, start: StreamOffset) -> "_Seen":
        if self._frozen and self._known is not None:
            return self._known
        topics = self._cluster.topics(missing_ok=True)
        self._check_gone(start, topics)
        seen = self._seen(topics)
        back = _retreats(start, seen)
        for _ in range(_RETREATS if back else 0):
            self._sleep(_RETREAT_S)
            seen = self._seen(topics)
            back = _retreats(start, seen)
            if not back:
                break
        if back:
            why = "the log ends before what was read already: its leader lost records, or the topic is another one"
            lost(self._options.on_data_loss, back, why)
        self._known = seen
        return seen

    def _seen(self, topics: Topics) -> "_Seen":
        ends = self._cluster.ends(topics.partitions)
        epochs = {partition: each.epoch for partition, each in ends.items() if each.epoch >= 0}
        return _Seen(topics, {partition: each.offset for partition, each in ends.items()}, epochs)

    def _check_gone(self, start: StreamOffset, topics: Topics) -> None:
        gone = set(start.offsets).difference(topics.partitions)
        if gone:
            what = f"{partitions_text(gone)} is no longer there: what was not read of it is lost"
            lost_from(
                self._options.on_data_loss, {partition: start.offsets[partition] for partition in sorted(gone)}, what
            )

    def _begin(self, start: StreamOffset, seen: "_Seen") -> dict[TopicPartition, int]:
        """Returns the first offset of each partition; new partitions, and those of topics that were created anew, begin
        at their first record."""
        topics = seen.topics
        again = {topic for topic in topics.ids if not _is_same(start, topics, topic)}
        for topic in sorted(again):
            before = {partition: offset for partition, offset in start.offsets.items() if partition.topic == topic}
            if before:
                read = ", ".join(f"{partition} up to {offset}" for partition, offset in before.items())
                what = (
                    f"topic {topic} was deleted and made again (its id was {start.ids[topic]}, now {topics.ids[topic]})"
                )
                what = f"{what}: {read} was read of the old one, what else it had is lost"
                lost_from(self._options.on_data_loss, before, what)
        found = {w: offset for w, offset in start.offsets.items() if w.topic not in again}
        found = {partition: found[partition] for partition in topics.partitions if partition in found}
        found |= self._cuts(start, seen)
        return {
            **found,
            **self._cluster.earliest([partition for partition in topics.partitions if partition not in found]),
        }

    def _cuts(self, start: StreamOffset, seen: "_Seen") -> dict[TopicPartition, int]:
        """Returns the ends of logs that were truncated below the records that were read and have grown again, because
        the new leader lacked records. The ends of the leader epochs tell."""
        changed = {
            partition: epoch
            for partition, epoch in start.epochs.items()
            if _is_same(start, seen.topics, partition.topic)
            and partition in start.offsets
            and seen.epochs.get(partition, epoch) != epoch
            and self._sound.get(partition) != (epoch, seen.epochs[partition])
        }
        ends = self._cluster.ends_of_epochs(changed) if changed else {}
        cuts = {partition: end for partition, end in ends.items() if end < start.offsets[partition]}
        if cuts:
            gone = [OffsetRange(partition, end, start.offsets[partition]) for partition, end in cuts.items()]
            why = "they were read, and a new leader has others in their place, which were not (unclean leader election)"
            lost(self._options.on_data_loss, gone, why)
        self._sound |= {
            partition: (epoch, seen.epochs[partition]) for partition, epoch in changed.items() if partition not in cuts
        }
        return cuts

    # --- how much of it ---------------------------------------------------------------------------------------------

    def _is_enough(self, begin: Offsets, ends: Offsets, everything: bool) -> bool:
        count = sum(max(end - begin[partition], 0) for partition, end in ends.items())
        retreated = any(end < begin[partition] for partition, end in ends.items())
        limits = self._options.limits
        waits = limits.min_offsets > count and not (everything or self._frozen or retreated)  # a loss is told once
        if waits and count and self._clock() < self._batch_at + limits.max_delay_ms / 1000:
            return False
        return bool(count) or retreated

    def _bounded(self, begin: Offsets, ends: Offsets, everything: bool) -> dict[TopicPartition, int]:
        limits = self._options.limits
        found = dict(ends)
        if everything:
            return found
        if limits.max_offsets:
            found = bounded(limits.max_offsets, begin, found)
        if limits.max_bytes:
            sizes = self._cluster.record_bytes(list(ends))
            found = bounded_by_bytes(limits.max_bytes, begin, found, sizes)
        return found

    def _offset(self, start: StreamOffset, seen: "_Seen", begin: Offsets, ends: Offsets) -> StreamOffset:
        """Returns the end of a micro-batch, with those first offsets that Spark cannot know."""
        limits = self._options.limits
        unknown = {w: offset for w, offset in begin.items() if start.is_initial or start.offsets.get(w) != offset}
        plan = Plan(limits.min_partitions, limits.max_records)
        sizes = self._cluster.record_bytes(list(ends)) if limits.min_partitions else {}
        record_bytes = {partition: max(round(sizes[partition]), 1) for partition in ends if partition in sizes}
        return StreamOffset(ends, unknown, plan, seen.topics.ids, epochs=seen.epochs, record_bytes=record_bytes)

    # --- lag --------------------------------------------------------------------------------------------------------

    def _commit_for_lag(self, start: StreamOffset) -> None:
        """Commits `start` for tools that show lag: Spark asks for the next offsets when all before them were processed.
        An error does not stop the query."""
        group_id = self._options.group_id_for_lag
        if group_id is None or start.is_initial or start.offsets == self._committed:
            return
        try:
            ends = {
                partition: LogEnd(offset, start.epochs.get(partition, NO_LEADER_EPOCH))
                for partition, offset in start.offsets.items()
            }
            self._cluster.commit_for_lag(group_id, ends)
        except BarnabasError as error:
            _log.warning("the offsets of group %s (option groupIdForLag) cannot be committed: %s", group_id, error)
        self._committed = start.offsets


def _retreats(start: StreamOffset, seen: _Seen) -> list[OffsetRange]:
    """Returns the ranges that were read and now lie behind the ends."""
    found = [
        OffsetRange(partition, seen.ends.get(partition, offset), offset)
        for partition, offset in start.offsets.items()
        if _is_same(start, seen.topics, partition.topic)
    ]
    return [each for each in found if each.size]


def _is_same(start: StreamOffset, topics: Topics, topic: str) -> bool:
    """Whether it is the topic that the query has read, as far as ids tell."""
    before, now = start.ids.get(topic), topics.ids.get(topic)
    return before is None or now is None or before == now
