"""Runs a Supervisor over processes that stand for brokers: `python fake_brokers.py OPTIONS BEHAVIOUR...`.

`OPTIONS` are those of `main` in JSON, each further argument is the behaviour of one broker, a function of `FakeBroker`.
The tests start this in a process of its own, because a supervisor forks and handles signals.
"""

import errno
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import NoReturn

from barnabas.broker.supervisor.supervisor import Facts, Supervisor
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import UsageError

ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class FakeBroker:
    def __init__(self, number: int, behaviour: str, directory: Path) -> None:
        self.name = f"broker {number}"
        self._number = number
        self._behaviour, _, self._argument = behaviour.partition(":")
        self._directory = directory

    def run(self) -> int:
        with (self._directory / f"starts-{self._number}").open("a") as file:
            file.write(f"{os.getpid()}\n")
        return int(getattr(self, self._behaviour)())

    def note_ready(self, facts: Facts) -> None:
        pass

    @property
    def is_first(self) -> bool:
        return len((self._directory / f"starts-{self._number}").read_text().splitlines()) == 1

    def serves(self) -> int:
        """Is ready, and ends with 0 when it is told to."""
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
        print(json.dumps({"event": "ready", "number": self._number, "pid": os.getpid()}), flush=True)
        signal.sigwait(ENDINGS)
        return 0

    def starts(self) -> int:
        """Is in its start for ever."""
        print("starting", flush=True)
        signal.pause()
        return 0

    def speaks(self) -> int:
        """Writes lines, and one without an end when it is told to end."""
        print("to stdout\n{no event}", flush=True)
        print("to stderr", file=sys.stderr)
        code = self.serves()
        sys.stdout.write("last words")
        return code

    def fails(self) -> int:
        """Ends with the exit code of its argument, at the first start only."""
        return int(self._argument) if self.is_first else self.serves()

    def always_fails(self) -> int:
        """Ends with the exit code of its argument, at every start."""
        return int(self._argument)

    def raises(self) -> int:
        """Ends with an exception, at the first start only."""
        if self.is_first:
            raise RuntimeError("a defect")
        return self.serves()

    def refuses(self) -> int:
        """Cannot be started."""
        return self._refuse()

    def refuses_later(self) -> int:
        """Cannot be started again, once."""
        starts = len((self._directory / f"starts-{self._number}").read_text().splitlines())
        return self._refuse() if starts == 2 else self.serves()

    def has_no_disk(self) -> int:
        """Cannot use its directory at the first start, or at each one with an argument."""
        if self.is_first or self._argument:
            return self._refuse("/disk cannot be used", of_directory=True)
        return self.serves()

    def comes_too_early(self) -> int:
        """Cannot be started yet, once, or ever with an argument."""
        if self.is_first or self._argument:
            return self._refuse("the others are not there", code=75)
        return self.serves()

    @staticmethod
    def _refuse(message: str = "port 1 is taken; choose another", *, of_directory: bool = False, code: int = 2) -> int:
        facts = {"event": "usage-error", "message": message, "of_directory": of_directory}
        print(json.dumps(facts), flush=True)
        return code

    def stays(self) -> int:
        """Does not end when it is told to."""
        for number in ENDINGS:
            signal.signal(number, signal.SIG_IGN)
        print(json.dumps({"event": "ready", "number": self._number, "pid": os.getpid()}), flush=True)
        while True:
            signal.pause()

    def lingers(self) -> int:
        """Is told to end, and ends at SIGUSR1."""
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1,))
        code = self.serves()
        signal.sigwait((signal.SIGUSR1,))
        return code

    def waits(self) -> int:
        """Is ready after SIGUSR1."""
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1,))
        print("waiting", flush=True)
        signal.sigwait((signal.SIGUSR1,))
        return self.serves()

    def floods(self) -> int:
        """Writes as many lines as its argument says, and makes a file then."""
        print(json.dumps({"event": "ready", "number": self._number, "pid": os.getpid()}), flush=True)
        for number in range(int(self._argument)):
            print(f"line {number} {'.' * 80}")
        sys.stdout.flush()
        (self._directory / "flooded").touch()
        signal.pause()
        return 0


class StandingClock:
    def monotonic(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 0


def main(
    behaviours: Sequence[str],
    directory: str,
    stop_timeout_s: float,
    time_stands: bool = False,
    forks_fail: int = 0,
    late_interrupt: bool = False,
) -> NoReturn:
    """Forks fail that often, each after one that does not. `late_interrupt`: Ctrl-C arrives, and a process ends from
    it, when the supervisor is about to look for processes that have ended."""

    def tell_ready(facts: Sequence[Facts]) -> None:
        supervisor.say(json.dumps([dict(each) for each in facts]))

    brokers = [FakeBroker(number, behaviour, Path(directory)) for number, behaviour in enumerate(behaviours, start=1)]
    clock = StandingClock() if time_stands else SYSTEM_CLOCK
    supervisor = Supervisor(brokers, tell_ready, clock=clock, stop_timeout_s=stop_timeout_s)
    logging.basicConfig(level="INFO", stream=supervisor.log_stream, format="%(message)s")
    if forks_fail:
        os.fork = failing(os.fork, forks_fail)
    if late_interrupt:
        os.waitpid = interrupting(os.waitpid)
    try:
        sys.exit(supervisor.run())
    except UsageError as error:
        print(f"usage: {error}", file=sys.stderr)
        sys.exit(2)


def failing(fork: Callable[[], int], times: int) -> Callable[[], int]:
    calls = count(1)

    def fork_or_fail() -> int:
        call = next(calls)
        if call % 2 == 0 and call <= 2 * times:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    return fork_or_fail


def interrupting(wait: Callable[[int, int], tuple[int, int]]) -> Callable[[int, int], tuple[int, int]]:
    def wait_or_interrupt(pid: int, options: int) -> tuple[int, int]:
        ended = wait(pid, options)
        if ended[0]:
            os.kill(os.getpid(), signal.SIGINT)
        return ended

    return wait_or_interrupt


if __name__ == "__main__":
    main(sys.argv[2:], **json.loads(sys.argv[1]))
