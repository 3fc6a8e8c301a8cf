"""Consumer groups, classic protocol: sharing, leaving, dying, coming back, committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from .conftest import Drivers
from .harness import wire
from .harness.broker import Broker
from .harness.clients import CLIENTS, Client
from .harness.data import numbered
from .harness.driver import Driver
from .harness.groups import Member, assigned, join, leave, settle, take

PARTITIONS = 4
pytestmark = pytest.mark.parametrize("client", CLIENTS, ids=str)


@pytest.fixture
def wide_topic(unique: Callable[[str], str], broker: Broker) -> str:
    name = unique("topic")
    wire.create_topic(broker.address, name, partitions=PARTITIONS)
    return name


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture
def fresh(client: Client, drivers: Drivers) -> Iterator[Callable[[], Driver]]:
    """Processes of the client that the test may kill."""
    started: list[Driver] = []

    def start() -> Driver:
        started.append(drivers.fresh(client))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def test_two_members_share_and_a_leaver_gives_back(driver: Driver, wide_topic: str, group: str) -> None:
    first = join(driver, group, [wide_topic])
    settle([first], PARTITIONS)
    second = join(driver, group, [wide_topic])
    settle([first, second], PARTITIONS)
    leave(first)
    settle([second], PARTITIONS)
    leave(second)


def test_a_member_whose_process_dies_is_replaced(
    driver: Driver, fresh: Callable[[], Driver], wide_topic: str, group: str
) -> None:
    dying = join(fresh(), group, [wide_topic], session_timeout_ms=1500)
    settle([dying], PARTITIONS)
    staying = join(driver, group, [wide_topic], session_timeout_ms=1500)
    settle([staying, dying], PARTITIONS)
    dying[0].kill()
    settle([staying], PARTITIONS)
    leave(staying)


def test_committed_offsets_are_where_the_next_one_begins(
    client: Client, driver: Driver, topic: str, group: str
) -> None:
    if "commit" in client.lacks:
        pytest.skip(f"{client.name} commits by time only")
    driver.call("produce", topic=topic, records=numbered(20))
    first = join(driver, group, [topic])
    assert [each["o"] for each in take(first, 20)] == list(range(20))
    first[0].call("commit", id=first[1], offsets=[[topic, 0, 12]])
    assert driver.call("committed", group=group, topic=topic, partitions=[0])["offsets"] == [12]
    leave(first)
    second = join(driver, group, [topic])
    assert [each["o"] for each in take(second, 8)] == list(range(12, 20))
    leave(second)


def test_without_committed_offsets_the_reset_decides(driver: Driver, topic: str, group: str, broker: Broker) -> None:
    driver.call("produce", topic=topic, records=numbered(5))
    earliest = join(driver, group, [topic], reset="earliest")
    assert [each["o"] for each in take(earliest, 5)] == list(range(5))
    leave(earliest)
    latest = join(driver, group, [topic], reset="latest")
    settle([latest], 1)
    received: list[int] = []
    with wire.Connection(broker.address) as connection:
        # Its position is fixed some time after the assignment: what comes from then on arrives without a gap.
        for _ in range(100):
            wire.produce(connection, topic, 0, wire.simple_batch(b"later"))
            received += [each["o"] for each in take(latest, 1, timeout_ms=200)]
            if len(received) >= 3:
                break
    leave(latest)
    assert received, "nothing arrived after the reset to the latest"
    assert received[0] >= 5
    assert received == list(range(received[0], received[0] + len(received)))


def test_a_static_member_comes_back_to_its_share(
    client: Client, driver: Driver, fresh: Callable[[], Driver], wide_topic: str, group: str
) -> None:
    if "instance" in client.lacks:
        pytest.skip(f"{client.name} has no static members")
    session = 30_000  # longer than any client takes to come back
    staying = join(driver, group, [wide_topic], instance="a", session_timeout_ms=session)
    settle([staying], PARTITIONS)
    restarted: Member = join(fresh(), group, [wide_topic], instance="b", session_timeout_ms=session)
    shares = settle([staying, restarted], PARTITIONS)
    restarted[0].kill()
    restarted = join(fresh(), group, [wide_topic], instance="b", session_timeout_ms=session)
    assert settle([staying, restarted], PARTITIONS) == shares
    assert assigned(staying) == shares[0]
    leave(staying)


def test_two_topics_in_one_group(driver: Driver, unique: Callable[[str], str], group: str, broker: Broker) -> None:
    topics = [unique("one"), unique("two")]
    for each in topics:
        wire.create_topic(broker.address, each, partitions=2)
    members = [join(driver, group, topics) for _ in range(2)]
    shares = settle(members, 4)
    for member, share in zip(members, shares, strict=True):
        for topic, partition in share:
            driver.call("produce", topic=topic, records=numbered(3, partition=partition))
        received = {(each["topic"], each["p"], each["o"]) for each in take(member, 6)}
        assert received == {(topic, partition, offset) for topic, partition in share for offset in range(3)}
    for member in members:
        leave(member)
