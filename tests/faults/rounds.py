"""Round after round of one test of faults, each drawn from the seed and its own number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

FULL_CHECK_EVERY = 50


class Report(Protocol):
    """The report of a round: a line to print, and the failures that it found."""

    failures: list[str]


class FaultTest(Protocol):
    """A broker's life over many rounds."""

    def prepare(self) -> None:
        """Starts the broker and makes what the rounds need."""

    def run_round(self, number: int) -> Report:
        """One round; it checks what is new."""

    def check_all(self) -> list[str]:
        """Checks everything since the beginning."""

    def stop(self) -> None:
        """Ends what lives from round to round; the broker is the caller's."""

    def summary(self) -> str:
        """Returns the summary of the whole run."""


def run(test: FaultTest, first: int, rounds: int, replay: str, say: Callable[[str], None]) -> int:
    """Answers 1 at the first round that fails, the directory then shows it; ``replay`` has ``{rounds}``."""
    try:
        test.prepare()
        for number in range(first, first + rounds):
            report = test.run_round(number)
            last = number == first + rounds - 1
            if not report.failures and (last or not (number + 1) % FULL_CHECK_EVERY):
                report.failures += test.check_all()
            say(str(report))
            if report.failures:
                for failure in report.failures[:20]:
                    say(f"  {failure}")
                say(f"  replay: {replay.format(rounds=number - first + 1)}")
                return 1
    finally:
        test.stop()
    say(f"{rounds} rounds: {test.summary()}")
    return 0
