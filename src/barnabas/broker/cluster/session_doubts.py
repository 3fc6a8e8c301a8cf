"""Notices that other brokers may lead in place of this one, without its knowledge: its process stood still for long, or
nothing vouches for its session with the controller any more.

A process that goes on after a stop (SIGSTOP, a suspended machine) reads the requests that came meanwhile before it
hears of its successors. A broker that is cut off, but not from clients, hears nothing of them at all. Neither can
commit anything, because their followers have left them. But they would show offsets that their successors have
replaced.

Where we differ from Kafka: the coordinators of a broker refuse requests when its process stood still for long, or the
controller has not answered for half a session, until it answers a heartbeat or the registry can be read. Without the
registry a controller goes on while it hears of so many brokers that those which are left cannot commit anything.
"""

from collections.abc import Callable

__all__ = ["SessionDoubts"]


class SessionDoubts:
    """Compares the times at which the event loop was seen to run, and the times for which somebody vouches."""

    def __init__(self, now: Callable[[], float], pause_s: float) -> None:
        """A stop of the event loop is long beyond `pause_s`, which has to be clearly less than the session timeout."""
        self._now = now
        self._pause_s = pause_s
        self._awake_at = now()
        self.stood_still_until: float | None = None
        """The end of the last long stop, until somebody has vouched for the session since."""
        self._sure_until = self._awake_at

    def tick(self) -> None:
        """Notes that the event loop runs. Called several times within `pause_s`."""
        self.stood_still()
        self._awake_at = self._now()

    def stood_still(self) -> bool:
        """Returns whether the event loop stood still for long, and nobody has vouched for the session since."""
        now = self._now()
        if now - self._awake_at > self._pause_s:
            self.stood_still_until = self._awake_at = now
        return self.stood_still_until is not None

    def sure_s(self) -> float:
        """Returns for how many seconds somebody still vouches for the session; not above 0 if nobody does."""
        return self._sure_until - self._now()

    def confirmed(self, asked_at: float, sure_s: float) -> None:
        """Ends the doubts: somebody who was asked at this time says that the session has not ended, or has given this
        broker all metadata from after its end. It will not end within `sure_s` from then on."""
        self._sure_until = max(self._sure_until, asked_at + sure_s)
        if self.stood_still_until is not None and asked_at >= self.stood_still_until:
            self.stood_still_until = None

    def denied(self) -> None:
        """Notes that the session has ended."""
        self._sure_until = self._now()
