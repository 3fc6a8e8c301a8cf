"""Fetched records that were not read to their end, and errors that the application must get.

Records and errors belong to an offset. After a seek, a reset or a rebalance they are dropped at the next access.

Statements that must happen together have no call between them, so that no KeyboardInterrupt comes in between.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.fetch.positions import AssignedPartitions, FetchPosition
from barnabas.errors import BarnabasError
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition

__all__ = ["FetchBuffer"]


class FetchBuffer:
    """The completed fetches of all partitions. Reading them moves the partitions' positions."""

    def __init__(self, partitions: AssignedPartitions) -> None:
        self.size_bytes = 0
        """The size of all completed fetches."""
        self.has_dropped = False
        """Whether records were dropped that have to be fetched again; the FetchRequestManager resets it."""
        self._partitions = partitions
        self._fetches: dict[TopicPartition, deque[CompletedFetch]] = {}
        """The fetches by partition, in the order in which partitions are read."""
        self._leaders: dict[TopicPartition, tuple[BrokerId, LeaderEpoch]] = {}
        """The leader that the position was validated with when the fetches completed, and its epoch."""
        self._failures: dict[TopicPartition, tuple[int, BarnabasError]] = {}
        self._lent: tuple[CompletedFetch, int] | None = None
        """The fetch that `next_fetch` returned, and its first offset: its reader moves it ahead of the position."""

    # --- filling ----------------------------------------------------------------------------------------------------

    def next_offset(self, topic_partition: TopicPartition, position: FetchPosition) -> int:
        """Returns the offset at which the next fetch has to begin."""
        fetches = self._current(topic_partition, position)
        if not fetches:
            return position.offset
        end = fetches[-1].end_offset
        assert end is not None, topic_partition
        return end

    def count(self, topic_partition: TopicPartition, position: FetchPosition) -> int:
        """Returns the number of fetches from the position on."""
        return len(self._current(topic_partition, position))

    def has_failure(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._failures

    def add(self, fetch: CompletedFetch) -> None:
        """Adds a fetch that begins at `next_offset`."""
        topic_partition = fetch.partition
        state = self._partitions.get(topic_partition)
        if state is not None and state.position is not None:
            self._leaders[topic_partition] = state.position.leader, state.position.leader_epoch
        fetches = self._fetches.setdefault(topic_partition, deque())
        fetches += (fetch,)
        self.size_bytes += fetch.size_bytes

    def fail(self, topic_partition: TopicPartition, offset: int, error: BarnabasError) -> None:
        """Adds an error that is raised when all records before the offset were read."""
        self._failures[topic_partition] = offset, error

    def _current(self, topic_partition: TopicPartition, position: FetchPosition) -> deque[CompletedFetch]:
        fetches = self._fetches.get(topic_partition)
        if fetches and (
            self._begins_at(fetches[0]) != position.offset
            # the position was validated with another leader since, whose log may have other records behind it
            or self._leaders.get(topic_partition) != (position.leader, position.leader_epoch)
        ):
            self._drop(topic_partition)
            fetches = None
        if not fetches and topic_partition in self._failures and self._failures[topic_partition][0] != position.offset:
            del self._failures[topic_partition]
        return fetches or _NOTHING

    def _begins_at(self, fetch: CompletedFetch) -> int:
        return self._lent[1] if self._lent is not None and self._lent[0] is fetch else fetch.next_offset

    def make_room(self) -> None:
        """Drops the records of partitions that are not fetchable now; they are fetched again later."""
        for topic_partition in list(self._fetches):
            if not self._is_fetchable(topic_partition):
                self._drop(topic_partition)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops the fetches and errors of partitions that are no longer assigned."""
        for topic_partition in partitions:
            self._drop(topic_partition)
            self._failures.pop(topic_partition, None)

    def _drop(self, topic_partition: TopicPartition) -> None:
        self.has_dropped = True
        fetches = self._fetches.get(topic_partition)
        if fetches is not None:
            size = sum(fetch.size_bytes for fetch in fetches)
            self.size_bytes -= size
            del self._fetches[topic_partition]
            self._leaders.pop(topic_partition, None)

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether no record can be read and no error raised now."""
        return not any(self._is_fetchable(each) for each in (*self._fetches, *self._failures))

    def _is_fetchable(self, topic_partition: TopicPartition) -> bool:
        state = self._partitions.get(topic_partition)
        return state is not None and state.is_fetchable

    def next_fetch(self, *, raises_errors: bool = True) -> CompletedFetch | None:
        """Lends the next fetch to a reader, which needs no lock to read it; `was_read` ends that. Raises an error that
        has no records before it, if `raises_errors`."""
        if self._lent is not None:  # its reader was interrupted: the records that it may have read are fetched again
            abandoned, self._lent = self._lent[0], None
            if abandoned in self._fetches.get(abandoned.partition, ()):
                self._drop(abandoned.partition)
        for topic_partition in list(self._fetches):
            fetch = self._front(topic_partition)
            if fetch is not None:
                self._lent = fetch, fetch.next_offset
                return fetch
        if raises_errors:
            self._raise_failures()
        return None

    def was_read(self, fetch: CompletedFetch, *, ended: bool) -> bool:
        """Moves the position behind the records that were read of a fetch; `ended`: it has no more. Returns False if
        the position has changed since, so that the records do not count."""
        topic_partition = fetch.partition
        fetches, state = self._fetches.get(topic_partition), self._partitions.get(topic_partition)
        self._lent = None
        if not fetches or fetches[0] is not fetch or state is None or not state.is_fetchable or state.position is None:
            return False
        if fetch.next_offset > state.position.offset:
            state.advance(fetch.next_offset, fetch.leader_epoch)
        if ended and not fetch.has_failed:
            self._done(topic_partition)
        return True

    def _front(self, topic_partition: TopicPartition) -> CompletedFetch | None:
        """Returns the fetch of a partition to read next, None if there is none or the partition is not fetchable."""
        state = self._partitions.get(topic_partition)
        if state is None or not state.is_valid or state.position is None or state.pending_revocation:
            self._drop(topic_partition)
            return None
        if not state.is_fetchable:
            return None  # paused partitions keep their fetches
        fetches = self._current(topic_partition, state.position)
        return fetches[0] if fetches else None

    def _done(self, topic_partition: TopicPartition) -> None:
        """Removes a partition's first fetch, which was read to its end, and gives the turn to the other partitions."""
        fetches = self._fetches[topic_partition]
        self.size_bytes -= fetches[0].size_bytes
        del fetches[0]
        del self._fetches[topic_partition]
        if fetches:
            self._fetches[topic_partition] = fetches
        self._partitions.take_turn(topic_partition)

    def _raise_failures(self) -> None:
        for topic_partition, (offset, failure) in list(self._failures.items()):
            state = self._partitions.get(topic_partition)
            position = state.position if state is not None and state.is_valid else None
            if position is None or position.offset > offset:
                del self._failures[topic_partition]
            elif position.offset == offset and self._is_fetchable(topic_partition):
                del self._failures[topic_partition]
                raise failure


_NOTHING: Final[deque[CompletedFetch]] = deque(maxlen=0)
