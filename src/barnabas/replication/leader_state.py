"""The followers of a partition and its ISR, as the partition's leader knows them during one leader epoch.

No logs and no clock here: offsets and times are arguments. Source: KIP-497 (maximal ISR), KIP-841 and KIP-903 (brokers
that may join the ISR).
"""

from collections.abc import Callable, Iterable, Sequence

from barnabas.errors import NotLeaderOrFollower
from barnabas.replication.replica import NEVER, NO_BROKER_EPOCH, BrokerState, IsrChange, Replica
from barnabas.types import BrokerId, Offset

__all__ = ["BrokerEpochs", "LeaderState"]

BrokerEpochs = Callable[[BrokerId], int | None]
"""Returns the epoch of a broker's registration; None for a broker that is fenced or not registered."""


class LeaderState:
    """The followers and the ISR. At most one change of the ISR is proposed at a time.

    A proposed member counts at once: should the controller accept it, the new member can be elected before the leader
    learns of the acceptance. A member that is proposed to leave counts until the controller has accepted that.
    """

    __slots__ = (
        "_broker_epochs",
        "_broker_id",
        "_lag_time_max_s",
        "followers",
        "in_sync_replicas",
        "maximal_isr",
        "pending",
    )

    def __init__(self, broker_id: BrokerId, broker_epochs: BrokerEpochs, lag_time_max_s: float) -> None:
        """`broker_id` is the leader's. `lag_time_max_s` is the setting replica.lag.time.max.ms in seconds."""
        self._broker_id = broker_id
        self._broker_epochs = broker_epochs
        self._lag_time_max_s = lag_time_max_s
        self.followers: dict[BrokerId, Replica] = {}
        self.in_sync_replicas: tuple[BrokerId, ...] = ()
        """The ISR that the controller has accepted last."""
        self.maximal_isr: frozenset[BrokerId] = frozenset()
        """The ISR and the members that are proposed."""
        self.pending: IsrChange | None = None
        """The change that the controller has not answered."""

    def assign(self, replicas: Iterable[BrokerId], in_sync_replicas: Sequence[BrokerId], now: float) -> None:
        """Sets the partition's replicas. Those that stay keep their state."""
        self.followers = {
            broker_id: self.followers.get(broker_id)
            or Replica(broker_id, now if broker_id in in_sync_replicas else NEVER)
            for broker_id in replicas
            if broker_id != self._broker_id
        }

    # --- high watermark and low watermark ---------------------------------------------------------------------------

    def replicated_offset(self, own_end_offset: Offset, log_end_offset: Offset, now: float) -> Offset:
        """Returns the offset below which all replicas that count have all records.

        The leader has `own_end_offset`, which is lower than its `log_end_offset` while records are not on its disk. A
        follower that is about to join the ISR counts, too: it could never reach a high watermark that runs ahead of it.
        """
        offset = own_end_offset
        for replica in self.followers.values():
            if replica.log_end_offset < offset and self.is_waited_for(replica, log_end_offset, now):
                offset = replica.log_end_offset
        return offset

    def is_waited_for(self, replica: Replica, log_end_offset: Offset, now: float) -> bool:
        """Returns whether a follower counts: it is in the ISR, or about to join."""
        return replica.broker_id in self.maximal_isr or (
            replica.is_caught_up(log_end_offset, now, self._lag_time_max_s) and self._may_join(replica)
        )

    def low_watermark(self, log_start_offset: Offset) -> Offset:
        """Returns the lowest log start offset of the live replicas; -1 while that of one of them is unknown."""
        lowest = log_start_offset
        for replica in self.followers.values():
            if replica.log_start_offset < lowest and self._broker_epochs(replica.broker_id) is not None:
                lowest = replica.log_start_offset
        return lowest

    # --- the ISR ----------------------------------------------------------------------------------------------------

    def check_broker_epoch(self, replica: Replica, broker_epoch: int) -> None:
        """Raises NotLeaderOrFollower for a request of another registration than that of a live broker, as the leader
        knows it. An earlier one was sent before the broker registered again: its log may have lost records since. A
        later one will be known soon; or it is of another registry, and nobody is elected here by what is said there."""
        known = self._broker_epochs(replica.broker_id)
        is_foreign = NO_BROKER_EPOCH < broker_epoch < replica.broker_epoch if known is None else broker_epoch != known
        if is_foreign:
            raise NotLeaderOrFollower(
                f"the fetch is of broker {replica.broker_id} in epoch {broker_epoch}, it is in epoch "
                f"{replica.broker_epoch if known is None else known} here"
            )

    def _may_join(self, replica: Replica) -> bool:
        """Returns whether the broker is live, and its last fetch is of its present registration."""
        known = self._broker_epochs(replica.broker_id)
        return known is not None and replica.has_fetched and replica.broker_epoch == known

    def next_isr(self, join_offset: Offset, log_end_offset: Offset, now: float) -> tuple[BrokerState, ...] | None:
        """Returns the ISR that the leader should propose; None if it should stay or a change is pending.

        Members that have not caught up in time leave. Others join when they have all records below `join_offset`.
        """
        if self.pending is not None:
            return None
        lag_time_max_s = self._lag_time_max_s
        members = [
            broker_id
            for broker_id in self.in_sync_replicas
            if broker_id == self._broker_id
            or (
                (replica := self.followers.get(broker_id)) is not None
                and replica.is_caught_up(log_end_offset, now, lag_time_max_s)
            )
        ]
        members += [
            replica.broker_id
            for replica in self.followers.values()
            if replica.broker_id not in self.in_sync_replicas
            and replica.log_end_offset >= join_offset
            and self._may_join(replica)
        ]
        if tuple(members) == self.in_sync_replicas:
            return None
        return tuple(BrokerState(broker_id, self._epoch_of(broker_id)) for broker_id in members)

    def _epoch_of(self, broker_id: BrokerId) -> int:
        """Returns the broker epoch that the leader knows by the follower's own requests.

        A member of the ISR that has not fetched yet has none. If it has crashed, the controller has removed it from the
        ISR, and refuses the proposal for its partition epoch.
        """
        if broker_id == self._broker_id:
            epoch = self._broker_epochs(broker_id)
            return NO_BROKER_EPOCH if epoch is None else epoch
        return self.followers[broker_id].broker_epoch

    def propose(self, change: IsrChange) -> None:
        self.pending = change
        self.maximal_isr = frozenset(self.in_sync_replicas).union(member.broker_id for member in change.new_isr)

    def commit(self, in_sync_replicas: Iterable[BrokerId]) -> None:
        """Sets the ISR that the controller has written. A pending change has been made or cannot be made any more.

        A member that has left has to fetch anew before it counts: its disk may have failed.
        """
        before, self.in_sync_replicas = self.in_sync_replicas, tuple(in_sync_replicas)
        for broker_id in before:
            if broker_id in self.followers and broker_id not in self.in_sync_replicas:
                self.followers[broker_id] = Replica(broker_id)
        self.roll_back()

    def roll_back(self) -> None:
        """Forgets the pending change, because the controller says that it was not made."""
        self.pending = None
        self.maximal_isr = frozenset(self.in_sync_replicas)
