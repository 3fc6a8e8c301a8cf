"""Logs failures that the protocol has no error for.

An error of the operating system is the machine's state: no descriptors, no room, a broken disk. Every request fails
with it until an operator mends the cause, so it is logged as one line with advice, at intervals. Likewise memory that
has run out, if the broker may go on at all. Any other failure is a bug of ours and is logged with its traceback.
"""

import logging
import math
import threading
from typing import Final

from barnabas.clock import Clock
from barnabas.errors import KafkaError, as_kafka_error
from barnabas.log.directories.data_directory import WAYS_OUT
from barnabas.out_of_memory import WAY_OUT, end_if_out_of_memory, is_lack_of_memory

__all__ = ["FailureLog"]

_INTERVAL_S: Final = 10.0


class FailureLog:
    """Logs failures. May be used by any thread."""

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._reported_at: dict[int | str | None, float] = {}
        """The time of the last report by error number or subject. There are at most as many as the system has errors
        and the callers have subjects."""
        self._unsaid: dict[int | str | None, int] = {}

    def report(self, what: str, error: BaseException) -> KafkaError:
        """Logs that `what` failed, and returns the error for the client: a KafkaStorageError, which clients retry, if
        the operating system has refused something. Ends a broker whose memory has run out."""
        end_if_out_of_memory(error)
        if is_lack_of_memory(error):
            return self.report_no_memory(what)
        if isinstance(error, OSError):
            self._report_refusal(what, error)
        else:
            self._log.error("%s failed", what, exc_info=error)
        return as_kafka_error(error)

    def report_no_memory(self, what: str) -> KafkaError:
        """Logs that there was no memory for `what`, which has changed nothing, and returns the error for the client."""
        self.warn("memory", f"{what} failed: memory has run out; {WAY_OUT}")
        return as_kafka_error(MemoryError("there is not enough of it now"))

    def warn(self, subject: str, line: str) -> None:
        """Logs a line, and further ones about the same subject at intervals only."""
        more = self._more_of(subject)
        if more is not None:
            self._log.warning("%s%s", line, more)

    def _report_refusal(self, what: str, error: OSError) -> None:
        more = self._more_of(error.errno)
        if more is None:
            return
        where = f" ({error.filename})" if error.filename else ""
        way_out = f"; {WAYS_OUT[error.errno]}" if error.errno in WAYS_OUT else ""
        self._log.error("%s failed: %s%s%s%s", what, error.strerror or error, where, way_out, more)

    def _more_of(self, subject: int | str | None) -> str | None:
        """Returns None if it is too early for a line about the subject; otherwise the end of the line, which counts
        those that were left out."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._reported_at.get(subject, -math.inf) < _INTERVAL_S:
                self._unsaid[subject] = self._unsaid.get(subject, 0) + 1
                return None
            self._reported_at[subject] = now
            unsaid = self._unsaid.pop(subject, 0)
        return f" ({unsaid} more like this since the last line)" if unsaid else ""
