"""Shows running pipelines on terminals, and turns their failures into those of the command."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.framework.output import CommandFailed, notice
from barnabas.pipeline.display import HEADERS, Display, Refresh, Row
from barnabas.pipeline.errors import PipelineFailed

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["TerminalDisplay", "pipeline_failures"]

_REFRESH_S: Final = 0.25
_LINE_EVERY_S: Final = 3.0


@contextlib.contextmanager
def pipeline_failures() -> Iterator[None]:
    """Turns PipelineFailed into CommandFailed."""
    try:
        yield
    except PipelineFailed as error:
        raise CommandFailed(str(error)) from error


class TerminalDisplay(Display):
    """Shows the queries in a table that changes in place on a terminal, otherwise in a line every few seconds. If
    `quiet`, it shows no queries and keeps standard output free."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def say(self, text: str) -> None:
        if self._quiet:
            notice(text)
        else:
            print(text, flush=True)

    @contextlib.contextmanager
    def table(self, rows: Callable[[], Iterable[Row]]) -> Iterator[Refresh]:
        with contextlib.ExitStack() as stack:
            live: Any = None
            if not self._quiet and sys.stdout.isatty():
                from rich.live import Live

                live = stack.enter_context(Live(auto_refresh=False))
            next_s = 0.0
            shown: list[Row] = []

            def refresh(*, now: bool = False) -> None:
                nonlocal next_s, shown
                now_s = time.monotonic()
                if self._quiet or (now_s < next_s and not now):
                    return
                found = list(rows())
                if live is not None:
                    next_s = now_s + _REFRESH_S
                    live.update(_table(found), refresh=True)
                elif found != shown:
                    next_s = now_s + _LINE_EVERY_S
                    print("; ".join(map(_line, found)), flush=True)
                shown = found

            yield refresh


def _table(rows: Iterable[Row]) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for header in HEADERS:
        table.add_column(header, justify="left" if header in ("", "watermark") else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _line(row: Row) -> str:
    named = zip(HEADERS[1:], row[1:], strict=True)
    return f"{row[0]}: " + ", ".join(f"{name} {text}" for name, text in named if text)
