"""The times of a group member's heartbeats, and of its application's polls, without a clock and requests."""

import logging
from typing import Final, NamedTuple

__all__ = ["Heartbeat", "MembershipSettings", "PollTimer"]

WARN_AT: Final = (0.5, 0.8)
"""The parts of max.poll.interval.ms after which a warning is logged."""

_log = logging.getLogger("barnabas.consumer")


class MembershipSettings(NamedTuple):
    """Kafka's settings of a classic group's member, in seconds."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 3.0
    max_poll_interval_s: float = 300.0
    """The longest time between polls, which is also this member's rebalance timeout."""
    request_timeout_s: float = 30.0


class Heartbeat:
    """Computes in `due` when a member has to send its next heartbeat."""

    def __init__(self, settings: MembershipSettings) -> None:
        self._settings = settings
        self._warned = False
        self.due = float("inf")
        self.answered_at = float("-inf")
        """The time at which the coordinator last confirmed the membership."""

    def begin(self, now: float) -> None:
        """Starts the heartbeats of a member that has joined."""
        self.due = now + self._settings.heartbeat_interval_s
        self.answered_at = now
        self._warned = False

    def end(self) -> None:
        self.due = float("inf")

    def sent(self) -> None:
        """Notes that a heartbeat is in flight: the next one waits for its response."""
        self.due = float("inf")

    def answered(self, now: float, sent_at: float) -> None:
        self.due = sent_at + self._settings.heartbeat_interval_s
        self.answered_at = now
        self._warned = False

    def failed(self, now: float, pause_s: float) -> None:
        """Makes the next heartbeat due after a short pause: the last one had no response, or a retriable error."""
        self.due = now + min(pause_s, self._settings.heartbeat_interval_s)
        silent_s = now - self.answered_at
        if silent_s > self._settings.session_timeout_s and not self._warned:
            self._warned = True
            _log.warning(
                "group %r has not heard of this member for %.1f s, session.timeout.ms is %d: the coordinator will have"
                " given its partitions to others",
                self._settings.group_id,
                silent_s,
                self._settings.session_timeout_s * 1000,
            )


class PollTimer:
    """Measures how long ago the application polled, against max.poll.interval.ms. Time inside a poll does not count."""

    def __init__(self, settings: MembershipSettings) -> None:
        self._group_id = settings.group_id
        self._interval_s = settings.max_poll_interval_s
        self._warnings = 0
        self.is_waiting = False
        """Whether the application waits in a poll."""
        self.polled_at = float("inf")

    def set_waiting(self, now: float, is_waiting: bool) -> None:
        """Notes whether the application waits in a poll now. The end of the wait counts as the last poll."""
        if is_waiting or self.is_waiting:
            self.reset(now)
        self.is_waiting = is_waiting

    def reset(self, now: float) -> None:
        """Notes that the application polls now."""
        self.polled_at = now
        self._warnings = 0

    def deadline(self) -> float:
        """Returns when `has_expired` will log a warning or return True."""
        if self.is_waiting:
            return float("inf")
        share = WARN_AT[self._warnings] if self._warnings < len(WARN_AT) else 1.0
        return self.polled_at + share * self._interval_s

    def has_expired(self, now: float) -> bool:
        """Whether the application has not polled for max.poll.interval.ms. Logs warnings before that."""
        if now < self.deadline():
            return False
        away_s = now - self.polled_at
        if away_s >= self._interval_s:
            return True
        while self._warnings < len(WARN_AT) and away_s >= WARN_AT[self._warnings] * self._interval_s:
            self._warnings += 1
        _log.warning(
            "no poll for %.1f s, which is %d %% of max.poll.interval.ms=%d: at 100 %% this member leaves group %r and"
            " its records go to others; poll more often, take fewer records at a time (max.poll.records) or raise"
            " max.poll.interval.ms",
            away_s,
            100 * away_s / self._interval_s,
            self._interval_s * 1000,
            self._group_id,
        )
        return False
