"""The cleaner process: `python -m barnabas.log.cleaner.cleaner_worker IDLE_S` reads jobs from stdin and writes events
to stdout.

It ends with its broker (its input ends), and by itself when there was nothing to do for IDLE_S seconds: the memory of
an idle broker is the broker's alone.
"""

import contextlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

from barnabas.errors import InvalidRecord, KafkaStorageError
from barnabas.log.cleaner.cleaner import Cleaner, Uncleanable
from barnabas.log.cleaner.cleaner_protocol import JOB_MAX_BYTES, CleaningJob, Frames, frame
from barnabas.log.log_damage import is_disk_error

__all__ = ["PipeHost", "Throttle", "main", "perform"]

NICENESS: Final = 10
"""The process has a lower priority than the broker, but gets a share of a busy machine, so that logs do not grow
without bound."""
_READ_BYTES: Final = 1 << 16
_PAUSE_MIN_S: Final = 0.02
ALIVE_INTERVAL_S: Final = 10.0
"""The interval of events to the broker while the work goes on."""
_CREDIT_S: Final = 0.3
"""The time after which an unused part of the rate is lost."""


class BrokerGone(Exception):
    """The broker has ended."""


class Throttle:
    """Computes the waits that keep the work at `rate` bytes a second."""

    def __init__(self, rate: float, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._now = now
        self._due = now()

    def spend(self, size: int) -> float:
        """Returns the seconds to wait after `size` bytes."""
        now = self._now()
        self._due = max(self._due, now - _CREDIT_S) + size / self._rate
        pause = self._due - now
        return pause if pause > _PAUSE_MIN_S else 0.0


class PipeHost:
    """Keeps to the rate, notices the end of the broker, and sends events while the work goes on."""

    def __init__(self, commands: int, events: int, rate: float, alive_interval_s: float = ALIVE_INTERVAL_S) -> None:
        self._commands = select.poll()
        self._commands.register(commands, select.POLLIN)
        self._events = events
        self._throttle = Throttle(rate)
        self._interval_s = alive_interval_s
        self._told_s = time.monotonic()

    def spend(self, size: int) -> None:
        pause = self._throttle.spend(size)
        while pause > self._interval_s:
            self._wait(self._interval_s)
            pause -= self._interval_s
        self._wait(pause)

    def _wait(self, seconds: float) -> None:
        # The broker sends nothing while a job runs: readable input means the end of the stream.
        if self._commands.poll(seconds * 1000):
            raise BrokerGone
        if time.monotonic() - self._told_s >= self._interval_s:
            self.tell({"event": "alive"})

    def tell(self, event: dict[str, Any]) -> None:
        self._told_s = time.monotonic()
        _send(self._events, event)


def _send(fd: int, message: dict[str, Any]) -> None:
    data = memoryview(frame(message))
    try:
        while data:
            data = data[os.write(fd, data) :]
    except BrokenPipeError:
        raise BrokerGone from None


def perform(job: CleaningJob, host: Any) -> None:
    """Runs a job and sends its result. Raises the host's errors to end the work."""
    try:
        Cleaner(job, host).run()
    except (Uncleanable, KafkaStorageError) as error:
        host.tell({"event": "failed", "kind": "uncleanable", "reason": str(error)})
    except InvalidRecord as error:  # the limit was lowered, and may be raised again
        host.tell({"event": "failed", "kind": "temporary", "reason": str(error)})
    except MemoryError:
        reason = f"there is no memory for a map of {job.limits.dedupe_buffer_size} bytes"
        host.tell({"event": "failed", "kind": "temporary", "reason": reason})
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        kind = "unreadable" if is_disk_error(error) else "temporary"
        host.tell({"event": "failed", "kind": kind, "reason": f"{where}{error.strerror or error}"})


def main(idle_s: float) -> None:
    """Works until the broker ends or no job comes for so long."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    commands, events = 0, os.dup(1)
    os.dup2(2, 1)  # printed text must not mix with the events
    frames = Frames(JOB_MAX_BYTES)
    with contextlib.suppress(BrokerGone):
        while select.select([commands], [], [], idle_s)[0]:
            data = os.read(commands, _READ_BYTES)
            if not data:
                return
            for message in frames.feed(data):
                _work(CleaningJob.parse(message), commands, events)


def _work(job: CleaningJob, commands: int, events: int) -> None:
    host = PipeHost(commands, events, job.limits.io_max_bytes_per_second)
    try:
        perform(job, host)
    except BrokerGone:
        raise
    except Exception as error:
        traceback.print_exc()
        _send(events, {"event": "failed", "kind": "uncleanable", "reason": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main(float(sys.argv[1]))
