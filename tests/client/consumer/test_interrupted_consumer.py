"""Ctrl-C wherever it may come, caught by the application, which goes on: it gets each record once, in order, and is
known to be away when it is."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.types import TopicPartition
from interrupts import interrupted_at
from simulation.cluster import Client, Cluster
from simulation.consumer import SimulatedConsumer, virtual_time

FILES = (
    "client/consumer/front.py",
    "client/consumer/threads.py",
    "client/consumer/reading.py",
    "client/fetch/completed_fetch.py",
    "client/consumer/kafka_consumer.py",
    "client/consumer/delivered_records.py",
    "client/fetch/fetch_buffer.py",
    "client/consumer/subscription_state.py",
    "contextlib.py",
)
PARTITIONS = 2
ALL = [TopicPartition("t", number) for number in range(PARTITIONS)]
PLACES_MAX = 2000
TURN = (Client.turn.__code__, Cluster.run.__code__)
"""The network client's: the driver says what is interrupted there, see `SyncDriver._begin_work`."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster({"t": PARTITIONS}, nodes=2, initial_rebalance_delay_ms=0)
    with virtual_time(cluster):
        yield cluster


def fill(cluster: Cluster, count: int) -> None:
    for partition in ALL:
        log = cluster.log(*partition)
        log.append(*(b"%d" % offset for offset in range(log.end, log.end + count)))
    cluster.written()


class Application:
    """Notes what it gets; each partition's records must follow one another."""

    def __init__(self, cluster: Cluster, **settings: Any) -> None:
        self.cluster = cluster
        self.next = dict.fromkeys(ALL, 0)
        self.iterator: Iterator[Any] | None = None
        """Kept, because nobody hears of what interrupts the end of one that is not."""
        self.consumer = SimulatedConsumer(cluster, "c", "t", group_id="g", max_poll_interval_ms=20_000, **settings)
        self.consumer.poll(5)
        assert set(self.consumer.assignment()) == set(ALL)

    def take(self, records: Any) -> None:
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            assert record.offset == self.next[partition], f"{record} after {self.next[partition] - 1}"
            self.next[partition] += 1

    def stands(self) -> None:
        """Where it says it stands, and what it would commit, is what it has got."""
        for partition in ALL:
            assert self.consumer.position(partition) == self.next[partition]
        consumed = self.consumer._state.delivered.consumed()
        assert {partition: consumed[partition].offset for partition in ALL} == self.next

    def read_all(self) -> None:
        ends = {partition: self.cluster.log(*partition).end for partition in ALL}
        while self.next != ends:
            records = self.consumer.poll(5)
            assert records, (self.next, ends)
            self.take(records)


def storm(application: Application, read: Callable[[], Any]) -> int:
    """Interrupt a reading at one place after the other until one goes through; how many places there are."""
    for place in range(PLACES_MAX):
        fill(application.cluster, 3)
        application.cluster.run(seconds=0.2)  # some of it is in store
        interrupted, records = interrupted_at(place, FILES, read, shielded=TURN)
        if records is not None:
            application.take(records)
        assert not application.consumer._reading.locked()
        assert not application.consumer._inside
        application.stands()
        if not interrupted:
            application.read_all()
            return place
        if place % 3:
            application.read_all()
    raise AssertionError("it never goes through")


def first_batch(application: Application) -> Any:
    application.iterator = application.consumer.batches()
    return next(application.iterator)


def a_few(application: Application) -> list[Any]:
    """By an iteration that is given up in the middle."""
    application.iterator = iter(application.consumer)
    for count, record in enumerate(application.iterator):
        application.take([record])
        if count == 1:
            break
    return []


READINGS: dict[str, Callable[[Application], Any]] = {
    "poll": lambda application: application.consumer.poll(5),
    "a short poll": lambda application: application.consumer.poll(0, max_records=4),
    "batches": first_batch,
    "iteration": a_few,
}


@pytest.mark.parametrize("reading", READINGS)
def test_what_an_interrupted_call_took_comes_again(cluster: Cluster, reading: str) -> None:
    application = Application(cluster)
    assert storm(application, lambda: READINGS[reading](application)) > 30  # fewer where the state machine is compiled


def test_batches_of_seen_records(cluster: Cluster) -> None:
    application = Application(cluster, value_deserializer=int)
    assert storm(application, lambda: first_batch(application)) > 50


def test_a_rebalance_that_is_interrupted_comes_to_its_end(cluster: Cluster) -> None:
    """The group gives its partitions once more, and the listener hears of them."""
    for place in range(PLACES_MAX):
        told: list[TopicPartition] = []
        consumer = SimulatedConsumer(
            cluster, "c", "t", group_id="g", on_assigned=lambda _, partitions, told=told: told.extend(partitions)
        )
        files = (
            "client/consumer/front.py",
            "client/consumer/threads.py",
            "client/consumer/group/consumer_coordinator.py",
        )
        interrupted, _ = interrupted_at(place, files, lambda consumer=consumer: consumer.poll(1), shielded=TURN)
        consumer.poll(5)
        consumer.poll(5)
        assert set(consumer.assignment()) == set(ALL), place
        assert set(told) == set(ALL), place
        fill(cluster, 1)
        assert {record.partition for record in [*consumer.poll(5), *consumer.poll(5)]} == {0, 1}, place
        consumer.close()
        cluster.clients.remove(consumer.client)
        if not interrupted:
            assert place > 30
            return
    raise AssertionError("it never goes through")


def test_an_application_that_left_a_poll_by_ctrl_c_and_stays_away_is_noticed(cluster: Cluster) -> None:
    application = Application(cluster)
    consumer = application.consumer
    for place in range(PLACES_MAX):
        interrupted, _ = interrupted_at(place, FILES, lambda: consumer.poll(0.1), shielded=TURN)
        poll_timer = consumer._state.coordinator.membership.poll_timer  # type: ignore[union-attr]
        cluster.run(seconds=4)
        assert not poll_timer.is_waiting, place
        consumer.poll(0.1)
        if not interrupted:
            break
    assert consumer.health().state == "stable"
    cluster.run(seconds=30)
    assert consumer.health().state == "unjoined"
    assert "max.poll.interval.ms" in (consumer.health().rejoining or "")
