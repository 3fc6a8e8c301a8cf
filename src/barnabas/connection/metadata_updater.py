"""Keeps metadata fresh: when to ask for it, and who waits for the response."""

from collections.abc import Iterable
from typing import Any, Final, Protocol

from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.cluster import TopicView
from barnabas.connection.metadata import Metadata
from barnabas.connection.promise import Promise
from barnabas.connection.targets import ANY, RequestSender
from barnabas.connection.timers import NEVER, Timers, spelled
from barnabas.errors import (
    BrokerUnreachable,
    OperationTimedOut,
    RebootstrapRequired,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    error_for,
)

__all__ = ["HOPELESS", "MetadataClient", "MetadataUpdater"]

HOPELESS: Final = (SaslAuthenticationFailed, UnsupportedSaslMechanism, BrokerUnreachable)
"""Wrong credentials, wrong addresses: waiting does not help."""


class MetadataClient(RequestSender, Protocol):
    """What the updater needs of the network client."""

    now: float
    timers: Timers

    def backoff_s(self, failures: int) -> float: ...
    def unreachable(self) -> BrokerUnreachable: ...
    def metadata_updated(self) -> None: ...
    def rebootstrap(self, error: Error) -> None: ...


class MetadataUpdater:
    """Sends the Metadata requests of a network client."""

    def __init__(self, client: MetadataClient, metadata: Metadata, now: float) -> None:
        self.active = False
        """Whether anything was ever asked of the network client."""
        self._client = client
        self._metadata = metadata
        self._in_flight = False
        self._failures = 0
        self._failing_since = NEVER
        """When the first request since the last update was sent."""
        self._not_before = now
        self._waiters: list[Promise[None]] = []
        self._topics: list[tuple[str, Promise[TopicView]]] = []
        """Topics that somebody waits for."""

    def next_update_at(self, now: float) -> float:
        """Returns when to ask: at once for new topics, after a pause if an update is requested, else at an age."""
        if not self.active or self._in_flight:
            return NEVER
        metadata = self._metadata
        has_new = metadata.has_new_topics
        if has_new and not self._failures:
            return now
        return self._not_before if has_new or metadata.update_requested else metadata.expires_at()

    def has_failed_for(self, seconds: float) -> bool:
        """Whether there was no update for so long, though it was asked for."""
        return self._failures > 0 and not self._in_flight and self._failing_since + seconds <= self._client.now

    def restart(self) -> None:
        """Counts the time without an update anew: the client begins again from the bootstrap addresses."""
        self._failing_since = NEVER

    def close(self, error: Error) -> None:
        """Fails all who wait, and sends nothing more."""
        self._in_flight = True
        for _, topic in self._topics:
            topic.fail(error)
        for waiter in self._waiters:
            waiter.fail(error)

    def add_topics(self, topics: Iterable[str]) -> None:
        self.active = True
        self._metadata.add_topics(topics)

    def refresh(self) -> Promise[None]:
        """Requests an update. The promise is settled with a response that was asked for after this call."""
        self.active = True
        self._metadata.request_update()
        promise: Promise[None] = Promise()
        self._waiters.append(promise)
        return promise

    def topic(self, name: str, timeout_s: float) -> Promise[TopicView]:
        """Returns the topic, asked for if need be; it may have partitions without a leader.

        Fails at once with what no waiting mends (InvalidTopic, TopicAuthorizationFailed); with TopicNotFound or the
        reason for silence when the time is over.
        """
        self.add_topics([name])
        promise: Promise[TopicView] = Promise()
        known = self._metadata.topic(name)
        if known is not None:
            promise.resolve(known)
            return promise
        self._topics.append((name, promise))

        def give_up() -> None:
            unreachable = self._client.unreachable()
            if self._metadata.version and not unreachable.attempts:
                promise.fail(self._metadata.topic_error(name))
            else:
                text = f"no metadata of topic {name!r} within {spelled(timeout_s)}: {unreachable}"
                promise.fail(OperationTimedOut(text, unreachable.attempts))

        timer = self._client.timers.at(self._client.now + timeout_s, give_up)
        promise.on_done(lambda _: timer.cancel())
        return promise

    def send_request(self) -> None:
        """Asks any broker for all topics that are due."""
        client, metadata = self._client, self._metadata
        request, asked = metadata.request(client.now)
        waiters, self._waiters = self._waiters, []
        self._in_flight = True
        self._failing_since = min(self._failing_since, client.now)

        def done(response: Any, error: Error | None) -> None:
            self._in_flight = False
            if error is None and response.error_code:
                error = error_for(response.error_code)
            if error is None:
                self._failing_since = NEVER
                metadata.update(response, asked, client.now)
                self._failures = self._failures + 1 if metadata.update_requested else 0
                self._settle_topics()
            else:
                metadata.request_update()
                self._failures += 1
                if isinstance(error, RebootstrapRequired):
                    client.rebootstrap(error)
                elif isinstance(error, HOPELESS):
                    topics, self._topics = self._topics, []
                    for _, promise in topics:
                        promise.fail(error)
            self._not_before = client.now + client.backoff_s(max(self._failures, 1))
            for waiter in waiters:
                if error is None:
                    waiter.resolve(None)
                else:
                    waiter.fail(error)
            if error is None:
                client.metadata_updated()

        def build(version: int) -> Any:
            if version == 0 and asked is None:
                request.topics = []  # version 0 has no null: an empty list means all there are
            return request

        client.send(ClientRequest(type(request), done, build=build), ANY)

    def _settle_topics(self) -> None:
        waiters, self._topics = self._topics, []
        for name, promise in waiters:
            topic = self._metadata.topic(name)
            if topic is not None:
                promise.resolve(topic)
                continue
            known = self._metadata.cluster.topics.get(name)
            if known is not None and known.error_code and not error_for(known.error_code).retriable:
                promise.fail(self._metadata.topic_error(name))
            elif not promise.done:
                self._topics.append((name, promise))
