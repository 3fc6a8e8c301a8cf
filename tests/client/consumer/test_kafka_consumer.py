"""The whole synchronous consumer on a simulated cluster: what its application gets, hears and commits."""

import contextlib
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client.consumer.subscription_state import NoOffsetForPartition
from barnabas.errors import KafkaError, UsageError
from barnabas.protocol.apis import ApiKey
from barnabas.types import TopicPartition
from simulation.cluster import CUT, Cluster, FetchFailed
from simulation.consumer import SimulatedConsumer, virtual_time

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
UNKNOWN_MEMBER = 25
INVALID_REQUEST, SESSION_NOT_FOUND = 42, 70
GROUP = {"group_id": "g", "session_timeout_ms": 10_000}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster({"t": 2, "u": 1}, nodes=2, initial_rebalance_delay_ms=0)
    with virtual_time(cluster):
        yield cluster


def fill(cluster: Cluster, count: int = 10, topic: str = "t") -> None:
    for partition in cluster.topics[topic]:
        cluster.log(topic, partition).append(*(b"%d" % number for number in range(count)))
    cluster.written()


def assigned(cluster: Cluster, *partitions: TopicPartition, **named: Any) -> SimulatedConsumer:
    consumer = SimulatedConsumer(cluster, "c", **named)
    consumer.assign(partitions)
    return consumer


def offsets(records: Any, topic_partition: TopicPartition = T0) -> list[int]:
    return [record.offset for record in records if (record.topic, record.partition) == topic_partition]


# --- what is interrupted, or takes its time ---------------------------------------------------------------------------


def test_answers_that_come_while_records_are_decoded_do_not_undo_that(cluster: Cluster) -> None:
    def slow(data: bytes) -> int:
        cluster.run(seconds=0.3)  # the background thread takes answers in and asks for more
        return int(data)

    fill(cluster)
    consumer = assigned(cluster, T0, T1, value_deserializer=slow)
    seen = consumer.poll(5) + consumer.poll(5)
    assert offsets(seen) == offsets(seen, T1) == [*range(10)]


@pytest.mark.parametrize("at", [0, 3, 9])
def test_records_whose_decoding_was_interrupted_come_with_the_next_poll(cluster: Cluster, at: int) -> None:
    interrupts = [at]

    def interrupted(data: bytes) -> int:
        if interrupts == [int(data)]:
            interrupts.clear()
            raise KeyboardInterrupt
        return int(data)

    fill(cluster)
    consumer = assigned(cluster, T0, value_deserializer=interrupted)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(5)
    assert consumer.position(T0) == 0
    assert offsets(consumer.poll(5)) == [*range(10)]


def test_a_poll_that_is_interrupted_keeps_nothing_to_itself(cluster: Cluster) -> None:
    interrupts: list[int] = [2]

    def interrupted(data: bytes) -> int:
        if int(data) == 0:
            interrupts[0] -= 1
            if not interrupts[0]:
                raise KeyboardInterrupt
        return int(data)

    fill(cluster)
    consumer = assigned(cluster, T0, T1, value_deserializer=interrupted, group_id="g")
    cluster.run(seconds=1)  # both partitions are in store
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(5)
    consumer.commit()
    assert all(found is None or found.offset == 0 for found in consumer.committed([T0, T1]).values())
    seen = consumer.poll(5) + consumer.poll(5)
    assert offsets(seen) == offsets(seen, T1) == [*range(10)]


# --- interceptors -----------------------------------------------------------------------------------------------------


class Interceptor:
    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.committed: list[Any] = []

    def on_consume(self, records: Any) -> Any:
        if self.fails:
            raise RuntimeError("on_consume")
        return [record for record in records if record.offset % 2]

    def on_commit(self, offsets: Any) -> None:
        self.committed.append({topic_partition: each.offset for topic_partition, each in offsets.items()})


def test_interceptors_change_records_and_hear_of_commits(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    fill(cluster)
    broken, even = Interceptor(fails=True), Interceptor()
    consumer = assigned(cluster, T0, group_id="g", interceptor_classes=[broken, even], enable_auto_commit=False)
    assert offsets(consumer.poll(5)) == [1, 3, 5, 7, 9]
    assert "on_consume of" in caplog.text
    consumer.commit()
    assert broken.committed == even.committed == [{T0: 10}]


# --- positions --------------------------------------------------------------------------------------------------------


def test_a_listener_may_ask_where_it_stands(cluster: Cluster) -> None:
    fill(cluster)
    first = assigned(cluster, T0, T1, group_id="g")
    first.commit({T0: 4})
    first.close()
    heard: dict[TopicPartition, int] = {}

    def ask(consumer: Any, partitions: Any) -> None:
        heard.update({topic_partition: consumer.position(topic_partition, timeout=5) for topic_partition in partitions})

    consumer = SimulatedConsumer(cluster, "c", "t", on_assigned=ask, **GROUP)
    assert consumer.poll(30)
    assert heard == {T0: 4, T1: 0}


def test_who_has_sought_hears_no_more_of_the_missing_offset(cluster: Cluster) -> None:
    fill(cluster)
    consumer = assigned(cluster, T0, group_id="g", auto_offset_reset="none")
    with pytest.raises(NoOffsetForPartition):
        consumer.poll(5)
    cluster.run(seconds=3)  # it is asked for again and again
    consumer.seek(T0, 3)
    assert offsets(consumer.poll(5)) == [*range(3, 10)]


def test_unsubscribing_commits_what_was_read(cluster: Cluster) -> None:
    fill(cluster)
    consumer = SimulatedConsumer(cluster, "c", "t", **GROUP)
    while len(offsets(consumer.poll(5))) < 10:
        pass
    consumer.unsubscribe()
    consumer.assign([T0])
    committed = consumer.committed([T0])[T0]
    assert committed is not None
    assert committed.offset == 10
    consumer.assign([T1])
    consumer.poll(5)
    consumer.assign([T0])
    assert consumer.committed([T1])[T1] is not None


def test_a_commit_by_itself_leaves_out_what_is_at_hand(cluster: Cluster) -> None:
    fill(cluster)
    consumer = SimulatedConsumer(cluster, "c", "t", **GROUP, auto_commit_interval_ms=1000)
    while not (records := consumer.poll(5)):
        pass
    cluster.run(seconds=5)
    assert sum(cluster.committed("g").values()) == 0
    consumer.poll(0, max_records=1)
    cluster.run(seconds=5)
    assert sum(cluster.committed("g").values()) == len(records)


def test_what_moves_to_another_member_is_committed_before(cluster: Cluster) -> None:
    """Cooperative members read on while the group meets; what they read then is not to be read twice."""
    settings = GROUP | {"partition_assignment_strategy": ["cooperative-sticky"], "auto_commit_interval_ms": 1_000_000}
    first = SimulatedConsumer(cluster, "a", "t", **settings)
    first.poll(5)
    second = SimulatedConsumer(cluster, "b", "t", **settings)
    seen: list[tuple[int, int]] = []
    for number in range(60):
        fill(cluster, 1)
        for consumer in (first, second):
            seen += [(record.partition, record.offset) for record in consumer.poll(0.1)]
        if number > 20 and len(first.assignment()) == len(second.assignment()) == 1:
            break
    else:
        raise AssertionError("nothing has moved")
    while records := [*first.poll(1), *second.poll(1)]:
        seen += [(record.partition, record.offset) for record in records]
    assert sorted(seen) == sorted(set(seen))
    assert len(seen) == sum(cluster.log(*topic_partition).end for topic_partition in (T0, T1))


# --- the group --------------------------------------------------------------------------------------------------------


def test_a_member_without_partitions_that_stayed_away_joins_once(cluster: Cluster) -> None:
    settings = GROUP | {"max_poll_interval_ms": 20_000}
    consumer = SimulatedConsumer(cluster, "idle", "nowhere", **settings)
    while not consumer.health().generation_id > 0:
        consumer.poll(1)
    assert not consumer.assignment()
    cluster.run(seconds=30)
    joins = consumer.client.count(ApiKey.JOIN_GROUP)
    consumer.poll(5)
    assert consumer.health().state == "stable"
    assert (
        consumer.client.count(ApiKey.JOIN_GROUP) == joins + 2
    )  # the second one with the member id that the first one got


def test_warnings_come_at_half_and_at_four_fifths(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    consumer = SimulatedConsumer(cluster, "c", "t", **GROUP, max_poll_interval_ms=100_000)
    consumer.poll(5)
    caplog.set_level(logging.WARNING)
    for seconds, expected in ((49, 0), (2, 1), (28, 1), (2, 2), (18, 2)):
        cluster.run(seconds=seconds)
        assert len(re.findall("of max.poll.interval.ms=100000", caplog.text)) == expected
    assert consumer.health().state == "stable"
    cluster.run(seconds=2)
    assert consumer.health().state == "unjoined"
    assert "leaving, its records go to others: no poll for max.poll.interval.ms=100000" in caplog.text


def test_a_pattern_waits_for_all_topics(cluster: Cluster) -> None:
    """An answer about some topics, asked for before, does not count as all that there are."""
    consumer = SimulatedConsumer(cluster, "c", **GROUP)
    cluster.topics |= {f"x{number}": {0: 1} for number in range(5)}
    consumer.client.network_client.add_topics(["x1"])
    consumer.subscribe(re.compile("x.*"))
    while not consumer.assignment():
        consumer.poll(1)
    assert len(consumer.assignment()) == 5
    assert len(consumer.health().rebalances) == 1


def test_a_subscription_without_topics_is_refused(cluster: Cluster) -> None:
    consumer = SimulatedConsumer(cluster, "c", **GROUP)
    with pytest.raises(UsageError, match="unsubscribe"):
        consumer.subscribe([])
    consumer.subscribe(["t"])
    assert consumer.subscription() == {"t"}


def test_the_constructors_listener_counts_for_a_later_subscription(cluster: Cluster) -> None:
    heard: list[Any] = []
    consumer = SimulatedConsumer(cluster, "c", on_assigned=lambda _, partitions: heard.append(partitions), **GROUP)
    consumer.subscribe(["u"])
    consumer.poll(1)
    assert heard == [(TopicPartition("u", 0),)]


def test_an_expelled_member_is_known_by_what_it_had(cluster: Cluster) -> None:
    """With nobody's name its producer would commit offsets of partitions that are with others."""
    consumer = SimulatedConsumer(cluster, "c", "t", **GROUP)
    assert consumer.group_metadata() == ("g", -1, "", None)
    consumer.poll(5)
    before = consumer.group_metadata()
    assert before.generation_id == 1
    assert before.member_id
    cluster.add_fault(ApiKey.HEARTBEAT, UNKNOWN_MEMBER)
    cluster.run(lambda: consumer.health().state == "unjoined", seconds=10)
    assert consumer.group_metadata() == before
    consumer.poll(30)
    assert consumer.group_metadata().generation_id > 1


# --- brokers ----------------------------------------------------------------------------------------------------------


def test_a_dead_broker_keeps_no_other_from_being_asked(cluster: Cluster) -> None:
    """Each failure of one was a pause for all."""
    consumer = assigned(cluster, T0, T1)
    consumer.poll(1)
    cluster.stop(cluster.topics["t"][1])
    began = cluster.now
    for _ in range(30):
        cluster.log("t", 0).append(b"x")
        cluster.written()
        assert len(consumer.poll(5)) == 1
    assert cluster.now - began < 0.5


@pytest.mark.parametrize("how", ["committed", "reset", "validated"])
def test_an_outage_while_a_position_is_looked_up_is_waited_out(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    fill(cluster)
    consumer = assigned(cluster, T0, **GROUP if how == "committed" else {})
    consumer.partitions_for("t")
    if how == "validated":
        consumer.poll(5)
        cluster.add_fault(ApiKey.OFFSET_FOR_LEADER_EPOCH, *[CUT] * 20)
        cluster.move_leader(T0, 2)
        consumer.poll(1)
    for node_id in (1, 2):
        cluster.stop(node_id)
    began = cluster.now
    assert consumer.poll(200) == []
    assert cluster.now - began == pytest.approx(200)
    assert "looking up positions again: gave up after 60 s" in caplog.text
    cluster.up.update((1, 2))
    cluster.log("t", 0).append(b"new")
    cluster.written()
    assert offsets(consumer.poll(120))[-1] == 10


def test_no_reader_goes_back_for_a_leader_that_was_replaced_without_knowing_it(cluster: Cluster) -> None:
    fill(cluster)
    consumer = assigned(cluster, T0, auto_offset_reset="latest")
    consumer.poll(1)
    consumer.seek(T0, 13, leader_epoch=1)  # committed by a reader of the next leader
    consumer.poll(2)
    cluster.move_leader(T0, 2)
    cluster.log("t", 0).append(b"10", b"11", b"12", b"13")
    cluster.written()
    assert offsets(consumer.poll(10)) == [13]


def test_fetches_go_on_when_a_connection_breaks_each_time(cluster: Cluster) -> None:
    fill(cluster)
    consumer = assigned(cluster, T0, T1)
    cluster.add_fault(ApiKey.FETCH, *[CUT] * 4)
    seen = []
    while len(seen) < 20:
        seen += consumer.poll(5)
    assert offsets(seen) == offsets(seen, T1) == [*range(10)]


def test_a_broker_that_refuses_all_fetches_is_not_pressed_and_is_named(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = assigned(cluster, T0)
    cluster.add_fault(ApiKey.FETCH, *[FetchFailed(INVALID_REQUEST)] * 500)
    fill(cluster)
    before, began = consumer.client.count(ApiKey.FETCH), cluster.now
    with pytest.raises(KafkaError, match="fetching from broker"):
        consumer.poll(10)
    cluster.run(seconds=20)
    assert consumer.client.count(ApiKey.FETCH) - before < 20 + 2 * (cluster.now - began)
    assert any("fetching from broker" in text for text in consumer.health().fetch_failures)
    assert not consumer.health().is_well
    assert caplog.text.count("it is asked again") == 1
    cluster.faults.clear()
    with contextlib.suppress(KafkaError):  # of before
        consumer.poll(0)
    assert offsets(consumer.poll(5)) == [*range(10)]
    assert consumer.health().fetch_failures == ()
    assert consumer.health().is_well


def test_a_session_that_is_always_gone_is_not_begun_without_a_pause(cluster: Cluster) -> None:
    fill(cluster)
    consumer = assigned(cluster, T0)
    cluster.add_fault(ApiKey.FETCH, *[FetchFailed(SESSION_NOT_FOUND)] * 500)
    consumer.poll(20)
    assert consumer.client.count(ApiKey.FETCH) < 100
    assert consumer.health().fetch_failures
    cluster.faults.clear()
    assert offsets(consumer.poll(5)) == [*range(10)]
    assert consumer.health().fetch_failures == ()


def test_one_session_that_is_gone_costs_no_pause(cluster: Cluster) -> None:
    consumer = assigned(cluster, T0)
    consumer.poll(1)
    cluster.add_fault(ApiKey.FETCH, FetchFailed(SESSION_NOT_FOUND))
    fill(cluster)
    began = cluster.now
    assert offsets(consumer.poll(5)) == [*range(10)]
    assert cluster.now == began


def test_metadata_is_not_asked_for_behind_a_parked_join(cluster: Cluster) -> None:
    slow = Cluster({"t": 2}, nodes=1, initial_rebalance_delay_ms=60_000)
    with virtual_time(slow):
        consumer = SimulatedConsumer(slow, "c", "t", **GROUP, request_timeout_ms=20_000)
        consumer.poll(1)
        assert consumer.client.count(ApiKey.JOIN_GROUP)
        for link in [link for link in consumer.client.links.values() if not link.pending and not link.busy]:
            consumer.client.cut(link)
        before = consumer.client.count(ApiKey.METADATA)
        asked = consumer.client.network_client.refresh_metadata()
        assert slow.run(lambda: asked.done, seconds=5)
        assert consumer.client.count(ApiKey.METADATA) > before
