"""One broker of a cluster is killed or stopped under load: how long clients are without it, whether anything is lost.

An idempotent acks=all producer writes records of 100 B at a steady rate, evenly to six partitions of a topic with
three replicas and ``min.insync.replicas=2``. A gap is the longest time between two acknowledged records of one
partition, from a second before the signal until everything has flowed again for three seconds. Then the broker is
started again (Barnabas: its supervisor has done that already), and the time is taken until each partition has its full
ISR for good. Last, everything is read back.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from barnabas import Admin
from barnabas.errors import KafkaError
from bench.brokers import BrokerFailed
from bench.cluster.clients import GroupMember, ReplicaObserver, SteadyProducer, find_anomalies, longest_gap, read_back
from bench.cluster.nodes import Cluster
from bench.cluster.topics import Topics
from bench.loads import Figures
from bench.targets import REFERENCE

PARTITIONS = 6
BEFORE_S = 1.0
FLOWS_FOR_S = 3.0
FLOW_LIMIT_S = 120.0
SETTLE_S = 0.5
"""Answers that were on their way when the signal came do not count as a flow."""
GROUPS_TRIED_MAX = 12


@dataclass(frozen=True, slots=True)
class Event:
    row: str
    signal: int = signal.SIGKILL
    to_controller: bool = False
    to_coordinator: bool = False

    @property
    def topic(self) -> str:
        return "failover-" + self.row.lower().replace(" ", "-")


LEADER = Event("SIGKILL of a leader")
CONTROLLER = Event("SIGKILL of the controller", to_controller=True)
COORDINATOR = Event("SIGKILL of the group coordinator", to_coordinator=True)
STOP = Event("SIGTERM of a leader", signal.SIGTERM)
EVENTS = (LEADER, CONTROLLER, COORDINATOR, STOP)


@dataclass(frozen=True, slots=True)
class Timeline:
    """What happened when, in seconds after the signal; None: it was not seen."""

    noticed: float | None
    fenced: float | None
    moved: float | None
    first_acknowledged: float
    all_acknowledged: float
    returned: float | None
    in_sync: float | None

    def __str__(self) -> str:
        steps = {
            "signal": 0.0,
            "noticed": self.noticed,
            "fenced": self.fenced,
            "clients can know": self.moved,
            "first acknowledgement of what it led": self.first_acknowledged,
            "all of it acknowledged": self.all_acknowledged,
            "started again": self.returned,
            "all in sync": self.in_sync,
        }
        return ", ".join(f"{name} {at:.3f}" for name, at in steps.items() if at is not None)


def measure(cluster: Cluster, event: Event, round_number: int, rate: int, warm_s: float) -> Figures:
    """Runs one failover, prints its timeline and returns its figures."""
    topics = Topics(cluster)
    topics.create(event.topic, PARTITIONS)
    topics.elect_preferred(event.topic, PARTITIONS)
    starts = topics.ends(event.topic, PARTITIONS)
    producer = SteadyProducer(cluster.address, event.topic, PARTITIONS, rate)
    member: GroupMember | None = None
    observer: ReplicaObserver | None = None
    try:
        time.sleep(warm_s)
        controller = topics.controller()
        leaders = [state.leader for state in topics.partitions(event.topic)]
        if event.to_coordinator:
            member, victim = _group_elsewhere(cluster, topics, event.topic, controller)
        elif event.to_controller:
            victim = controller
        else:
            victim = next(each for each in leaders[round_number % len(leaders) :] + leaders if each != controller)
        time.sleep(warm_s / 2)
        observer = ReplicaObserver(topics, event.topic, victim)
        wall, struck = time.time(), time.perf_counter()
        cluster.signal(victim, event.signal)
        flowed = _await_flow(cluster, partial(_flows, producer, member, struck + SETTLE_S))
        started = cluster.bring_back(victim)
        topics.wait_in_sync(event.topic)
        time.sleep(FLOWS_FOR_S)
        done = time.perf_counter()
    finally:
        for each in (observer, producer, member):
            if each is not None:
                each.stop()
    since = struck - BEFORE_S
    led = [number for number, leader in enumerate(leaders) if leader == victim]
    others = [number for number in range(PARTITIONS) if number not in led]
    figures = {
        "gap_s": producer.gap_s(led, since, flowed),
        "gap_elsewhere_s": producer.gap_s(others, since, flowed),
        "in_sync_s": max(0.0, (observer.short_at or struck) - (started or struck)),
        "gap_of_return_s": producer.gap_s(range(PARTITIONS), flowed, done),
        "gap_before_s": producer.gap_s(range(PARTITIONS), struck - warm_s, struck),
        "own_pause_s": producer.longest_pause_s(since, done),
    }
    if member is not None:
        figures["consumer_gap_s"] = longest_gap((at for at, _, _ in member.received), since, flowed).seconds
        figures["commit_gap_s"] = longest_gap(member.committed, since, flowed).seconds
        figures["read_twice"] = member.read_twice()
    noticed, fenced = _noticed_and_fenced(cluster, event.topic, led, wall)
    resumed = [_resumed(producer, number, struck, fenced, flowed) for number in led or others]
    timeline = Timeline(
        noticed=noticed,
        fenced=fenced,
        moved=observer.moved_at - struck if observer.moved_at else None,
        first_acknowledged=min(resumed),
        all_acknowledged=max(resumed),
        returned=started - struck if started else None,
        in_sync=observer.short_at - struck if observer.short_at else None,
    )
    print(f"        {event.row}, {cluster.name}, broker {victim + 1} (s): {timeline}", flush=True)
    read = read_back(cluster.address, event.topic, starts, topics.ends(event.topic, PARTITIONS))
    found = find_anomalies([[number for _, number in each] for each in producer.acknowledged], read)
    return figures | {
        "lost": found.lost,
        "doubled": found.doubled,
        "disordered": found.disordered,
        "given_up": producer.failed,
    }


def _group_elsewhere(cluster: Cluster, topics: Topics, topic: str, controller: int) -> tuple[GroupMember, int]:
    """Starts the member of a group whose coordinator is not the controller; returns it and the coordinator's number."""
    for _ in range(GROUPS_TRIED_MAX):
        member = GroupMember(cluster.address, topic, f"readers-{uuid.uuid4()}")
        try:
            deadline = time.monotonic() + 60
            while not member.committed and time.monotonic() < deadline:
                time.sleep(0.05)
            if not member.committed:
                raise BrokerFailed(f"{cluster.name}: a group could not commit in 60 s")
            coordinator = topics.coordinator(member.group)
        except BaseException:
            member.stop()
            raise
        if coordinator != controller:
            return member, coordinator
        member.stop()
    raise BrokerFailed(f"{cluster.name}: the controller coordinates {GROUPS_TRIED_MAX} groups of {GROUPS_TRIED_MAX}")


def _flows(producer: SteadyProducer, member: GroupMember | None, since: float) -> bool:
    return producer.flows(since) and (member is None or member.flows(since))


def _resumed(producer: SteadyProducer, partition: int, struck: float, fenced: float | None, until: float) -> float:
    """Returns when a partition was acknowledged again, in seconds after the signal: first after the election, or if
    that is not known at the end of its longest gap."""
    if fenced is not None:
        return next((at for at, _ in producer.acknowledged[partition] if at > struck + fenced), until) - struck
    (gap,) = producer.gaps([partition], struck, until)
    return gap.end - struck


def _await_flow(cluster: Cluster, flows: Callable[[], bool]) -> float:
    """Returns the time when everything has flowed for a while without a break."""
    deadline = time.perf_counter() + FLOW_LIMIT_S
    began: float | None = None
    while (now := time.perf_counter()) < deadline:
        began = (began or now) if flows() else None
        if began is not None and now - began > FLOWS_FOR_S:
            return now
        time.sleep(0.05)
    raise BrokerFailed(f"{cluster.name}: not every partition is acknowledged {FLOW_LIMIT_S:.0f} s after the signal")


def _noticed_and_fenced(
    cluster: Cluster, topic: str, partitions: Sequence[int], wall: float
) -> tuple[float | None, float | None]:
    """Returns when the controller was told and when it had moved the leaders, from its history; Apache Kafka has
    none."""
    if cluster.name == REFERENCE:
        return None, None
    try:
        with Admin(bootstrap_servers=cluster.address) as admin:
            changes = admin.leader_changes() or []
    except KafkaError:
        return None, None
    for change in changes:
        at = change.time_ms / 1000 - wall
        if change.topic == topic and change.partition in partitions and at > -0.01:
            return max(0.0, at - change.took_ms / 1000), at
    return None, None
