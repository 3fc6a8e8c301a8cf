"""Fifty members of two groups (one rebalances eagerly, one cooperatively) that join, leave and die for minutes.

A round is some seconds of coming and going, then quiet. In the quiet every member must be in its group, every partition
with exactly one of them, a record in each partition must come to its owner once, and nothing may rebalance any more.
At no time may two members have a partition in the same generation, and each rebalance has its reason.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import barnabas
from barnabas.client.admin.topics import NewTopic
from barnabas.client.consumer.health import PastRebalance
from barnabas.client.errors import ClientClosed
from barnabas.types import TopicPartition
from bench.brokers import BrokerProcess

SETTINGS = ("num.partitions=1", "group.initial.rebalance.delay.ms=100", "group.min.session.timeout.ms=1000")
TOPIC = "members"
PARTITIONS = 60
MEMBERS = 50
GROUPS = {"eager": "range", "cooperative": "cooperative-sticky"}
CHURN_S = (4.0, 9.0)
SETTLE_S = 90.0
QUIET_S = 4.0
SESSION_MS = 10_000
REASONS = re.compile(
    r"joining the group|the group is rebalancing|\d+ partitions are given up|the assignment does not fit"
)
"""The expected reasons; any other is a rebalance without an explanation."""


@dataclass(slots=True)
class RoundReport:
    """One round in figures, for the line that is printed."""

    number: int
    joined: int = 0
    closed: int = 0
    died: int = 0
    settled_s: float = 0.0
    generations: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        state = "ok" if not self.failures else f"FAILED ({len(self.failures)})"
        return (
            f"round {self.number}: {self.joined} joined, {self.closed} left, {self.died} died, "
            f"settled after {self.settled_s:.1f} s, {self.generations} generations: {state}"
        )


class Member:
    """A consumer in a thread of its own."""

    def __init__(self, test: MembersTest, name: str, group: str, assignor: str) -> None:
        self.name, self.group = name, group
        self.owned: set[TopicPartition] = set()
        self.probes: Counter[tuple[int, bytes]] = Counter()
        self.failure: BaseException | None = None
        self._test = test
        self.consumer = barnabas.Consumer(
            TOPIC,
            bootstrap_servers=test.address,
            client_id=name,
            group_id=group,
            partition_assignment_strategy=[assignor],
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            on_assigned=self._assigned,
            on_revoked=self._gone,
            auto_offset_reset="earliest",
            reconnect_backoff_max_ms=200,
        )
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                for record in self.consumer.poll(1.0):
                    self.probes[record.partition, record.value] += 1
        except ClientClosed:
            pass
        except BaseException as error:
            self.failure = error

    def _assigned(self, _: Any, partitions: tuple[TopicPartition, ...]) -> None:
        self._test.assigned(self, partitions)

    def _gone(self, _: Any, partitions: tuple[TopicPartition, ...]) -> None:
        with self._test.lock:
            self.owned.difference_update(partitions)

    @property
    def generation(self) -> int:
        return self.consumer.health().generation_id

    def close(self) -> None:
        self.consumer.close()
        self._thread.join(60)

    def die(self) -> None:
        """Its connections break, and nobody is told."""
        self.consumer._state.closing = True
        self.consumer._driver.close()
        self._thread.join(60)
        with self._test.lock:
            self.owned.clear()


class MembersTest:
    """The groups' life over many rounds."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker, self._seed = broker, seed
        self._members: list[Member] = []
        self._joined = 0
        self._slowest_s = 0.0
        self.lock = threading.Lock()
        self._doubles: list[str] = []

    @property
    def address(self) -> str:
        return self._broker.address

    def prepare(self) -> None:
        self._broker.start()
        self._broker.first_ack_s()
        with barnabas.Admin(bootstrap_servers=self.address) as admin:
            admin.create_topics([NewTopic(TOPIC, partitions=PARTITIONS)])

    def assigned(self, member: Member, partitions: tuple[TopicPartition, ...]) -> None:
        """Two members that are of one generation may not have the same partition."""
        generation = member.generation
        with self.lock:
            for other in self._members:
                common = other.owned.intersection(partitions) if other.group == member.group else ()
                if common and other is not member and other.generation >= generation:
                    self._doubles.append(f"{member.name} and {other.name} have {sorted(common)} in {generation}")
            member.owned.update(partitions)

    def run_round(self, number: int) -> RoundReport:
        rng = random.Random(f"{self._seed}:{number}")
        report = RoundReport(number)
        self._churn(rng, report)
        began = time.monotonic()
        while (left := self._unsettled()) and time.monotonic() < began + SETTLE_S:
            time.sleep(0.05)
        report.settled_s = time.monotonic() - began
        self._slowest_s = max(self._slowest_s, report.settled_s)
        report.failures += left
        if not left:
            report.failures += self._stay_quiet(number)
        report.generations = max((member.generation for member in self._members), default=0)
        report.failures += [f"{each.name} ended: {each.failure!r}" for each in self._members if each.failure]
        report.failures += self._doubles
        report.failures += self._unexplained()
        return report

    def _churn(self, rng: random.Random, report: RoundReport) -> None:
        until = time.monotonic() + rng.uniform(*CHURN_S)
        while time.monotonic() < until or len(self._members) < MEMBERS // 2:
            kind = rng.random()
            if len(self._members) < MEMBERS and (kind < 0.6 or len(self._members) < 5):
                for _ in range(rng.choice((1, 1, 3, 8))):
                    if len(self._members) < MEMBERS:
                        self._join(rng)
                        report.joined += 1
            elif self._members:
                member = rng.choice(self._members)
                if kind < 0.9:
                    member.close()
                    report.closed += 1
                else:
                    member.die()
                    report.died += 1
                self._members.remove(member)
            time.sleep(rng.uniform(0.0, 0.4))

    def _join(self, rng: random.Random) -> None:
        self._joined += 1
        group = rng.choice(sorted(GROUPS))
        self._members.append(Member(self, f"{group}-{self._joined}", group, GROUPS[group]))

    def _unsettled(self) -> list[str]:
        """Returns the reasons why the groups are not stable."""
        found = []
        with self.lock:
            for group in GROUPS:
                members = [member for member in self._members if member.group == group]
                found += [
                    f"{member.name} is {health.state}: {health.rejoining}"
                    for member in members
                    if (health := member.consumer.health()).state != "stable" or health.rejoining
                ]
                owners = Counter(topic_partition for member in members for topic_partition in member.owned)
                if members and (len(owners) < PARTITIONS or owners.total() > PARTITIONS):
                    wrong = [number for number in range(PARTITIONS) if owners[TopicPartition(TOPIC, number)] != 1]
                    found.append(f"{group}: partitions {wrong} do not have one owner")
                if len({member.generation for member in members}) > 1:
                    found.append(f"{group}: generations {sorted({member.generation for member in members})}")
        return found

    def _stay_quiet(self, number: int) -> list[str]:
        """A record in each partition comes to its owner, once, and no generation follows."""
        before = {member: member.generation for member in self._members}
        value = b"probe-%d" % number
        with barnabas.Producer(bootstrap_servers=self.address) as producer:
            for partition in range(PARTITIONS):
                producer.send(TOPIC, value, partition=partition)
        groups = {member.group for member in self._members}
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline and self._probed(value) < len(groups) * PARTITIONS:
            time.sleep(0.05)
        time.sleep(QUIET_S)
        failures = []
        for group in groups:
            came: Counter[int] = Counter()
            for member in self._members:
                for (partition, found), count in list(member.probes.items()) if member.group == group else ():
                    came[partition] += count if found == value else 0
            wrong = {partition: came[partition] for partition in range(PARTITIONS) if came[partition] != 1}
            if wrong:
                failures.append(f"{group}: the probe came so often from these partitions: {wrong}")
        failures += [
            f"{member.name} was in generation {generation}, then in {member.generation}, although nobody came or went:"
            f" {member.consumer.health().rebalances[-1].reason}"
            for member, generation in before.items()
            if member.generation != generation
        ]
        return failures

    def _probed(self, value: bytes) -> int:
        return sum(
            count for member in self._members for (_, found), count in list(member.probes.items()) if found == value
        )

    def _unexplained(self) -> list[str]:
        found: list[tuple[str, PastRebalance]] = []
        for member in self._members:
            rebalances = member.consumer.health().rebalances
            found += [(member.name, each) for each in rebalances if not REASONS.match(each.reason)]
        return [f"{name}: a rebalance nobody explains: {each}" for name, each in found]

    def check_all(self) -> list[str]:
        """Each round has checked all there is."""
        return []

    def stop(self) -> None:
        for member in self._members:
            member.close()

    def summary(self) -> str:
        return (
            f"{self._joined} members came, none was stuck; the slowest group was at rest after {self._slowest_s:.1f} s"
        )
