"""How far streaming queries are, on a terminal: a table that changes in place, or a line now and then."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas.spark.query_progress import QueryProgress
from barnabas.types import TopicPartition

__all__ = ["Row", "Watcher", "query_row"]

_REFRESH_S: Final = 0.25
_LINE_EVERY_S: Final = 3.0

Row = Sequence[str]


class Watcher:
    """`with Watcher(rows): ...` shows what `rows()` gives, whenever `look` is called and it is time. Where output is no
    terminal, lines are printed instead; with `shown=False` nothing is."""

    HEADERS: Final = ("", "batch", "rows", "rows/s", "lag", "watermark")

    def __init__(self, rows: Callable[[], Iterable[Row]], *, shown: bool = True) -> None:
        self._rows = rows
        self._shown = shown
        self._live: Any = None
        self._next = 0.0
        self._last: list[Row] = []

    def __enter__(self) -> "Watcher":
        if self._shown and sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def look(self, *, now: bool = False) -> None:
        moment = time.monotonic()
        if not self._shown or (moment < self._next and not now):
            return
        rows = list(self._rows())
        if self._live is not None:
            self._next = moment + _REFRESH_S
            self._live.update(_table(rows), refresh=True)
        elif rows != self._last:
            self._next = moment + _LINE_EVERY_S
            print("; ".join(map(_line, rows)), flush=True)
        self._last = rows


def query_row(query: QueryProgress, ends: Mapping[TopicPartition, int]) -> Row:
    """A query as one of the rows; how far it is behind what is in its topics now."""
    lag = sum(max(end - query.read.get(where, 0), 0) for where, end in ends.items())
    batch = str(query.batch_id)
    return (
        query.name,
        batch,
        f"{query.rows_total:,}",
        f"{query.rows_per_second:,.0f}",
        f"{lag:,}",
        query.watermark or "",
    )


def _table(rows: Iterable[Row]) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for header in Watcher.HEADERS:
        table.add_column(header, justify="left" if header in ("", "watermark") else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _line(row: Row) -> str:
    named = zip(Watcher.HEADERS[1:], row[1:], strict=True)
    return f"{row[0]}: " + ", ".join(f"{name} {text}" for name, text in named if text)
