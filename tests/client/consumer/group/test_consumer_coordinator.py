"""Members of a group against a broker in this process: rebalances, commits, and a coordinator that moves."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import barnabas
from barnabas import TopicPartition
from barnabas.errors import CommitFailed, NotCoordinator
from barnabas.testing import Broker


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
