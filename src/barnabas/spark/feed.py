"""A streaming query's view of its topics: where it begins, what the next micro-batch holds, how far behind it is.

It lives in the process that Spark keeps on the driver for each source of a query. What it decides goes into the offset
that Spark writes into the checkpoint before anything is read, so that a replay reads the same.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from barnabas.errors import BarnabasError
from barnabas.spark.lookup import Topics
from barnabas.spark.loss import lost, lost_for
from barnabas.spark.offsets import Plan, StreamOffset, partitions_text
from barnabas.spark.options import Position, SourceOptions
from barnabas.spark.planning import OffsetRange, bounded, bounded_by_bytes
from barnabas.types import TopicPartition

__all__ = ["Cluster", "Feed", "ranges_of"]

_log = logging.getLogger("barnabas.spark")

_PAUSE_FIRST_S: Final = 0.01
_PAUSE_MAX_S: Final = 0.05
"""Between two looks for new records while a query has nothing to do."""
_RETREATS: Final = 3
_RETREAT_S: Final = 0.3
"""An end that moves back is asked for again: a new leader may need a moment to know its end."""

Offsets = Mapping[TopicPartition, int]


class Cluster(Protocol):
    """What a feed asks; `Lookup`."""

    def topics(self, *, missing_ok: bool = False) -> Topics: ...
    def earliest(self, partitions: Any) -> dict[TopicPartition, int]: ...
    def latest(self, partitions: Any) -> dict[TopicPartition, int]: ...
    def resolve(self, position: Position, partitions: Any) -> dict[TopicPartition, int]: ...
    def record_bytes(self, partitions: Any) -> dict[TopicPartition, float]: ...
    def commit_for_lag(self, group_id: str, offsets: Offsets) -> None: ...


def ranges_of(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """What a micro-batch reads. A function of its two offsets alone, so that a replay reads the same."""
    if start == end:  # it says where its own batch began, which is not to be read again
        return []
    begin = {**start.offsets, **end.start}
    return [OffsetRange(where, begin.get(where, offset), offset) for where, offset in sorted(end.offsets.items())]


class Feed:
    """See the module."""

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
        self._known: tuple[Topics, dict[TopicPartition, int]] | None = None
        """Topics and ends, as they are or as they were when they were frozen."""
        self._batch_at = float("-inf")
        """When the last micro-batch was given."""
        self._committed: Offsets = {}

    # --- what Spark asks --------------------------------------------------------------------------------------------

    def initial(self) -> StreamOffset:
        """Where a query begins that has no checkpoint. Asked again for as long as its first batch has not succeeded."""
        topics = self._cluster.topics()
        offsets = self._cluster.resolve(self._options.starting, topics.partitions)
        return StreamOffset(offsets, ids=topics.ids, is_initial=True)

    def freeze(self) -> None:
        """From now on there is what the next look finds, and no more (trigger AvailableNow)."""
        self._frozen = True
        self._known = None

    def latest(self) -> dict[TopicPartition, int] | None:
        """The ends as of the last look."""
        return None if self._known is None else self._known[1]

    def after(self, start: StreamOffset, *, everything: bool = False) -> StreamOffset:
        """The end of the next micro-batch; `start` itself if there is nothing to do. `everything`: without limits.
        Raises DataLoss."""
        self._commit_for_lag(start)
        deadline = self._clock() + self._options.poll_timeout_ms / 1000
        pause = _PAUSE_FIRST_S
        while True:
            topics, ends = self._look(start)
            begin = self._begin(start, topics)
            moved = any(not _is_same(start, topics, where.topic) or where not in begin for where in start.offsets)
            if start.is_initial or moved or self._is_enough(begin, ends, everything):
                self._batch_at = self._clock()
                return self._offset(start, topics, begin, self._bounded(begin, ends, everything))
            left = deadline - self._clock()
            if left <= 0 or self._frozen:
                return start
            self._sleep(min(pause, left))
            pause = min(2 * pause, _PAUSE_MAX_S)

    # --- what there is ----------------------------------------------------------------------------------------------

    def _look(self, start: StreamOffset) -> tuple[Topics, dict[TopicPartition, int]]:
        if self._frozen and self._known is not None:
            return self._known
        topics = self._cluster.topics(missing_ok=True)
        self._check_gone(start, topics)
        same = [where for where in start.offsets if _is_same(start, topics, where.topic)]
        ends = self._cluster.latest(topics.partitions)
        for _ in range(_RETREATS):
            if all(ends.get(where, start.offsets[where]) >= start.offsets[where] for where in same):
                break
            self._sleep(_RETREAT_S)
            ends = self._cluster.latest(topics.partitions)
        else:
            back = [OffsetRange(where, ends[where], start.offsets[where]) for where in same if where in ends]
            back = [each for each in back if each.size]
            if back:
                why = "the log ends before what was read already: its leader lost records, or the topic is another one"
                lost(self._options.on_data_loss, back, why)
        self._known = topics, ends
        return self._known

    def _check_gone(self, start: StreamOffset, topics: Topics) -> None:
        gone = set(start.offsets).difference(topics.partitions)
        if gone:
            what = f"{partitions_text(gone)} is no longer there: what was not read of it is lost"
            lost_for(self._options.on_data_loss, what)

    def _begin(self, start: StreamOffset, topics: Topics) -> dict[TopicPartition, int]:
        """Where each partition goes on; those that are new, or of topics that were made again, at their beginning."""
        again = {topic for topic in topics.ids if not _is_same(start, topics, topic)}
        for topic in sorted(again):
            read = ", ".join(
                f"{where} up to {offset}" for where, offset in start.offsets.items() if where.topic == topic
            )
            if read:
                what = (
                    f"topic {topic} was deleted and made again (its id was {start.ids[topic]}, now {topics.ids[topic]})"
                )
                lost_for(
                    self._options.on_data_loss, f"{what}: {read} was read of the old one, what else it had is lost"
                )
        found = {w: offset for w, offset in start.offsets.items() if w.topic not in again}
        found = {where: found[where] for where in topics.partitions if where in found}
        return {**found, **self._cluster.earliest([where for where in topics.partitions if where not in found])}

    # --- how much of it ---------------------------------------------------------------------------------------------

    def _is_enough(self, begin: Offsets, ends: Offsets, everything: bool) -> bool:
        count = sum(max(end - begin[where], 0) for where, end in ends.items())
        retreated = any(end < begin[where] for where, end in ends.items())
        limits = self._options.limits
        waits = limits.min_offsets > count and not (everything or self._frozen)
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

    def _offset(self, start: StreamOffset, topics: Topics, begin: Offsets, ends: Offsets) -> StreamOffset:
        """The end, with where it begins if Spark could not know that."""
        limits = self._options.limits
        unknown = {w: offset for w, offset in begin.items() if start.is_initial or start.offsets.get(w) != offset}
        return StreamOffset(ends, unknown, Plan(limits.min_partitions, limits.max_records), topics.ids)

    # --- lag --------------------------------------------------------------------------------------------------------

    def _commit_for_lag(self, start: StreamOffset) -> None:
        """When Spark asks for what comes after `start`, all before it has been processed. For tools alone, so that a
        failure is no reason to stop."""
        group_id = self._options.group_id_for_lag
        if group_id is None or start.is_initial or start.offsets == self._committed:
            return
        try:
            self._cluster.commit_for_lag(group_id, start.offsets)
        except BarnabasError as error:
            _log.warning("the offsets of group %s (option groupIdForLag) cannot be committed: %s", group_id, error)
        self._committed = start.offsets


def _is_same(start: StreamOffset, topics: Topics, topic: str) -> bool:
    """Whether it is the topic that the query has read, as far as ids tell."""
    before, now = start.ids.get(topic), topics.ids.get(topic)
    return before is None or now is None or before == now
