"""The topics that a consumer subscribes to, beside those that a simulated cluster has."""

import re

import pytest

from barnabas.client.consumer.subscribed_topics import SubscribedTopics
from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.client.fetch.positions import ResetStrategy
from barnabas.errors import InvalidTopic, TopicAuthorizationFailed
from simulation.cluster import SingleClientCluster


class Subscribed(SingleClientCluster):
    def __init__(self, *topics: str) -> None:
        super().__init__(dict.fromkeys(topics, 1))
        self.subscription = SubscriptionState(ResetStrategy("earliest"))
        self.subscribed = SubscribedTopics(self.network_client, self.subscription)

    def refresh(self) -> str | None:
        self.result(self.network_client.refresh_metadata())
        return self.subscribed.on_metadata()


def test_a_pattern_follows_the_topics_that_there_are() -> None:
    cluster = Subscribed("a-1", "a-2", "b-1")
    cluster.subscribed.subscribe_pattern(re.compile("a-.*"))
    assert cluster.refresh() == "other topics match the pattern: new are a-1, a-2"
    assert cluster.refresh() is None
    cluster.topics["a-3"] = {0: 1}
    del cluster.topics["a-1"]
    assert cluster.refresh() == "other topics match the pattern: new are a-3; gone are a-1"
    assert cluster.subscription.topics == {"a-2", "a-3"}
    cluster.subscription.unsubscribe()
    cluster.subscribed.unsubscribe()
    assert not cluster.network_client.metadata.all_topics


def test_metadata_are_kept_for_the_wanted_topics_alone() -> None:
    cluster = Subscribed("a", "b")
    cluster.subscription.subscribe(["a"])
    cluster.subscribed.want()
    cluster.subscription.subscribe(["b"])
    cluster.subscribed.want()
    assert cluster.network_client.metadata.topics == ["b"]


@pytest.mark.parametrize("kind", [InvalidTopic, TopicAuthorizationFailed])
def test_a_topic_that_may_not_be_read_is_told_once(kind: type[InvalidTopic]) -> None:
    cluster = Subscribed()
    cluster.topic_errors["a"] = kind.code
    cluster.subscription.subscribe(["a"])
    cluster.subscribed.want()
    cluster.refresh()
    assert cluster.subscribed.has_failed
    assert isinstance(cluster.subscribed.take_failure(), kind)
    assert cluster.subscribed.take_failure() is None


def test_a_topic_that_is_missing_is_waited_for_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Subscribed()
    cluster.subscription.subscribe(["later"])
    cluster.subscribed.want()
    for _ in range(3):
        cluster.refresh()
    assert [record.getMessage() for record in caplog.records] == [
        "topic 'later' does not exist (yet); this consumer waits for it"
    ]
    assert not cluster.subscribed.has_failed
    cluster.topics["later"] = {0: 1}
    cluster.refresh()
    del cluster.topics["later"]
    cluster.refresh()
    assert len(caplog.records) == 2, "it was there meanwhile"
