import io

import pytest

from barnabas.cli.framework.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_records_their_rate_and_more_twice_a_second() -> None:
    terminal, clock, details = Terminal(), Clock(), iter(["40 %", ""])
    with Progress(lambda: next(details), stream=terminal, clock=clock) as progress:
        clock.now = 0.4
        progress.show(1000)
        assert terminal.getvalue() == ""
        clock.now = 0.5
        progress.show(2000)
        progress.show(2001)
        clock.now = 1.5
        progress.show(12_000)
    assert terminal.getvalue() == (
        "\r\x1b[K2,000 records, 4,000/s, 40 %\r\x1b[K12,000 records, 10,000/s\r\x1b[K"  # taken away at the end
    )


def test_the_line_is_taken_away_for_others_to_write() -> None:
    terminal, clock = Terminal(), Clock()
    progress = Progress(str, stream=terminal, clock=clock)
    progress.clear()
    assert terminal.getvalue() == "", "there is none"
    clock.now = 1
    progress.show(1)
    progress.clear()
    progress.clear()
    assert terminal.getvalue() == "\r\x1b[K1 records, 1/s\r\x1b[K"


@pytest.mark.parametrize(("stream", "shown"), [(io.StringIO(), True), (Terminal(), False)])
def test_nothing_is_shown_elsewhere_or_unasked(stream: io.StringIO, shown: bool) -> None:
    clock = Clock()
    with Progress(str, shown=shown, stream=stream, clock=clock) as progress:
        clock.now = 10
        progress.show(1)
    assert stream.getvalue() == ""
