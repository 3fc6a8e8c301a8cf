"""Decides which brokers are suspected, because the controller has not heard of them. Times are seconds of a clock."""

from collections.abc import Iterable

from barnabas.metadata.image import BrokerImage
from barnabas.types import BrokerId

__all__ = ["BrokerHeartbeats"]


class BrokerHeartbeats:
    """The time of the last heartbeat of each broker. The active controller keeps one for its epoch."""

    def __init__(self, session_timeout_s: float, now: float) -> None:
        """Brokers that were registered before have a whole session from `now` on."""
        self._session_timeout_s = session_timeout_s
        self._began = now
        self._heard: dict[tuple[BrokerId, int], float] = {}

    def heard(self, node_id: BrokerId, epoch: int, now: float) -> None:
        """Notes a heartbeat of a broker in this epoch of its registration."""
        self._heard[node_id, epoch] = now

    def heard_lately(self, brokers: Iterable[BrokerImage], now: float) -> int:
        """Returns of how many of these brokers something was heard in the last half of a session. Those that had no
        time yet to be heard of count."""
        return self._heard_since(brokers, now - self._session_timeout_s / 2, self._began)

    def heard_since(self, brokers: Iterable[BrokerImage], since: float) -> int:
        """Returns of how many of these brokers a heartbeat has come since then."""
        return self._heard_since(brokers, since, float("-inf"))

    def _heard_since(self, brokers: Iterable[BrokerImage], since: float, default: float) -> int:
        return sum(self._heard.get((broker.node_id, broker.epoch), default) >= since for broker in brokers)

    def silent_s(self, broker: BrokerImage, now: float) -> float:
        """Returns for how long nothing was heard of a broker."""
        return now - self._heard.get((broker.node_id, broker.epoch), self._began)

    def suspected(self, brokers: Iterable[BrokerImage], now: float) -> list[BrokerImage]:
        """Returns the brokers that are not fenced although their session has timed out. Forgets those that have
        registered again."""
        present = {(broker.node_id, broker.epoch): broker for broker in brokers}
        self._heard = {key: heard for key, heard in self._heard.items() if key in present}
        return [
            broker
            for broker in present.values()
            if not broker.fenced and self.silent_s(broker, now) > self._session_timeout_s
        ]
