"""The broker goes and comes back while clients live: nothing acknowledged is lost, and everybody goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Drivers, wait_for
from .harness import wire
from .harness.broker import LocalBroker
from .harness.clients import CLIENTS, chosen
from .harness.data import CODECS, essences, numbered
from .harness.driver import ClientError, Driver
from .harness.groups import Member, join, leave, settle, take

BACK_TIMEOUT_MS = 60_000
ABSENCE_MS = 3000
REBALANCE_IN_PROGRESS = 27


class Alive:
    """One client with a producer, a consumer and a group member that live through the restart."""

    def __init__(self, driver: Driver, topic: str, group: str, *, commits: bool) -> None:
        self.driver = driver
        self.topic = topic
        self.group = group
        self.commits = commits
        self.sent: list[dict[str, Any]] = []
        self.seen: list[dict[str, Any]] = []
        self.member: Member | None = None
        self.reader = driver.new_id()
        self.trouble = ""

    def begin(self) -> None:
        self.write("before")
        self.driver.call("open", id=self.reader, assign=[[self.topic, 0, "earliest"]], fetch_wait_ms=500)
        self.read()
        self.member = join(self.driver, self.group, [self.topic])
        settle([self.member], 1)
        assert len(take(self.member, len(self.sent))) == len(self.sent)
        if self.commits:
            self.commit()

    def go_on(self, prefix: str) -> None:
        assert self.member is not None
        self.write(prefix)
        self.read()
        # Without a committed offset the member may have begun anew. Java's rejoin when all brokers were away, and read
        # again the ten records that had not been committed then.
        most = 20 if self.commits else len(self.sent)
        received = take(self.member, 10, BACK_TIMEOUT_MS)
        while received and essences(received)[-10:] != essences(self.sent[-10:]):
            received += take(self.member, 1, ABSENCE_MS)
            assert len(received) <= most, f"{self.driver.name}: the group member {prefix}"
        assert essences(received)[-10:] == essences(self.sent[-10:]), f"{self.driver.name}: the group member {prefix}"
        if self.commits:
            wait_for(
                f"{self.driver.name}: offset as committed before, {prefix}",
                self.is_where_it_committed,
                tell=lambda: self.trouble,
            )
            self.commit()

    def is_where_it_committed(self) -> bool:
        try:
            asked = self.driver.call("committed", group=self.group, topic=self.topic, partitions=[0])
        except ClientError as error:
            # An idle connection turns out to be broken when it is next used.
            self.trouble = str(error)
            return False
        assert asked["offsets"] == [len(self.sent) - 10]
        return True

    def write(self, prefix: str) -> None:
        codec = CODECS[len(self.sent) // 10 % len(CODECS)]
        records = numbered(10, prefix=prefix)
        self.driver.call("produce", topic=self.topic, records=records, idempotent=True, compression=codec)
        self.sent += records

    def read(self) -> None:
        wanted = len(self.sent) - len(self.seen)
        self.seen += self.driver.call("take", id=self.reader, count=wanted, timeout_ms=BACK_TIMEOUT_MS)["records"]
        assert essences(self.seen) == essences(self.sent), self.driver.name
        assert [each["o"] for each in self.seen] == list(range(len(self.sent)))

    def commit(self) -> None:
        wait_for(f"{self.driver.name}: a commit", self.has_committed, tell=lambda: self.trouble)

    def has_committed(self) -> bool:
        """Whether the member could: one that rejoins has to poll first, as its program always does."""
        assert self.member is not None
        driver, name = self.member
        try:
            driver.call("commit", id=name, offsets=[[self.topic, 0, len(self.sent)]])
        except ClientError as error:
            if error.code != REBALANCE_IN_PROGRESS:
                raise
            self.trouble = str(error)
            return False
        return True

    def end(self) -> None:
        assert self.member is not None
        leave(self.member)
        self.driver.call("close", id=self.reader)


@pytest.mark.timeout(900)
def test_all_clients_live_through_restarts(
    drivers: Drivers, unique: Callable[[str], str], own_broker: LocalBroker
) -> None:
    present = [each for each in CLIENTS if chosen(each) and each.missing() is None]
    clients = [
        Alive(drivers(each), unique(each.name), unique("group"), commits="commit" not in each.lacks) for each in present
    ]
    for client in clients:
        wire.create_topic(own_broker.address, client.topic)
        client.begin()
    own_broker.restart()
    for client in clients:
        client.go_on("after a stop")
    own_broker.restart(crash=True)
    for client in clients:
        client.go_on("after a crash")
    for client in clients:
        client.end()
