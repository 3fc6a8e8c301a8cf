"""The display of a running pipeline for people: lines of text, and a table of its queries."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from barnabas.spark.query_progress import QueryProgress
from barnabas.types import TopicPartition

__all__ = ["HEADERS", "Display", "Refresh", "Row", "query_row"]

Row = Sequence[str]
HEADERS: Final = ("", "batch", "rows", "rows/s", "lag", "watermark")
"""The headers of a row's cells."""


class Refresh(Protocol):
    """Shows the rows anew if it is time, or `now`."""

    def __call__(self, *, now: bool = False) -> None: ...


class Display:
    """Shows nothing; the command line has one for terminals."""

    def say(self, text: str) -> None:
        """Shows a line of text."""

    def table(self, rows: Callable[[], Iterable[Row]]) -> AbstractContextManager[Refresh]:
        """Shows what `rows()` returns at each refresh, until the end of the block."""
        return nullcontext(lambda *, now=False: None)


def query_row(query: QueryProgress, end_offsets: Mapping[TopicPartition, int]) -> Row:
    """Returns the row of a query, with its lag behind the ends of its partitions."""
    lag = sum(max(end - query.read.get(partition, 0), 0) for partition, end in end_offsets.items())
    rate = f"{query.rows_per_second:,.0f}"
    return query.name, str(query.batch_id), f"{query.rows_total:,}", rate, f"{lag:,}", query.watermark or ""
