"""How a consumer is, told from its parts."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.client.consumer.group.rebalance_log import Rebalance
from barnabas.client.consumer.health import Health, PastRebalance
from barnabas.client.consumer.subscription_state import SubscriptionKind
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.consumer.consumer_core import ConsumerCore

__all__ = ["health_of", "metrics_of"]


def health_of(core: "ConsumerCore") -> Health:
    """How it is."""
    now, subscription, membership = core.client.now, core.subscription, core.membership
    joined = membership is not None and subscription.subscribes
    deadline = _deadline(core) if joined else None
    state = {SubscriptionKind.NONE: "unsubscribed", SubscriptionKind.MANUAL: "assigned by hand"}.get(
        subscription.kind, membership.state.value if membership is not None else "without a group"
    )
    watch = None if membership is None else membership.watch
    return Health(
        state="closed" if core.closing else state,
        assigned=tuple(subscription.assigned()),
        rejoining=membership.reason if joined and membership is not None else None,
        lag=dict(_lag(core)),
        paused=tuple(subscription.paused()),
        without_position=tuple(w for w in subscription.assigned() if subscription.position(w) is None),
        group_id=core.settings.group_id,
        member_id="" if membership is None else membership.generation.member_id,
        generation_id=-1 if membership is None else membership.generation.generation_id,
        is_leader=membership is not None and membership.is_leader,
        coordinator=_coordinator(core),
        since_poll=None if watch is None else _since(now, now if watch.inside else watch.polled_at),
        since_heartbeat=_since(now, membership.pulse.answered_at) if joined and membership is not None else None,
        deadline=None if deadline is None else deadline[0],
        deadline_in=None if deadline is None else deadline[1],
        rebalances=_rebalances(core),
        attempts=core.client.unreachable().attempts,
        fetch_failures=core.fetching.failing(),
    )


def metrics_of(core: "ConsumerCore") -> dict[str, int]:
    """What this consumer did and has in store, as plain numbers."""
    commits, membership = core.commits, core.membership
    return {
        "fetches": core.fetching.answers,
        "fetches_failed": core.fetching.failed,
        "stored_bytes": core.fetcher.buffer.size_bytes,
        "assigned_partitions": len(core.subscription.assigned()),
        "commits": 0 if commits is None else commits.sent,
        "rebalances": 0 if membership is None else membership.history.count,
    }


def _lag(core: "ConsumerCore") -> Mapping[TopicPartition, int | None]:
    lags = dict(core.subscription.lag(read_committed=core.settings.read_committed))
    for where, lag in lags.items():
        state, position = core.subscription.get(where), core.handing.position(where)
        if lag is not None and state is not None and state.position is not None and position is not None:
            lags[where] = lag + state.position.offset - position.offset
    return lags


def _coordinator(core: "ConsumerCore") -> str | None:
    if core.membership is None:
        return None
    broker = core.client.metadata.cluster.brokers.get(core.client.coordinator(core.membership.coordinator) or -1)
    return None if broker is None else f"{broker.host}:{broker.port}"


def _deadline(core: "ConsumerCore") -> tuple[str, float] | None:
    membership = core.membership
    if membership is None or membership.watch.inside or membership.watch.polled_at == float("inf"):
        return None
    due = membership.watch.polled_at + membership.settings.max_poll_interval_s
    return "leaves the group (max.poll.interval.ms)", max(due - core.client.now, 0.0)


def _rebalances(core: "ConsumerCore") -> tuple[PastRebalance, ...]:
    membership = core.membership
    if membership is None:
        return ()
    under_way = membership.history.under_way()
    found = [*membership.history.past, *(() if under_way is None else (under_way,))]
    return tuple(_past(core, rebalance) for rebalance in found)


def _past(core: "ConsumerCore", rebalance: Rebalance) -> PastRebalance:
    now = core.client.now
    ended_at = rebalance.ended_at if rebalance.ended_at is not None else now
    since = now - (rebalance.began_at if rebalance.ended_at is None else ended_at)
    took = ended_at - rebalance.began_at
    return PastRebalance(rebalance.reason, since, took, rebalance.generation_id, rebalance.setbacks)


def _since(now: float, then: float) -> float | None:
    return None if abs(then) == float("inf") else max(now - then, 0.0)
