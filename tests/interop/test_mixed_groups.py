"""All clients in one group: whoever leads computes the shares for members of every other make."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from .conftest import Drivers
from .harness import wire
from .harness.broker import Broker
from .harness.clients import CLIENTS, NEW_JAVA, Client, chosen
from .harness.driver import ClientError, Driver
from .harness.groups import Member, join, leave, settle, take

PARTITIONS = 24


@pytest.fixture
def wide_topic(unique: Callable[[str], str], broker: Broker) -> str:
    name = unique("topic")
    wire.create_topic(broker.address, name, partitions=PARTITIONS)
    return name


def here(drivers: Drivers, *, without: frozenset[str] = frozenset()) -> list[Driver]:
    present = [each for each in CLIENTS if chosen(each) and each.missing() is None and not each.lacks & without]
    if len(present) < 2:
        pytest.skip("a mixed group needs two clients")
    return [drivers(each) for each in present]


def write_everywhere(broker: Broker, topic: str, rounds: int) -> None:
    with wire.Connection(broker.address) as connection:
        for _ in range(rounds):
            for partition in range(PARTITIONS):
                assert wire.produce(connection, topic, partition, wire.simple_batch(b"a", b"b")).error == 0


@pytest.mark.timeout(900)
def test_a_group_of_every_client_by_range(
    drivers: Drivers, wide_topic: str, unique: Callable[[str], str], broker: Broker
) -> None:
    group = unique("group")
    members: list[Member] = []
    for driver in here(drivers):
        members.append(join(driver, group, [wide_topic]))
        if len(members) in (2, 3):
            settle(members, PARTITIONS)
    shares = settle(members, PARTITIONS)

    write_everywhere(broker, wide_topic, rounds=2)
    seen: Counter[tuple[int, int]] = Counter()
    for member, share in zip(members, shares, strict=True):
        records = take(member, 4 * len(share))
        assert {(each["topic"], each["p"]) for each in records} == set(share), member[0].name
        seen.update((each["p"], each["o"]) for each in records)
    assert seen == Counter({(partition, offset): 1 for partition in range(PARTITIONS) for offset in range(4)})

    # The leader goes first, so that another make leads.
    while len(members) > 1:
        leave(members.pop(0))
        if len(members) in (1, 4):
            settle(members, PARTITIONS)
    leave(members.pop())


def test_a_group_by_round_robin(drivers: Drivers, wide_topic: str, unique: Callable[[str], str]) -> None:
    group = unique("group")
    present = here(drivers, without=frozenset({"roundrobin"}))
    members = [join(driver, group, [wide_topic], assignor="roundrobin") for driver in present]
    settle(members, PARTITIONS)
    for member in members:
        leave(member)


STICKY = [
    ("sticky", ("barnabas", "aiokafka", "barnabas")),
    ("sticky", ("aiokafka", "barnabas", "aiokafka")),
    ("sticky", ("barnabas", NEW_JAVA, "barnabas")),
    ("sticky", (NEW_JAVA, "barnabas", NEW_JAVA)),
    ("cooperative-sticky", ("barnabas", "confluent-kafka", "barnabas")),
    ("cooperative-sticky", ("confluent-kafka", "barnabas", "confluent-kafka")),
    ("cooperative-sticky", ("barnabas", NEW_JAVA, "franz-go", "barnabas")),
    ("cooperative-sticky", (NEW_JAVA, "barnabas", "franz-go", "barnabas")),
    ("cooperative-sticky", ("franz-go", "barnabas", NEW_JAVA, "barnabas")),
]
"""Assignors and makes of members; the first one leads."""


@pytest.mark.parametrize(("assignor", "makes"), STICKY, ids=str)
def test_partitions_stay_with_members_of_any_make(
    assignor: str,
    makes: tuple[str, ...],
    drivers: Drivers,
    wide_topic: str,
    unique: Callable[[str], str],
) -> None:
    """Who comes takes no more than its share, and the others keep what is left to them.

    Each member is a process of its own: aiokafka keeps what a member had, and in which generation, with the assignor's
    class, so that two members of one process tell the leader the same. Not with kafka-python, which puts a version
    before what a sticky member tells, as no other does; and eagerly not with franz-go, whose members forget what they
    had when they revoke it (`lastAssigned` in kgo's `revoke`), before they tell the leader in JoinGroup: nobody can
    keep it for them, Java's leaders neither."""
    group = unique("group")
    clients = {each.name: each for each in CLIENTS}
    members: list[Member] = []
    held: list[set[tuple[str, int]]] = []
    with ExitStack() as stack:
        for make in makes:
            driver = drivers.fresh(clients[make])
            stack.callback(driver.stop)
            members.append(join(driver, group, [wide_topic], assignor=assignor))
            shares = [set(share) for share in settle(members, PARTITIONS)]
            for before, share in zip(held, shares, strict=False):
                assert share <= before, f"{assignor}: a member got others than it had"
            held = shares
        # The leader goes: who stays keeps all that it has.
        leave(members.pop(0))
        shares = [set(share) for share in settle(members, PARTITIONS)]
        for before, share in zip(held[1:], shares, strict=True):
            assert share >= before, f"{assignor}: a member lost what it had"


def test_members_without_a_common_assignor_are_refused(
    drivers: Drivers, wide_topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    first, second, *_ = here(drivers, without=frozenset({"roundrobin", "admin"}))
    member = join(first, group, [wide_topic], assignor="range")
    settle([member], PARTITIONS)
    stranger = join(second, group, [wide_topic], assignor="roundrobin")

    def take_all() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # drivers tell errors that may pass at the end of the time
            assert not take(stranger, 1, timeout_ms=1_000)

    with pytest.raises(ClientError, match=r"(?i)inconsistent|protocol"):
        take_all()
    settle([member], PARTITIONS)
    leave(member)


@pytest.mark.parametrize("reader", CLIENTS, ids=str)
def test_offsets_committed_by_one_are_read_by_all(
    reader: Client, drivers: Drivers, topic: str, unique: Callable[[str], str], broker: Broker
) -> None:
    group = unique("group")
    with wire.Connection(broker.address) as connection:
        wire.produce(connection, topic, 0, wire.simple_batch(*(str(index).encode() for index in range(10))))
    for writer in CLIENTS:
        if "commit" in writer.lacks or not chosen(writer) or writer.missing():
            continue
        committing = join(drivers(writer), group, [topic])
        settle([committing], 1)
        committing[0].call("commit", id=committing[1], offsets=[[topic, 0, 4]])
        leave(committing)
        reading = join(drivers(reader), group, [topic])
        assert offsets(take(reading, 6)) == list(range(4, 10)), f"{reader} after {writer}"
        leave(reading)


def offsets(records: list[dict[str, Any]]) -> list[int]:
    return [each["o"] for each in records]
