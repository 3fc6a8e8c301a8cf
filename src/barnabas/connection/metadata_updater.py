"""Metadata kept fresh: when to ask for it, and who waits for the answer."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.cluster import TopicView
from barnabas.connection.metadata import Metadata
from barnabas.connection.promise import Promise
from barnabas.connection.targets import ANY
from barnabas.connection.timers import NEVER, spelled
from barnabas.errors import (
    BrokerUnreachable,
    OperationTimedOut,
    RebootstrapRequired,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    error_for,
)

if TYPE_CHECKING:
    from barnabas.connection.network_client import NetworkClient

__all__ = ["HOPELESS", "MetadataUpdater"]

HOPELESS: Final = (SaslAuthenticationFailed, UnsupportedSaslMechanism, BrokerUnreachable)
"""Wrong credentials, wrong addresses: waiting does not help."""


class MetadataUpdater:
    """A part of the network client."""

    def __init__(self, client: "NetworkClient", metadata: Metadata) -> None:
        self.awake = False
        """Whether anything was ever asked of the network client."""
        self.asked = False
        self.failures = 0
        self.missed_since = NEVER
        """When it was asked for in vain first."""
        self._client = client
        self._metadata = metadata
        self._not_before = client.now
        self._waiters: list[Promise[None]] = []
        self._topics: list[tuple[str, Promise[TopicView]]] = []

    def due(self) -> float:
        """When to ask next: at once for new topics, after a pause for what is stale, at an age for the rest."""
        if not self.awake or self.asked or self._client.closed:
            return NEVER
        metadata = self._metadata
        has_new = metadata.has_new
        if has_new and not self.failures:
            return self._client.now
        if has_new or metadata.is_stale:
            return self._not_before
        return metadata.due_at()

    def is_missed_for(self, seconds: float) -> bool:
        """Whether it was asked for in vain for so long."""
        return self.failures > 0 and not self.asked and self.missed_since + seconds <= self._client.now

    def close(self, error: Error) -> None:
        """Who waits hears it."""
        for _, topic in self._topics:
            topic.fail(error)
        for waiter in self._waiters:
            waiter.fail(error)

    def want(self, topics: Iterable[str]) -> None:
        """Keep these topics in the metadata from now on."""
        self.awake = True
        self._metadata.want(topics)

    def refresh(self) -> Promise[None]:
        """Ask soon; settled with the next answer that was asked for after this call, or an error of the connection."""
        self.awake = True
        self._metadata.mark_stale()
        promise: Promise[None] = Promise()
        self._waiters.append(promise)
        return promise

    def topic(self, name: str, timeout_s: float) -> Promise[TopicView]:
        """The topic, asked for if need be; it may have partitions without a leader.

        Fails at once with what no waiting mends (InvalidTopic, TopicAuthorizationFailed); with TopicNotFound or the
        reason for silence when the time is over.
        """
        self.want([name])
        promise: Promise[TopicView] = Promise()
        known = self._metadata.topic(name)
        if known is not None:
            promise.resolve(known)
            return promise
        self._topics.append((name, promise))

        def give_up() -> None:
            promise.fail(self._why_no_topic(name, timeout_s))

        timer = self._client.at(self._client.now + timeout_s, give_up)
        promise.on_done(lambda _: timer.cancel())
        return promise

    def _why_no_topic(self, name: str, timeout_s: float) -> Error:
        if self._metadata.version and not self._client.attempts:
            return self._metadata.why_not(name)
        unreachable = self._client.unreachable()
        text = f"no metadata of topic {name!r} within {spelled(timeout_s)}: {unreachable}"
        return OperationTimedOut(text, unreachable.attempts)

    def ask(self) -> None:
        """Any broker, for all that is wanted."""
        request, asked = self._metadata.request(self._client.now)
        waiters, self._waiters = self._waiters, []
        self.asked = True
        self.missed_since = min(self.missed_since, self._client.now)

        def done(response: Any, error: Error | None) -> None:
            self.asked = False
            if error is None and response.error_code:
                error = error_for(response.error_code)
            if error is None:
                self.missed_since = NEVER
                self._metadata.take_in(response, asked, self._client.now)
                self.failures = self.failures + 1 if self._metadata.is_stale else 0
                self._settle_topics()
                self._client.follow_brokers()
            else:
                self._metadata.mark_stale()
                self.failures += 1
                if isinstance(error, RebootstrapRequired):
                    self._client.rebootstrap(error)
                elif isinstance(error, HOPELESS):
                    self._fail_topics(error)
            self._not_before = self._client.now + self._client.backoff_s(max(self.failures, 1))
            for waiter in waiters:
                if error is None:
                    waiter.resolve(None)
                else:
                    waiter.fail(error)
            if error is None:
                for listener in self._client.on_metadata:
                    listener()

        def build(version: int) -> Any:
            if version == 0 and asked is None:
                request.topics = []  # version 0 has no null: an empty list means all there are
            return request

        self._client.send(ClientRequest(type(request), done, build=build), ANY)

    def _settle_topics(self) -> None:
        waiters, self._topics = self._topics, []
        for name, promise in waiters:
            topic = self._metadata.topic(name)
            if topic is not None:
                promise.resolve(topic)
                continue
            known = self._metadata.view.topics.get(name)
            if known is not None and known.error_code and not error_for(known.error_code).retriable:
                promise.fail(self._metadata.why_not(name))
            elif not promise.done:
                self._topics.append((name, promise))

    def _fail_topics(self, error: Error) -> None:
        """Whoever waits for a topic hears why there will be none."""
        waiters, self._topics = self._topics, []
        for _, promise in waiters:
            promise.fail(error)
