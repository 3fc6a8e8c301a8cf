"""Sends the Metadata requests of a network client, and settles the promises of the callers that wait for a response."""

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
"""The errors after which further attempts are useless: wrong credentials, wrong addresses."""


class MetadataClient(RequestSender, Protocol):
    """The part of the network client that the updater uses."""

    now: float
    timers: Timers

    def backoff_s(self, failures: int) -> float: ...
    def unreachable(self) -> BrokerUnreachable: ...
    def metadata_updated(self) -> None: ...
    def rebootstrap(self, error: Error) -> None: ...


class MetadataUpdater:
    """Decides when metadata is updated, and sends the requests."""

    def __init__(self, client: MetadataClient, metadata: Metadata, now: float) -> None:
        self.active = False
        """Whether a component has used the network client; before that, no metadata is requested."""
        self._client = client
        self._metadata = metadata
        self._in_flight = False
        self._failures = 0
        self._failing_since = NEVER
        """The time of the first request since the last update."""
        self._not_before = now
        self._waiters: list[Promise[None]] = []
        self._topics: list[tuple[str, Promise[TopicView]]] = []
        """Callers that wait for a topic."""

    def next_update_at(self, now: float) -> float:
        """Returns when to send a request: at once for new topics, after the backoff if an update is requested, else
        when the metadata expires."""
        if not self.active or self._in_flight:
            return NEVER
        metadata = self._metadata
        has_new = metadata.has_new_topics
        if has_new and not self._failures:
            return now
        return self._not_before if has_new or metadata.update_requested else metadata.expires_at()

    def has_failed_for(self, seconds: float) -> bool:
        """Whether all updates that were requested in the last `seconds` have failed."""
        return self._failures > 0 and not self._in_flight and self._failing_since + seconds <= self._client.now

    def restart(self) -> None:
        """Restarts the time that `has_failed_for` measures: the client begins again from the bootstrap addresses."""
        self._failing_since = NEVER

    def close(self, error: Error) -> None:
        """Fails every promise, and sends no further request."""
        self._in_flight = True
        for _, topic in self._topics:
            topic.fail(error)
        for waiter in self._waiters:
            waiter.fail(error)

    def add_topics(self, topics: Iterable[str]) -> None:
        self.active = True
        self._metadata.add_topics(topics)

    def refresh(self) -> Promise[None]:
        """Requests an update. The promise is settled by the response to a request that is sent after this call."""
        self.active = True
        self._metadata.request_update()
        promise: Promise[None] = Promise()
        self._waiters.append(promise)
        return promise

    def topic(self, name: str, timeout_s: float) -> Promise[TopicView]:
        """Returns the topic, which is requested if it is unknown. Its partitions may lack leaders.

        The promise fails at once with an error that is not retriable (InvalidTopic, TopicAuthorizationFailed). After
        `timeout_s` it fails with TopicNotFound, or with OperationTimedOut if no broker has answered.
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
        """Sends a Metadata request for all topics that are due to any broker."""
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
