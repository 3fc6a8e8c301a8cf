"""Answers that were fetched and are not read to their end, and failures that the application must hear of.

Both belong to an offset: after a seek, a reset or a rebalance they are dropped when they are next looked at.

Where steps belong together there is no call among them, so that no KeyboardInterrupt comes between.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.fetch.positions import FetchPosition
from barnabas.errors import BarnabasError
from barnabas.types import TopicPartition

__all__ = ["FetchBuffer"]


class FetchBuffer:
    """See the module. Reading moves the positions of the subscription."""

    def __init__(self, subscription: SubscriptionState) -> None:
        self.size_bytes = 0
        """Of all answers in store."""
        self.has_dropped = False
        """Whether something was dropped, so that it has to be asked for again; whoever asks sets it to False."""
        self._subscription = subscription
        self._answers: dict[TopicPartition, deque[CompletedFetch]] = {}
        """In the order in which partitions are read."""
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        """The leader, and its epoch, that the position was checked with when the answers came."""
        self._failures: dict[TopicPartition, tuple[int, BarnabasError]] = {}
        self._lent: tuple[CompletedFetch, int] | None = None
        """What `next_fetch` gave, and where it began: while it is read elsewhere it runs ahead of the position."""

    # --- filling ----------------------------------------------------------------------------------------------------

    def next_offset(self, where: TopicPartition, position: FetchPosition) -> int:
        """Where the next answer has to begin."""
        answers = self._current(where, position)
        if not answers:
            return position.offset
        end = answers[-1].end_offset
        assert end is not None, where
        return end

    def count(self, where: TopicPartition, position: FetchPosition) -> int:
        """Answers in store from the position on."""
        return len(self._current(where, position))

    def has_failure(self, where: TopicPartition) -> bool:
        return where in self._failures

    def add(self, fetch: CompletedFetch) -> None:
        """It begins at `next_offset`."""
        where = fetch.partition
        state = self._subscription.get(where)
        if state is not None and state.position is not None:
            self._leaders[where] = state.position.leader, state.position.leader_epoch
        answers = self._answers.setdefault(where, deque())
        answers += (fetch,)
        self.size_bytes += fetch.size_bytes

    def fail(self, where: TopicPartition, offset: int, error: BarnabasError) -> None:
        """To be raised once everything before that offset is read."""
        self._failures[where] = offset, error

    def _current(self, where: TopicPartition, position: FetchPosition) -> deque[CompletedFetch]:
        answers = self._answers.get(where)
        if answers and (
            self._begins_at(answers[0]) != position.offset
            # The position was checked with another leader since, whose log may have other records behind it.
            or self._leaders.get(where) != (position.leader, position.leader_epoch)
        ):
            self._drop(where)
            answers = None
        if not answers and where in self._failures and self._failures[where][0] != position.offset:
            del self._failures[where]
        return answers or _NOTHING

    def _begins_at(self, fetch: CompletedFetch) -> int:
        return self._lent[1] if self._lent is not None and self._lent[0] is fetch else fetch.next_offset

    def make_room(self) -> None:
        """What is in store of partitions that are paused, or whose position is in doubt, will be fetched again."""
        for where in list(self._answers):
            if not self._subscription.is_fetchable(where):
                self._drop(where)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They are no longer assigned."""
        for where in partitions:
            self._drop(where)
            self._failures.pop(where, None)

    def _drop(self, where: TopicPartition) -> None:
        self.has_dropped = True
        answers = self._answers.get(where)
        if answers is not None:
            size = sum(fetch.size_bytes for fetch in answers)
            self.size_bytes -= size
            del self._answers[where]
            self._leaders.pop(where, None)

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that may be read or raised now."""
        return not any(self._subscription.is_fetchable(where) for where in (*self._answers, *self._failures))

    def next_fetch(self, *, tells_failures: bool = True) -> CompletedFetch | None:
        """What is to be read next, by whoever asks and without a lock; `was_read` takes it back. Raises failures that
        nothing comes before, unless these can wait."""
        if self._lent is not None:  # its reader was interrupted: what it may have read is fetched again
            abandoned, self._lent = self._lent[0], None
            if abandoned in self._answers.get(abandoned.partition, ()):
                self._drop(abandoned.partition)
        for where in list(self._answers):
            fetch = self._front(where)
            if fetch is not None:
                self._lent = fetch, fetch.next_offset
                return fetch
        if tells_failures:
            self._raise_failures()
        return None

    def was_read(self, fetch: CompletedFetch, *, ended: bool) -> bool:
        """Take the position along; `ended`: nothing is left of it. False if the partition has moved elsewhere since, so
        that what was read does not count."""
        where = fetch.partition
        answers = self._answers.get(where)
        self._lent = None
        if not answers or answers[0] is not fetch or not self._subscription.is_fetchable(where):
            return False
        self._advance(where, fetch)
        if ended and not fetch.has_failed:
            self._done(where)
        return True

    def _front(self, where: TopicPartition) -> CompletedFetch | None:
        """What is next to be read of a partition; None if there is nothing, or it may not be read now."""
        state = self._subscription.get(where)
        if state is None or not state.is_valid or state.position is None or state.pending_revocation:
            self._drop(where)
            return None
        if not state.is_fetchable:
            return None  # paused: kept
        answers = self._current(where, state.position)
        return answers[0] if answers else None

    def _advance(self, where: TopicPartition, fetch: CompletedFetch) -> None:
        state = self._subscription.get(where)
        assert state is not None
        assert state.position is not None
        if fetch.next_offset > state.position.offset:
            self._subscription.advance(where, fetch.next_offset, fetch.leader_epoch)

    def _done(self, where: TopicPartition) -> None:
        """The first answer is read to its end: it is the other partitions' turn."""
        answers = self._answers[where]
        self.size_bytes -= answers[0].size_bytes
        del answers[0]
        del self._answers[where]
        if answers:
            self._answers[where] = answers
        self._subscription.take_turn(where)

    def _raise_failures(self) -> None:
        for where, (offset, failure) in list(self._failures.items()):
            state = self._subscription.get(where)
            position = state.position if state is not None and state.is_valid else None
            if position is None or position.offset > offset:
                del self._failures[where]
            elif position.offset == offset and self._subscription.is_fetchable(where):
                del self._failures[where]
                raise failure


_NOTHING: Final[deque[CompletedFetch]] = deque(maxlen=0)
