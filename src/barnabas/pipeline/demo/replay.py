"""The flights as events: day by day in the order of their scheduled departures, each day in one transaction.

With a day its progress is committed, so that a run that was killed goes on where the last whole day ended, and no
flight is there twice. It also bounds how late an event can be: nothing of a day can be read before all of the day
before can be.
"""

import threading
import time
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from barnabas import Admin, OffsetAndMetadata, Producer
from barnabas.client.errors import ItemsFailed
from barnabas.errors import GroupIdNotFound
from barnabas.pipeline.demo.flights import Flight, read_flights
from barnabas.pipeline.demo.topics import EVENTS
from barnabas.types import TopicPartition

__all__ = ["Replay", "flights_in_order", "forget_replay", "replayed"]

_GROUP: Final = "flights-replay"
_PROGRESS: Final = TopicPartition(EVENTS, 0)
_DAY_MS: Final = 86_400_000
_STOP_TIMEOUT_S: Final = 3.0


def flights_in_order(limit: int | None = None) -> list[Flight]:
    """Returns all flights, or the first `limit` ones, by scheduled departure."""
    return sorted(read_flights(), key=lambda flight: flight.timestamp)[:limit]


def replayed(admin: Admin) -> int:
    """Returns how many flights are in the topic."""
    committed = admin.list_group_offsets(_GROUP, [_PROGRESS], require_stable=True).get(_PROGRESS)
    return 0 if committed is None else committed.offset


def forget_replay(admin: Admin) -> None:
    """Deletes the progress of the replay, as its topic is deleted."""
    try:
        admin.delete_groups(_GROUP)
    except ItemsFailed as error:
        if not error.only(GroupIdNotFound):
            raise


class Replay:
    """A thread that reads the flights and sends them, from number `done` on. It sends half of them at once, so that
    there is a backlog when the queries begin, and the others after `go_live`, within `seconds` at least."""

    def __init__(self, settings: dict[str, object], limit: int | None, done: int, seconds: float) -> None:
        self.flights: Sequence[Flight] = ()
        """All flights that the topic is to have; empty until the file is read."""
        self.done = done
        self.failure: Exception | None = None
        self._settings = settings
        self._limit = limit
        self._first = done
        self._seconds = seconds
        self._ended = threading.Event()
        self._live = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)

    @property
    def is_over(self) -> bool:
        return self._ended.is_set()

    def start(self) -> None:
        self._thread.start()

    def go_live(self) -> None:
        self._live.set()

    def stop(self) -> None:
        """Stops after the day that is being sent."""
        self._stop.set()
        self._live.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self.flights = flights_in_order(self._limit)
            if self._first < len(self.flights):
                self._send(self.flights[self._first :])
        except Exception as error:
            self.failure = error
        finally:
            self._ended.set()

    def _send(self, left: Sequence[Flight]) -> None:
        backlog = len(left) // 2
        began: float | None = None
        with Producer(self._settings, transactional_id=_GROUP, compression_type="lz4", linger_ms=0) as producer:
            producer.init_transactions()
            for _, day in groupby(left, key=lambda flight: flight.timestamp // _DAY_MS):
                keys, values, timestamps = zip(*day, strict=True)
                with producer.transaction():
                    producer.send_many(EVENTS, values, keys=keys, timestamps=timestamps)
                    after = self.done + len(values)
                    producer.send_offsets_to_transaction({_PROGRESS: OffsetAndMetadata(after)}, _GROUP)
                self.done = after
                live = after - self._first - backlog
                if live > 0:
                    self._live.wait()
                    began = began or time.monotonic()
                    due = began + self._seconds * live / (len(left) - backlog)
                    self._stop.wait(max(due - time.monotonic(), 0))
                if self._stop.is_set():
                    return
