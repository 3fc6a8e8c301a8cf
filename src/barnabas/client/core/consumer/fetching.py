"""Fetch requests on the engine: what the fetcher wants is sent over connections of their own, answers go back to it.

Brokers park fetches, so nothing else may wait behind them.
"""

from collections.abc import Collection
from typing import Any, Final

from barnabas.client.core.call import Call, Error
from barnabas.client.core.engine import Engine, Node
from barnabas.client.core.fetch_task import FetchRules, FetchTask
from barnabas.client.core.fetcher import Fetcher
from barnabas.client.core.subscription import SubscriptionState
from barnabas.errors import BarnabasError
from barnabas.protocol.codec import decode
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.types import TopicPartition

__all__ = ["Fetching"]

FETCH_ROLE: Final = 2


class Fetching:
    """See the module."""

    def __init__(self, engine: Engine, subscription: SubscriptionState, rules: FetchRules) -> None:
        self.fetcher = Fetcher(subscription, engine.metadata, rules)
        self.answers = 0
        self.failed = 0
        self._engine = engine
        self._subscription = subscription
        self._has_news = True
        self._retry_at = float("inf")
        self._unready: set[int] = set()
        """Brokers that would be asked if their connection stood."""
        self._failures: dict[int, tuple[int, float]] = {}
        """Of brokers that did not answer: how often in a row, and when to ask again. The others do not wait."""
        self._failure: BarnabasError | None = None

    def changed(self) -> None:
        """Positions, pauses, leaders or what is in store have changed."""
        self._has_news = True

    @property
    def wants_turn(self) -> bool:
        """Whether there may be something to ask for."""
        return self._has_news or self.fetcher.store.has_dropped

    def take_failure(self) -> BarnabasError | None:
        failure, self._failure = self._failure, None
        return failure

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    # --- the engine's turns -----------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        if not self.wants_turn and now < self._retry_at and not self._is_any_ready():
            return
        self._has_news = self.fetcher.store.has_dropped = False
        self._retry_at = float("inf")
        self._unready.clear()
        for task in self.fetcher.tasks(now, self._is_ready):
            self._send(task)
        due = self.fetcher.next_deadline()
        if due > now:  # what is due and was not asked for is paused
            self._retry_at = min(self._retry_at, due)

    def next_deadline(self) -> float:
        return self._retry_at

    def _is_any_ready(self) -> bool:
        return any(self._engine.is_ready(Node(node, FETCH_ROLE)) for node in self._unready)

    def _is_ready(self, node: int) -> bool:
        _, again_at = self._failures.get(node, (0, 0.0))
        if again_at > self._engine.now:
            self._retry_at = min(self._retry_at, again_at)
            return False
        if self._engine.is_ready(Node(node, FETCH_ROLE)):
            return True
        self._unready.add(node)
        return False

    def _send(self, task: FetchTask) -> None:
        def done(response: Any, error: Error | None) -> None:
            self._has_news = True
            if error is None:
                self._failures.pop(task.node, None)
                self.answers += 1
                self.fetcher.answered(task, response, self._engine.now)
                return
            self.fetcher.failed(task)
            self.failed += 1
            self._engine.metadata.mark_stale()
            count = self._failures.get(task.node, (0, 0.0))[0] + 1
            self._failures[task.node] = count, self._engine.now + self._engine.backoff_s(count)
            if not error.retriable:
                self._failure = error

        timeout_s = self._engine.settings.connection.request_timeout_s + task.max_wait_ms / 1000
        call = Call(FetchRequest, done, build=task.request, decode=_response, at_most=task.at_most, timeout_s=timeout_s)
        self._engine.send(call, Node(task.node, FETCH_ROLE))

    def close(self) -> None:
        """Tell brokers that their sessions end, where a connection stands."""
        for task in self.fetcher.closing():
            if self._engine.is_ready(Node(task.node, FETCH_ROLE)):
                call = Call(FetchRequest, _ignore, build=task.request, at_most=task.at_most)
                self._engine.send(call, Node(task.node, FETCH_ROLE))

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """They are no longer assigned, or read from elsewhere."""
        self.fetcher.forget(partitions)
        self._has_news = True


def _response(data: bytes, position: int, version: int) -> FetchResponse:
    """Records stay where they were received."""
    return decode(FetchResponse, version, data, position, parts=True)[0]


def _ignore(response: Any, error: Error | None) -> None:
    """Nobody waits for it."""
