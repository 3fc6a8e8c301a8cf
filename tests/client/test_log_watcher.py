"""Ends, epochs and parked questions, against a broker of ours."""

import threading
from collections.abc import Iterator

import pytest

import barnabas
from barnabas.client.log_watcher import LogWatcher
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from stopwatch import Stopwatch

LONG_S = 60.0
"""What is over before that has not waited to the end."""


def write(broker: Broker, name: str, partition: int = 0) -> None:
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(name, b"x", partition=partition)


@pytest.fixture
def watcher(broker: Broker) -> Iterator[LogWatcher]:
    with LogWatcher({"bootstrap.servers": broker.bootstrap_servers}) as watcher:
        yield watcher


def places(name: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(name, number) for number in range(count)]


def test_ends_and_epochs(broker: Broker, watcher: LogWatcher, name: str) -> None:
    broker.create_topic(name, 2)
    one, other = places(name, 2)
    write(broker, name)
    found = watcher.offsets_at({one: -1, other: -2})
    assert (found[one].offset, found[other].offset) == (1, 0)
    assert watcher.epoch_ends({one: found[one].leader_epoch}) == {one: (found[one].leader_epoch, 1)}


def test_records_that_are_there_need_no_waiting(
    broker: Broker, watcher: LogWatcher, name: str, stopwatch: Stopwatch
) -> None:
    broker.create_topic(name, 2)
    one, other = places(name, 2)
    write(broker, name, 1)
    watcher.offsets_at({one: -1})
    began = stopwatch()
    assert watcher.wait_for_records({one: 0, other: 0}, LONG_S)
    assert stopwatch() < began + LONG_S / 2


def test_a_record_that_comes_ends_the_wait(
    broker: Broker, watcher: LogWatcher, name: str, stopwatch: Stopwatch
) -> None:
    broker.create_topic(name, 2)
    ends = dict.fromkeys(places(name, 2), 0)
    watcher.offsets_at(ends)
    assert not watcher.wait_for_records(ends, 0.01)
    # the broker may still hold the first question: what it answers to that counts for the second
    threading.Thread(target=write, args=(broker, name)).start()
    began = stopwatch()
    assert watcher.wait_for_records(ends, LONG_S)
    assert stopwatch() < began + LONG_S / 2


def test_an_open_transaction_is_no_news_to_read_committed(broker: Broker, watcher: LogWatcher, name: str) -> None:
    broker.create_topic(name)
    (where,) = places(name, 1)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"x")
        producer.flush()
        watcher.offsets_at({where: -1})
        assert watcher.offsets_at({where: -1}, read_committed=True)[where].offset == 0
        assert not watcher.wait_for_records({where: 0}, 0.1, read_committed=True)
        producer.commit_transaction()
    assert watcher.wait_for_records({where: 0}, LONG_S, read_committed=True)


def test_what_cannot_be_asked_is_for_the_caller_to_look_at(
    broker: Broker, watcher: LogWatcher, name: str, stopwatch: Stopwatch
) -> None:
    broker.create_topic(name)
    (where,) = places(name, 1)
    nowhere = TopicPartition(f"{name}-gone", 0)
    watcher.offsets_at({where: -1})
    began = stopwatch()
    assert watcher.wait_for_records({where: 0, nowhere: 0}, LONG_S)
    assert stopwatch() < began + LONG_S / 2
    assert not watcher.wait_for_records({where: 0}, 0.1)
    assert watcher._client.metadata.topics == [name]


def test_a_topic_made_again_ends_the_wait(broker: Broker, watcher: LogWatcher, name: str) -> None:
    broker.create_topic(name)
    (where,) = places(name, 1)
    watcher.offsets_at({where: -1})
    broker.delete_topic(name)
    broker.create_topic(name)
    assert watcher.wait_for_records({where: 0}, LONG_S)
    broker.wait_for(lambda: not watcher.wait_for_records({where: 0}, 0.05), what="the new topic's id")
