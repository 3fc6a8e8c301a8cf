"""`barnabas.Consumer` against a broker of ours, with faults: positions, errors, and groups."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import barnabas
from barnabas import TopicPartition
from barnabas.errors import CommitFailed, NotCoordinator, NotLeaderOrFollower, OffsetOutOfRange
from barnabas.testing import Broker
from stopwatch import Stopwatch


@pytest.fixture
def where(broker: Broker, name: str) -> TopicPartition:
    """A partition with the numbers 0 to 999 in batches of some 50."""
    broker.create_topic(name)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=2_000) as producer:
        for number in range(1_000):
            producer.send(name, b"%d" % number)
    return TopicPartition(name, 0)


@pytest.fixture
def reading(broker: Broker, where: TopicPartition) -> Iterator[Callable[..., barnabas.Consumer]]:
    """A consumer that begins at an offset."""
    opened: list[barnabas.Consumer] = []

    def begin(start: int, **settings: Any) -> barnabas.Consumer:
        consumer = barnabas.Consumer(
            bootstrap_servers=broker.bootstrap_servers, **{"auto_offset_reset": "earliest", **settings}
        )
        opened.append(consumer)
        consumer.assign([where])
        consumer.seek(where, start)
        return consumer

    yield begin
    for consumer in opened:
        consumer.close()


def read(consumer: barnabas.Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [int(record.value) for record in consumer.poll(60, count - len(found))]
    return found


@pytest.mark.parametrize("start", [0, 1, 37, 999])
def test_reading_begins_exactly_at_the_offset(reading: Any, where: TopicPartition, start: int) -> None:
    consumer = reading(start)
    assert read(consumer, 1_000 - start) == list(range(start, 1_000))
    assert consumer.position(where) == 1_000
    assert consumer.health().lag == {where: 0}


def test_small_answers_are_put_together(reading: Any) -> None:
    assert read(reading(0, max_partition_fetch_bytes=1), 1_000) == list(range(1_000))


def test_at_the_end_poll_waits_and_then_gives_nothing(
    broker: Broker, reading: Any, where: TopicPartition, stopwatch: Stopwatch
) -> None:
    consumer = reading(1_000)
    began, began_run = time.monotonic(), stopwatch()
    assert consumer.poll(0.2) == []
    assert time.monotonic() - began > 0.15
    assert stopwatch() - began_run < 1.0
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(where.topic, b"1000")
    assert read(consumer, 1) == [1_000]


@pytest.mark.parametrize("fault", ["disconnect", "error"])
def test_reading_goes_on_after_failures(broker: Broker, reading: Any, fault: str) -> None:
    consumer = reading(0, max_partition_fetch_bytes=4_000)
    found = read(consumer, 50)
    if fault == "disconnect":
        rule = broker.faults.disconnect("Fetch", times=2)
    else:
        rule = broker.faults.error("Fetch", NotLeaderOrFollower, times=2)
    found += read(consumer, 1_000 - len(found))
    assert rule.hits == 2
    assert found == list(range(1_000))


def test_an_offset_that_is_gone(broker: Broker, reading: Any, where: TopicPartition) -> None:
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({where: 500})
    strict = reading(0, auto_offset_reset="none")
    with pytest.raises(OffsetOutOfRange, match=f"{where}: offset 0 "):
        strict.poll(60)
    assert read(reading(0), 500) == list(range(500, 1_000))


# --- groups ---------------------------------------------------------------------------------------------------------


class Member:
    """A consumer of a group with a thread that polls until it is stopped."""

    def __init__(self, broker: Broker, group: str, **settings: Any) -> None:
        self.consumer = barnabas.Consumer(
            group,
            bootstrap_servers=broker.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=50,
            **settings,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.is_set():
            self.consumer.poll(0.05)

    @property
    def assignment(self) -> set[TopicPartition]:
        return self.consumer.assignment()

    def stop(self) -> None:
        """No more polls; the member is still in the group."""
        self._stop.set()
        self._thread.join(60)

    def close(self) -> None:
        self.stop()
        self.consumer.close()


@pytest.fixture
def member(broker: Broker, name: str) -> Iterator[Callable[..., Member]]:
    broker.create_topic(name, partitions=4)
    members: list[Member] = []

    def join(**settings: Any) -> Member:
        members.append(Member(broker, name, **settings))
        return members[-1]

    yield join
    for each in members:
        each.close()


def test_two_members_share_and_the_last_one_takes_over(broker: Broker, name: str, member: Any) -> None:
    everything = {TopicPartition(name, number) for number in range(4)}
    first = member()
    broker.wait_for(lambda: first.assignment == everything)
    second = member()
    broker.wait_for(lambda: len(first.assignment) == len(second.assignment) == 2)
    assert first.assignment | second.assignment == everything
    second.close()
    broker.wait_for(lambda: first.assignment == everything)


def test_who_was_left_behind_may_not_commit(broker: Broker, name: str, member: Any) -> None:
    first = member()
    broker.wait_for(lambda: first.assignment)
    first.stop()
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.remove_members(name)
    with pytest.raises(CommitFailed):
        first.consumer.commit({TopicPartition(name, 0): 1})


def test_a_lost_coordinator_is_found_again(broker: Broker, name: str, member: Any) -> None:
    first = member()
    broker.wait_for(lambda: first.assignment)
    rule = broker.faults.error("HEARTBEAT", NotCoordinator, times=2)
    broker.wait_for(lambda: rule.hits == 2)
    first.stop()
    first.consumer.commit({TopicPartition(name, 0): 3})
    assert broker.committed(name)[name, 0] == 3


def test_a_static_member_keeps_its_partitions_over_a_restart(broker: Broker, name: str, member: Any) -> None:
    first = member(group_instance_id="a")
    broker.wait_for(lambda: len(first.assignment) == 4)
    generation = first.consumer.group_metadata().generation_id
    first.close()
    again = member(group_instance_id="a")
    broker.wait_for(lambda: len(again.assignment) == 4)
    assert again.consumer.group_metadata().generation_id == generation
