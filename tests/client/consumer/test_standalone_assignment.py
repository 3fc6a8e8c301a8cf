"""A consumer without a group on a simulated cluster: its partitions, its listener, and topics that come and go."""

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client.consumer.rebalance_listener import RebalanceEvent
from barnabas.client.consumer.standalone_assignment import StandaloneAssignment
from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.client.fetch.positions import ResetStrategy
from barnabas.connection.metadata import Metadata
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.types import TopicPartition
from simulation.cluster import Cluster
from simulation.consumer import SimulatedConsumer, virtual_time

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
METADATA_MAX_AGE_S = 301


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster({"t": 2, "u": 1}, nodes=2)
    for topic, partitions in cluster.topics.items():
        for partition in partitions:
            cluster.log(topic, partition).append(b"0", b"1", b"2")
    cluster.written()
    with virtual_time(cluster):
        yield cluster


class Listener:
    """Notes the events of a consumer, with its assignment at that time."""

    def __init__(self) -> None:
        self.events: list[tuple[str, set[TopicPartition], set[TopicPartition]]] = []

    def callbacks(self) -> dict[str, Any]:
        return {f"on_{kind}": self._callback(kind) for kind in ("assigned", "revoked", "lost")}

    def _callback(self, kind: str) -> Any:
        return lambda consumer, partitions: self.events.append((kind, {*partitions}, consumer.assignment()))


def read(consumer: SimulatedConsumer, count: int) -> list[tuple[str, int, int]]:
    seen: list[tuple[str, int, int]] = []
    for _ in range(20):
        if len(seen) >= count:
            break
        seen += [(record.topic, record.partition, record.offset) for record in consumer.poll(1)]
    assert len(seen) == count
    return sorted(seen)


def expected(*partitions: TopicPartition) -> list[tuple[str, int, int]]:
    return sorted((*partition, offset) for partition in partitions for offset in range(3))


def test_all_partitions_are_read(cluster: Cluster) -> None:
    listener = Listener()
    consumer = SimulatedConsumer(cluster, "c", "t", **listener.callbacks())
    assert read(consumer, 6) == expected(T0, T1)
    assert listener.events == [("assigned", {T0, T1}, {T0, T1})]
    assert consumer.health().state == "without a group"


def test_the_listener_seeks_before_the_first_fetch(cluster: Cluster) -> None:
    consumer = SimulatedConsumer(cluster, "c", "t", on_assigned=lambda c, _: [c.seek(each, 2) for each in (T0, T1)])
    assert read(consumer, 2) == [("t", 0, 2), ("t", 1, 2)]


def test_new_partitions_are_assigned_when_metadata_lists_them(cluster: Cluster) -> None:
    listener = Listener()
    consumer = SimulatedConsumer(cluster, "c", "t", **listener.callbacks())
    read(consumer, 6)
    cluster.topics["t"][2] = cluster.topics["t"][0]
    cluster.log("t", 2).append(b"0", b"1", b"2")
    cluster.written()
    cluster.run(seconds=METADATA_MAX_AGE_S)
    new = TopicPartition("t", 2)
    assert read(consumer, 3) == expected(new)
    assert listener.events[1:] == [("assigned", {new}, {T0, T1, new})]


def test_another_subscription_revokes_before_it_assigns(cluster: Cluster) -> None:
    listener = Listener()
    consumer = SimulatedConsumer(cluster, "c", "t", **listener.callbacks())
    read(consumer, 6)
    consumer.subscribe(["u"])
    assert read(consumer, 3) == expected(U0)
    assert listener.events[1:] == [("revoked", {T0, T1}, {T0, T1}), ("assigned", {U0}, {U0})]


def test_topics_of_both_subscriptions_keep_their_positions(cluster: Cluster) -> None:
    listener = Listener()
    consumer = SimulatedConsumer(cluster, "c", "t", **listener.callbacks())
    read(consumer, 6)
    consumer.subscribe(["t", "u"])
    assert read(consumer, 3) == expected(U0)
    assert listener.events[1:] == [("assigned", {U0}, {T0, T1, U0})]
    assert consumer.position(T0) == 3


def test_an_event_comes_again_after_an_exception_of_the_listener(cluster: Cluster) -> None:
    failures = [RuntimeError("the listener fails")]
    events: list[Any] = []

    def on_revoked(_: Any, partitions: Any) -> None:
        events.append(partitions)
        if failures:
            raise failures.pop()

    consumer = SimulatedConsumer(cluster, "c", "t", on_revoked=on_revoked)
    read(consumer, 6)
    consumer.subscribe(["u"])
    with pytest.raises(RuntimeError):
        consumer.poll(1)
    assert read(consumer, 3) == expected(U0)
    assert consumer.assignment() == {U0}
    assert events == [(T0, T1)], "the listener has got the event, even if it failed"


def test_partitions_of_a_deleted_topic_stay_assigned(cluster: Cluster) -> None:
    listener = Listener()
    consumer = SimulatedConsumer(cluster, "c", "t", "u", **listener.callbacks())
    read(consumer, 9)
    before = len(listener.events)
    gone = cluster.topics.pop("u")
    cluster.run(seconds=METADATA_MAX_AGE_S)
    consumer.poll(1)
    assert U0 in consumer.assignment()
    cluster.topics["u"] = gone
    cluster.run(seconds=METADATA_MAX_AGE_S)
    consumer.poll(1)
    assert consumer.position(U0) == 3
    assert len(listener.events) == before


def test_a_subscription_after_unsubscribe_begins_anew(cluster: Cluster) -> None:
    listener = Listener()
    consumer = SimulatedConsumer(cluster, "c", "t", **listener.callbacks())
    read(consumer, 6)
    consumer.unsubscribe()
    assert consumer.assignment() == set()
    consumer.subscribe(["t"])
    assert read(consumer, 6) == expected(T0, T1)


def test_an_event_comes_until_it_is_delivered_or_abandoned() -> None:
    metadata = Metadata()
    partition = MetadataResponsePartition(partition_index=0, leader_id=1)
    metadata.update(MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[partition])]), None, 0.0)
    subscription = SubscriptionState(ResetStrategy("earliest"))
    subscription.subscribe(["t"])
    assignment = StandaloneAssignment(metadata, subscription, lambda removed: None)
    assert not assignment.can_poll
    assignment.update()
    event = assignment.poll()
    assert event == RebalanceEvent("assigned", (T0,))
    assert assignment.poll() is event, "a poll was interrupted before the listener got the event"
    subscription.unsubscribe()
    assignment.abandon()
    assert not assignment.can_poll
    assert assignment.poll() is None
