"""Running queries: whether they are well, when they are through, what they died of."""

import re
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from barnabas.cli.output import CommandFailed

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["Ending", "check_queries", "is_of_spark", "told"]

_LINES: Final = 4
_EXCEPTION: Final = re.compile(r'^(?:Exception in thread "[^"]*" )?([\w.]+(?:Error|Exception)\b)', re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b.*)$", re.MULTILINE)
_STACK: Final = "JVM stacktrace:"
_OURS: Final = re.compile(r"^\s*(?:\w+Error: )?barnabas\.[\w.]+: (.+)$", re.MULTILINE)


class Ending(threading.Thread):
    """Waits until a query has done all that is there: Spark's call for that does not say how far it is."""

    def __init__(self, query: "StreamingQuery") -> None:
        super().__init__(name=f"end of {query.name}", daemon=True)
        self._query = query
        self._failure: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self._query.processAllAvailable()
        except Exception as error:
            self._failure = error

    def check(self) -> None:
        """Raises what ended it, if it was not the end of the records."""
        check_queries([self._query])
        if self._failure is not None:
            raise self._failure


def check_queries(queries: Iterable["StreamingQuery"]) -> None:
    """Raises CommandFailed if one has failed."""
    for query in queries:
        error = query.exception()
        if error is not None:
            raise CommandFailed(f"query {query.name} has failed: {told(error)}")


def is_of_spark(error: BaseException) -> bool:
    return type(error).__module__.startswith(("py4j", "pyspark"))


def told(error: BaseException | str) -> str:
    """What we said in one of Spark's Python processes, if that is what it is; otherwise its first lines, without the
    JVM's stack, and without Python's but for what was raised first. Of the output of a process: the first lines of the
    last exception in it."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    if isinstance(error, str):
        last = max((found.start(1) for found in _EXCEPTION.finditer(text)), default=0)
        text = text[last:]
    text = text.partition(_STACK)[0]
    before, _, stack = text.partition(_TRACEBACK)
    raised = _RAISED.search(stack)
    if raised is not None:
        text = f"{before}\n{raised[1]}"
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return " ".join(lines[:_LINES])
