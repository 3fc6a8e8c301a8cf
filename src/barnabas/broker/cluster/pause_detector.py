"""Notices that this process stood still for so long that other brokers may lead in its place.

A process that goes on after a stop (SIGSTOP, a suspended machine) reads the requests that came meanwhile before it
hears of its successors. It can commit nothing, because its followers have left it. But it would show offsets that its
successor has replaced long ago.

Where we differ from Kafka: the coordinators of a broker whose process stood still for long refuse requests until the
controller has answered a heartbeat. If it was the controller itself, it has to read the registry first.
"""

from collections.abc import Callable

__all__ = ["PauseDetector"]


class PauseDetector:
    """Compares the times at which the event loop was seen to run."""

    def __init__(self, now: Callable[[], float], limit_s: float) -> None:
        """A pause is longer than `limit_s`, which has to be clearly less than the session timeout."""
        self._now = now
        self._limit_s = limit_s
        self._awake_at = now()
        self._doubts_since: float | None = None

    def tick(self) -> None:
        """Notes that the event loop runs. Called several times within the limit."""
        self.may_be_replaced()
        self._awake_at = self._now()

    def may_be_replaced(self) -> bool:
        """Returns whether other brokers may lead in place of this one, without its knowledge."""
        now = self._now()
        if now - self._awake_at > self._limit_s:
            self._doubts_since = self._awake_at = now
        return self._doubts_since is not None

    def confirmed(self, sent_at: float) -> None:
        """Ends the doubts, because the controller has answered a heartbeat that was sent at this time: the session has
        not ended, or this broker has all metadata from after its end."""
        if self._doubts_since is not None and sent_at >= self._doubts_since:
            self._doubts_since = None
