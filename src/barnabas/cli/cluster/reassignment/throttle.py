"""The throttle of a reassignment: the settings of topics and brokers that limit how fast replicas are copied.

They are those that Kafka's kafka-reassign-partitions sets, and either tool removes what the other has set.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from barnabas import Admin
from barnabas.cli.cluster.reassignment.plan import Assignment
from barnabas.cli.framework.resources import broker_ids

__all__ = ["Rates", "RemovedThrottle", "remove_throttle", "set_throttle", "throttle_rates", "throttled_followers"]

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
EVERY_REPLICA: Final = "*"


class Rates(NamedTuple):
    """The bytes per second that a broker sends to throttled replicas, and that it fetches for them. None: no limit."""

    leader: int | None = None
    follower: int | None = None


class RemovedThrottle(NamedTuple):
    """The brokers and topics whose throttle was removed."""

    brokers: list[int]
    topics: list[str]


def set_throttle(admin: Admin, planned: Assignment, rate: int) -> None:
    """Limits the bytes that each broker copies in a second for the planned reassignments, and for those in progress.
    The brokers that have a replica now are throttled as leaders, those that get one as followers."""
    running = admin.list_partition_reassignments()
    present = {tp: (set(r.replicas) - set(r.adding_replicas), set(r.adding_replicas)) for tp, r in running.items()}
    views = {view.name: view for view in admin.list_topics(internal=True)}
    for tp, replicas in planned.items():
        view = views.get(tp.topic)
        if view is not None and tp.partition in view.partitions:
            sources, _ = present.get(tp, (set(view.partitions[tp.partition].replicas), ()))
            present[tp] = sources, set(replicas) - sources
    moves = {tp: move for tp, move in present.items() if move[1]}
    if not moves:
        return
    changes: dict[tuple[str, str], Mapping[str, str | None]] = {}
    for topic, present_lists in _throttled_replicas(admin, {tp.topic for tp in moves}).items():
        own = {tp.partition: move for tp, move in moves.items() if tp.topic == topic}
        lists = {
            LEADER_REPLICAS: _pairs((number, sources) for number, (sources, _) in own.items()),
            FOLLOWER_REPLICAS: _pairs((number, targets) for number, (_, targets) in own.items()),
        }
        changed = {name: text for name, text in lists.items() if present_lists.get(name) != EVERY_REPLICA}
        if changed:
            changes["topic", topic] = changed
    involved = {node_id for sources, targets in moves.values() for node_id in (*sources, *targets)}
    for node_id in involved & set(broker_ids(admin, None)):
        changes["broker", str(node_id)] = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
    admin.alter_configs(changes)


def _pairs(replicas: Iterable[tuple[int, Collection[int]]]) -> str:
    return ",".join(f"{number}:{node_id}" for number, ids in sorted(replicas) for node_id in sorted(ids))


def throttle_rates(admin: Admin) -> dict[int, Rates]:
    """Returns the rates of the live brokers that have one of their own."""
    described = admin.describe_configs(
        [("broker", str(node_id)) for node_id in broker_ids(admin, None)], keys=[LEADER_RATE, FOLLOWER_RATE]
    )
    found = {}
    for (_, name), entries in described.items():
        leader, follower = (
            int(entry.value)
            if (entry := entries.get(setting)) and entry.source == "DYNAMIC_BROKER_CONFIG" and entry.value
            else None
            for setting in (LEADER_RATE, FOLLOWER_RATE)
        )
        if leader is not None or follower is not None:
            found[int(name)] = Rates(leader, follower)
    return found


def throttled_followers(admin: Admin, topics: Iterable[str]) -> dict[str, frozenset[str]]:
    """Returns the replicas of topics that are throttled as followers: `PARTITION:BROKER`, or `*` for all."""
    return {
        topic: frozenset(text.split(","))
        for topic, lists in _throttled_replicas(admin, topics).items()
        if (text := lists.get(FOLLOWER_REPLICAS))
    }


def remove_throttle(admin: Admin) -> RemovedThrottle:
    """Removes the throttle of reassignments, if none is in progress any more: from all topics whose settings name
    single replicas, and from the brokers. Where no topic does, the rates of the brokers were set for something else."""
    removed = RemovedThrottle([], [])
    rates = throttle_rates(admin)
    if not rates or admin.list_partition_reassignments():
        return removed
    names = [view.name for view in admin.list_topics(internal=True)]
    topics = {
        topic: [name for name, text in lists.items() if text != EVERY_REPLICA]
        for topic, lists in _throttled_replicas(admin, names).items()
    }
    changes: dict[tuple[str, str], Mapping[str, str | None]] = {
        ("topic", topic): dict.fromkeys(settings) for topic, settings in topics.items() if settings
    }
    if not changes:
        return removed
    removed = RemovedThrottle(sorted(rates), sorted(topic for _, topic in changes))
    for node_id in rates:
        changes["broker", str(node_id)] = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE))
    admin.alter_configs(changes)
    return removed


def _throttled_replicas(admin: Admin, topics: Iterable[str]) -> dict[str, dict[str, str | None]]:
    """Returns the settings of topics that name throttled replicas, as far as they are set. One for all replicas is
    somebody's own."""
    wanted = [("topic", topic) for topic in topics]
    described = admin.describe_configs(wanted, keys=[LEADER_REPLICAS, FOLLOWER_REPLICAS]) if wanted else {}
    return {
        topic: {entry.name: entry.value for entry in entries.values() if entry.source == "DYNAMIC_TOPIC_CONFIG"}
        for (_, topic), entries in described.items()
    }
