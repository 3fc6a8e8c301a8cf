"""Notices that other brokers may lead in place of this one, without its knowledge: its process stood still for long, or
nothing vouches for its session with the controller any more.

A process that goes on after a stop (SIGSTOP) reads the requests that came meanwhile before it hears of its successors.
A broker that is cut off, but not from clients, hears nothing of them at all. Neither can commit anything, because their
followers have left them. But they would show offsets that their successors have replaced.

Where we differ from Kafka: the coordinators of a broker refuse requests when its process stood still for long, or the
controller has not answered for half a session, until it answers a heartbeat or the registry can be read. Without the
registry a controller goes on while it hears of so many brokers that those which are left cannot commit anything.
"""

from collections.abc import Callable
from typing import Final

__all__ = ["SessionDoubts"]

READ_MAX_S: Final = 1.5
"""The longest time for which a reading of the registry leaves no doubt to a broker that is not the controller."""
TICK_MAX_S: Final = 0.25
"""The longest interval at which the event loop is seen to run."""


class SessionDoubts:
    """Compares the times at which the event loop was seen to run, and the times for which somebody vouches."""

    def __init__(self, now: Callable[[], float], session_s: float) -> None:
        """`session_s` is the session with the controller, or that with ZooKeeper if it is shorter."""
        self._now = now
        self.sure_s: Final = session_s / 2
        """The time for which a heartbeat that is answered leaves no doubt. The session with the controller ends later,
        and so does one with ZooKeeper, which may have heard of this broker a third of a session before. It is also the
        length of a stop of the event loop that leaves doubts."""
        self.tick_s: Final = min(TICK_MAX_S, self.sure_s / 4)
        """The interval at which `tick` has to be called."""
        self._read_sure_s: Final = min(READ_MAX_S, self.sure_s)
        self.reading_s: Final = self._read_sure_s / 15
        """The interval of readings of the registry while nothing else vouches for the session. For so long a broker may
        not know of its successors."""
        self._awake_at = self._sure_until = now()
        self._stood_still_until: float | None = None
        """The end of the last long stop, until somebody has vouched for the session since."""
        self._is_read = False
        """Whether nobody but the registry vouches for the session of this broker, which is not the controller."""
        self._unread_at = float("-inf")
        """The time at which the registry did not respond last."""

    def tick(self) -> None:
        """Notes that the event loop runs."""
        self._stood_still()
        self._awake_at = self._now()

    def _stood_still(self) -> bool:
        """Returns whether the event loop stood still for long, and nobody has vouched for the session since."""
        now = self._now()
        if now - self._awake_at > self.sure_s:
            self._stood_still_until = self._awake_at = now
        return self._stood_still_until is not None

    def wants_reading(self) -> bool:
        """Returns whether the registry has to be read, because soon nothing else vouches for the session any more."""
        is_soon = self._sure_until - self._now() < self.sure_s / 3
        return is_soon or self._is_read or self._stood_still_until is not None

    def heartbeat_answered(self, sent_at: float) -> None:
        """Notes that the controller, another broker, says that the session goes on."""
        self._confirmed(sent_at, self.sure_s)
        self._is_read = False

    def registry_read(self, began: float, *, is_controller: bool) -> None:
        """Notes that this broker has got all that the registry had at this time. A controller keeps its role for a
        session from then on. The session of another broker may end at any time, which the next reading shows."""
        sure_s = self.sure_s if is_controller else self._read_sure_s
        self._is_read = not is_controller and (self._is_read or began + sure_s > self._sure_until)
        self._confirmed(began, sure_s)

    def role_lost(self) -> None:
        """Notes that this broker is not the controller any more, and what vouched for its role proves little."""
        self._sure_until = min(self._sure_until, self._now() + self._read_sure_s)
        self._is_read = True

    def registry_unread(self) -> None:
        """Notes that the registry does not respond."""
        self._unread_at = self._now()

    def _confirmed(self, asked_at: float, sure_s: float) -> None:
        self._sure_until = max(self._sure_until, asked_at + sure_s)
        if self._stood_still_until is not None and asked_at >= self._stood_still_until:
            self._stood_still_until = None

    def denied(self) -> None:
        """Notes that the session has ended."""
        self._sure_until = self._now()

    def may_be_replaced(self, hears_of_enough: Callable[[float], bool] | None) -> bool:
        """Returns whether other brokers may lead in place of this one without its knowledge. The controller's
        `hears_of_enough(within_s)` says whether those that it has not heard of in the last seconds can commit nothing.
        """
        if not self._stood_still() and self._sure_until > self._now():
            return False
        within_s = self.sure_s
        if self._stood_still_until is not None:
            # The heartbeats that waited in the buffers meanwhile prove nothing: those do that come after the registry
            # was asked in vain.
            if self._unread_at < self._stood_still_until:
                return True
            within_s = min(within_s, self._now() - self._unread_at)
        return hears_of_enough is None or not hears_of_enough(within_s)
