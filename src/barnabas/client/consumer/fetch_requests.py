"""Fetch requests on the client: what the fetcher wants is sent over connections of their own, answers go back to it.

Brokers park fetches, so nothing else may wait behind them.
"""

import logging
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.client.fetch.fetch_request import FetchRules, FetchTask
from barnabas.client.fetch.fetch_response import read_answer
from barnabas.client.fetch.fetcher import Fetcher
from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.network_client import NetworkClient, Node
from barnabas.errors import (
    BarnabasError,
    ClientError,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    error_for,
)
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.types import TopicPartition

__all__ = ["FetchRequestManager"]

FETCH_ROLE: Final = 2

_SESSION_ENDED: Final = (FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError)

_log = logging.getLogger("barnabas.consumer")


class _Failure(NamedTuple):
    """What became of the last requests to a broker."""

    tries: int
    """In vain, in a row."""
    again_at: float
    text: str
    """What the application may read of it; empty where nothing is wrong."""


class FetchRequestManager:
    """See the module."""

    def __init__(self, client: NetworkClient, subscription: SubscriptionState, rules: FetchRules) -> None:
        self.fetcher = Fetcher(subscription, client.metadata, rules)
        self.answers = 0
        self.failed = 0
        self._client = client
        self._subscription = subscription
        self._has_news = True
        self._retry_at = float("inf")
        self._unready: set[int] = set()
        """Brokers that would be asked if their connection stood."""
        self._failures: dict[int, _Failure] = {}
        """Of brokers that gave no answer of use. The others do not wait."""
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

    # --- the network client's turns -----------------------------------------------------------------------------------

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
        return any(self._client.is_ready(Node(node, FETCH_ROLE)) for node in self._unready)

    def _is_ready(self, node: int) -> bool:
        failure = self._failures.get(node)
        if failure is not None and failure.again_at > self._client.now:
            self._retry_at = min(self._retry_at, failure.again_at)
            return False
        if self._client.is_ready(Node(node, FETCH_ROLE)):
            return True
        self._unready.add(node)
        return False

    def _send(self, task: FetchTask) -> None:
        def done(response: Any, error: Error | None) -> None:
            self._has_news = True
            if error is not None:
                self.fetcher.failed(task)
                self._client.metadata.mark_stale()
            else:
                self.answers += 1
                if self.fetcher.answered(task, response, self._client.now):
                    self._failures.pop(task.node, None)
                    return
                error = error_for(response.error_code or InvalidFetchSessionEpoch.code)
            self.failed += 1
            self._note_failure(task.node, error)

        timeout_s = self._client.settings.connection.request_timeout_s + task.max_wait_ms / 1000
        call = ClientRequest(
            FetchRequest, done, build=task.request, decode=read_answer, at_most=task.at_most, timeout_s=timeout_s
        )
        self._client.send(call, Node(task.node, FETCH_ROLE))

    def _note_failure(self, node: int, error: Error) -> None:
        """Ask again after a pause, but at once where only the session is to begin anew; say so to whom it concerns."""
        known = self._failures.get(node)
        tries = 1 if known is None else known.tries + 1
        is_passing = isinstance(error, _SESSION_ENDED) and tries == 1
        pause_s = 0.0 if is_passing else self._client.backoff_s(tries)
        text = f"fetching from broker {node} fails: {error}"
        self._failures[node] = _Failure(tries, self._client.now + pause_s, "" if is_passing else text)
        if isinstance(error, ClientError):
            if not error.retriable:
                self._failure = error
            return
        if not is_passing and (known is None or known.text != text):
            _log.warning("%s; it is asked again", text)
        if not error.retriable:
            self._failure = error_for(error.code, text)

    def failing(self) -> tuple[str, ...]:
        """What brokers say, or what is wrong with their answers, where these are refused as a whole."""
        return tuple(each.text for each in self._failures.values() if each.text)

    def close(self) -> None:
        """Tell brokers that their sessions end, where a connection stands."""
        for task in self.fetcher.closing():
            if self._client.is_ready(Node(task.node, FETCH_ROLE)):
                call = ClientRequest(FetchRequest, _ignore, build=task.request, at_most=task.at_most)
                self._client.send(call, Node(task.node, FETCH_ROLE))

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """They are no longer assigned, or read from elsewhere."""
        self.fetcher.forget(partitions)
        self._has_news = True


def _ignore(response: Any, error: Error | None) -> None:
    """Nobody waits for it."""
