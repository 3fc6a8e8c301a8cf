"""Logs failures that the protocol has no error for.

An error of the operating system is the machine's state: no descriptors, no room, a broken disk. Every request fails
with it until an operator mends the cause, so it is logged as one line with advice, at intervals. Any other failure is a
bug of ours and is logged with its traceback.
"""

import logging
import math
import threading
from typing import Final

from barnabas.clock import Clock
from barnabas.errors import KafkaError, as_kafka_error
from barnabas.log.log_manager import WAYS_OUT

__all__ = ["FailureLog"]

_INTERVAL_S: Final = 10.0


class FailureLog:
    """Logs failures. May be used by any thread."""

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._reported_at: dict[int | None, float] = {}
        """The time of the last report by error number. There are at most as many as the system has errors."""
        self._unsaid: dict[int | None, int] = {}

    def report(self, what: str, error: BaseException) -> KafkaError:
        """Logs that `what` failed, and returns the error for the client: a KafkaStorageError, which clients retry, if
        the operating system has refused something."""
        if isinstance(error, OSError):
            self._report_refusal(what, error)
        else:
            self._log.error("%s failed", what, exc_info=error)
        return as_kafka_error(error)

    def _report_refusal(self, what: str, error: OSError) -> None:
        with self._lock:
            number, now = error.errno, self._clock.monotonic()
            if now - self._reported_at.get(number, -math.inf) < _INTERVAL_S:
                self._unsaid[number] = self._unsaid.get(number, 0) + 1
                return
            self._reported_at[number] = now
            unsaid = self._unsaid.pop(number, 0)
        where = f" ({error.filename})" if error.filename else ""
        way_out = f"; {WAYS_OUT[number]}" if number in WAYS_OUT else ""
        more = f" ({unsaid} more like this since the last line)" if unsaid else ""
        self._log.error("%s failed: %s%s%s%s", what, error.strerror or error, where, way_out, more)
