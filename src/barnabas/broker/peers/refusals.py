"""The memory of a broker for others that knew the secret of its cluster and do not belong to it: copies above all."""

from typing import Final

from barnabas.broker.peers.identity import PLACE_MAX, PeerIdentity
from barnabas.broker.process.failure_log import FailureLog
from barnabas.clock import Clock
from barnabas.metadata.refused_broker import RefusedBroker
from barnabas.printable import printable

__all__ = ["KEPT_MAX", "KEPT_MS", "Refusals"]

KEPT_MAX: Final = 8
"""The most brokers that are remembered; those that have not come for longest make room for others."""
KEPT_MS: Final = 24 * 3_600_000
"""The time for which a broker that does not come again is remembered: the morning after is soon enough."""
_PROBLEM_MAX: Final = 600


class Refusals:
    """Used on the event loop's thread. Who comes again is told of once, and counted."""

    def __init__(self, failures: FailureLog, clock: Clock) -> None:
        self._failures = failures
        self._clock = clock
        self._kept: dict[tuple[int, str, str, str], RefusedBroker] = {}
        """By all but the time: the one that has come last is the last one."""

    def note(self, identity: PeerIdentity, host: str, problem: str) -> None:
        """Remembers a broker that was refused, and logs that if it is not remembered yet. Its texts may be anything."""
        self._forget()
        place, problem = printable(identity.place[:PLACE_MAX]), printable(problem[:_PROBLEM_MAX])
        key = identity.node_id, host, place, problem
        before = self._kept.pop(key, None)
        now_ms = self._clock.wall_ms()
        refused = self._kept[key] = RefusedBroker(*key, 1 if before is None else before.times + 1, now_ms)
        if len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        if before is None:
            self._failures.warn("brokers that do not belong here", f"refused {refused}: {problem}")

    def kept(self) -> list[RefusedBroker]:
        self._forget()
        return list(self._kept.values())

    def _forget(self) -> None:
        since_ms = self._clock.wall_ms() - KEPT_MS
        self._kept = {key: refused for key, refused in self._kept.items() if refused.last_ms > since_ms}
