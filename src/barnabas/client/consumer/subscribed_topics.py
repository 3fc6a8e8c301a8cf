"""Compares the topics that a consumer subscribes to with the metadata, to find the topics that match its pattern, the
missing ones, and those that it may not read."""

import logging
from collections.abc import Collection

from barnabas.client.consumer.subscription_state import Pattern, SubscriptionState
from barnabas.connection.network_client import NetworkClient
from barnabas.errors import BarnabasError, InvalidTopic, TopicAuthorizationFailed, UnknownTopicOrPartition, error_for

__all__ = ["SubscribedTopics"]

_LASTING = (InvalidTopic.code, TopicAuthorizationFailed.code)

_log = logging.getLogger("barnabas.consumer")


class SubscribedTopics:
    def __init__(self, client: NetworkClient, subscription: SubscriptionState) -> None:
        self._client = client
        self._subscription = subscription
        self._wanted: frozenset[str] = frozenset()
        self._failures: dict[str, BarnabasError] = {}
        self._missing: set[str] = set()
        """The topics whose absence was logged."""
        self._matched = False
        """Whether the pattern was compared with all topics."""

    def subscribe_pattern(self, pattern: Pattern) -> None:
        """Subscribes to the topics whose whole names match, when metadata lists all topics."""
        self._subscription.subscribe_pattern(pattern)
        self._matched = False
        self._client.metadata.all_topics = True
        self._client.refresh_metadata()

    def want(self) -> None:
        """Keeps the subscribed topics in the metadata, and no others."""
        wanted = self._subscription.topics
        self._client.metadata.remove_topics(self._wanted - wanted)
        self._wanted = wanted
        self._client.add_topics(sorted(wanted))

    def unsubscribe(self) -> None:
        self._client.metadata.all_topics = False
        self.want()

    def on_metadata(self) -> str | None:
        """Compares the subscription with new metadata. Returns the change of the pattern's topics, None without one."""
        view = self._client.metadata.cluster
        news = None
        if self._subscription.has_pattern and self._client.metadata.has_all_topics:
            before = self._subscription.topics
            known = [(name, topic.is_internal) for name, topic in view.topics.items() if not topic.error_code]
            changed = self._subscription.match_pattern(known)
            if changed or not self._matched:
                self._matched = True
                news = _difference(before, self._subscription.topics)
        for name in self._subscription.topics:
            topic = view.topics.get(name)
            if topic is not None and topic.error_code:
                self._note(name, topic.error_code)
            else:
                self._missing.discard(name)
        return news

    def _note(self, name: str, code: int) -> None:
        if code in _LASTING:
            self._failures[name] = self._client.metadata.topic_error(name)
        elif name not in self._missing:
            self._missing.add(name)
            if not error_for(code).retriable or code == UnknownTopicOrPartition.code:
                _log.warning("%s (yet); this consumer waits for it", self._client.metadata.topic_error(name))

    @property
    def has_failed(self) -> bool:
        """Whether there is a topic that the consumer may not read."""
        return bool(self._failures)

    def take_failure(self) -> BarnabasError | None:
        """Returns the error of a topic that the consumer may not read, once."""
        return self._failures.pop(next(iter(self._failures))) if self._failures else None


def _difference(before: Collection[str], after: Collection[str]) -> str:
    more, less = sorted(set(after) - set(before)), sorted(set(before) - set(after))
    parts = [f"new are {', '.join(more)}"] * bool(more) + [f"gone are {', '.join(less)}"] * bool(less)
    return f"other topics match the pattern: {'; '.join(parts)}"
