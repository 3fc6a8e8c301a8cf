"""The health of a consumer: its assignment, the reasons for waiting, and the next event if the application is idle."""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.consumer.group.consumer_coordinator import ConsumerCoordinator
from barnabas.client.consumer.group.rebalance_history import Rebalance
from barnabas.client.consumer.kafka_consumer import KafkaConsumer
from barnabas.client.consumer.subscription_state import SubscriptionKind
from barnabas.errors import Attempt
from barnabas.types import TopicPartition

__all__ = ["Health", "PastRebalance", "health_of"]


class PastRebalance(NamedTuple):
    """A rebalance that this member took part in."""

    reason: str
    seconds_ago: float
    """The seconds since its end, or for a rebalance in progress since its beginning."""
    took_s: float
    generation_id: int
    setbacks: tuple[str, ...]
    """The errors that made the member start again, in order."""


class Health(NamedTuple):
    """The state of a consumer. Times are in seconds."""

    state: str
    """`closed`, `unsubscribed`, `assigned by hand`, `without a group` (all partitions of the topics are read), or the
    membership's: `unjoined`, `preparing rebalance`, `completing rebalance`, `stable`."""
    assigned: tuple[TopicPartition, ...]
    rejoining: str | None
    """The reason to join the group again, now or with the next poll; None if there is none."""
    lag: dict[TopicPartition, int | None]
    """The number of records behind each position, None before the first response."""
    paused: tuple[TopicPartition, ...]
    without_position: tuple[TopicPartition, ...]
    """The partitions whose initial positions are not known yet."""
    group_id: str | None
    member_id: str
    generation_id: int
    is_leader: bool
    coordinator: str | None
    """The address of the group's coordinator, None while it is unknown."""
    since_poll: float | None
    """The time since the application's last poll; 0 while it waits in a poll."""
    since_heartbeat: float | None
    """The time since the coordinator last confirmed the membership."""
    deadline: str | None
    """The next event if the application does nothing: "leaves the group (max.poll.interval.ms)"."""
    deadline_in: float | None
    rebalances: tuple[PastRebalance, ...]
    """The last rebalances, oldest first; a rebalance in progress comes last."""
    attempts: tuple[Attempt, ...]
    """The failed attempts to connect since a connection was ready last."""
    fetch_failures: tuple[str, ...] = ()
    """The last error of each broker whose last Fetch response was an error, or did not come."""

    @property
    def total_lag(self) -> int | None:
        """The lag of all partitions together, None as long as one is unknown."""
        lags = list(self.lag.values())
        return None if None in lags else sum(lag for lag in lags if lag is not None)

    @property
    def is_well(self) -> bool:
        """Whether records flow, or would if there were any."""
        troubles = self.attempts or self.fetch_failures or self.rejoining or self.without_position
        return not troubles and self.state in ("stable", "assigned by hand", "without a group")


def health_of(core: KafkaConsumer) -> Health:
    now, subscription, coordinator = core.client.now, core.subscription, core.coordinator
    state = {SubscriptionKind.NONE: "unsubscribed", SubscriptionKind.MANUAL: "assigned by hand"}.get(
        subscription.kind, coordinator.membership.state.value if coordinator is not None else "without a group"
    )
    common = Health(
        state="closed" if core.closing else state,
        assigned=tuple(subscription.assigned()),
        rejoining=None,
        lag=dict(_lag(core)),
        paused=tuple(subscription.paused()),
        without_position=tuple(each for each in subscription.assigned() if subscription.position(each) is None),
        group_id=core.settings.group_id,
        member_id="",
        generation_id=-1,
        is_leader=False,
        coordinator=None,
        since_poll=None,
        since_heartbeat=None,
        deadline=None,
        deadline_in=None,
        rebalances=(),
        attempts=core.client.unreachable().attempts,
        fetch_failures=core.fetch_requests.failing(),
    )
    return common if coordinator is None else _health_in_group(common, core, coordinator, now)


def _health_in_group(common: Health, core: KafkaConsumer, coordinator: ConsumerCoordinator, now: float) -> Health:
    membership, poll_timer = coordinator.membership, coordinator.membership.poll_timer
    broker = core.client.metadata.cluster.brokers.get(core.client.coordinator(membership.coordinator) or -1)
    in_progress = membership.history.under_way()
    rebalances = [*membership.history.past, *(() if in_progress is None else (in_progress,))]
    health = common._replace(
        member_id=membership.generation.member_id,
        generation_id=membership.generation.generation_id,
        is_leader=membership.is_leader,
        coordinator=None if broker is None else f"{broker.host}:{broker.port}",
        since_poll=_since(now, now if poll_timer.is_waiting else poll_timer.polled_at),
        rebalances=tuple(_past(rebalance, now) for rebalance in rebalances),
    )
    if core.subscription.subscribes:
        health = health._replace(
            rejoining=membership.rejoin_reason, since_heartbeat=_since(now, membership.heartbeat.answered_at)
        )
        if not poll_timer.is_waiting and poll_timer.polled_at != float("inf"):
            due = poll_timer.polled_at + membership.settings.max_poll_interval_s
            health = health._replace(
                deadline="leaves the group (max.poll.interval.ms)", deadline_in=max(due - now, 0.0)
            )
    return health


def _lag(core: KafkaConsumer) -> Mapping[TopicPartition, int | None]:
    """Returns the lag behind the delivered records; the subscription's is that behind the decoded ones."""
    lags = dict(core.subscription.lag(read_committed=core.settings.read_committed))
    for partition, lag in lags.items():
        state, position = core.subscription.get(partition), core.delivered.position(partition)
        if lag is not None and state is not None and state.position is not None and position is not None:
            lags[partition] = lag + state.position.offset - position.offset
    return lags


def _past(rebalance: Rebalance, now: float) -> PastRebalance:
    ended_at = rebalance.ended_at if rebalance.ended_at is not None else now
    since = now - (rebalance.began_at if rebalance.ended_at is None else ended_at)
    took = ended_at - rebalance.began_at
    return PastRebalance(rebalance.reason, since, took, rebalance.generation_id, rebalance.setbacks)


def _since(now: float, then: float) -> float | None:
    return None if abs(then) == float("inf") else max(now - then, 0.0)
