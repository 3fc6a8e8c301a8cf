"""How a consumer is, as a value: what it has, what it waits for, and what will happen if nothing happens."""

from typing import NamedTuple

from barnabas.errors import Attempt
from barnabas.types import TopicPartition

__all__ = ["Health", "PastRebalance"]


class PastRebalance(NamedTuple):
    """A rebalance that this member took part in."""

    reason: str
    seconds_ago: float
    """Since its end; of one under way, since its beginning."""
    took_s: float
    generation_id: int
    setbacks: tuple[str, ...]
    """What made the member start over, in order."""


class Health(NamedTuple):
    """See the module. Times are seconds."""

    state: str
    """`closed`, `unsubscribed`, `assigned by hand`, `without a group` (all partitions of the topics are read), or the
    membership's: `unjoined`, `preparing rebalance`, `completing rebalance`, `stable`."""
    assigned: tuple[TopicPartition, ...]
    rejoining: str | None
    """Why the group is joined again, now or with the next poll; None if it is not."""
    lag: dict[TopicPartition, int | None]
    """Records behind the positions; None where no answer has told yet."""
    paused: tuple[TopicPartition, ...]
    without_position: tuple[TopicPartition, ...]
    """They wait for the offset to begin at."""
    group_id: str | None
    member_id: str
    generation_id: int
    is_leader: bool
    coordinator: str | None
    """Its address; None while it is looked for."""
    since_poll: float | None
    """Since the application polled last; 0 while it waits in a poll."""
    since_heartbeat: float | None
    """Since the coordinator said last that all is well."""
    deadline: str | None
    """What happens next if the application does nothing: "leaves the group (max.poll.interval.ms)"."""
    deadline_in: float | None
    rebalances: tuple[PastRebalance, ...]
    """The last ones, oldest first; one that is under way comes last."""
    attempts: tuple[Attempt, ...]
    """Failures to connect since a connection stood last; empty if all is well."""
    fetch_failures: tuple[str, ...] = ()
    """Of brokers that answer a fetch with an error as a whole, or not at all: what went wrong the last time."""

    @property
    def total_lag(self) -> int | None:
        """Of all partitions; None as long as one is not known."""
        lags = list(self.lag.values())
        return None if None in lags else sum(lag for lag in lags if lag is not None)

    @property
    def is_well(self) -> bool:
        """Whether records flow, or would if there were any."""
        troubles = self.attempts or self.fetch_failures or self.rejoining or self.without_position
        return not troubles and self.state in ("stable", "assigned by hand", "without a group")
