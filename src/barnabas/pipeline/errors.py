"""The failure of a pipeline, and Spark's errors in one line."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from barnabas.errors import BarnabasError

__all__ = ["PipelineFailed", "QueryFailed", "error_text", "spark_failures"]

_LINES: Final = 4
_EXCEPTION: Final = re.compile(r'^(?:Exception in thread "[^"]*" )?([\w.]+(?:Error|Exception)\b)', re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b.*)$", re.MULTILINE)
_STACK: Final = "JVM stacktrace:"
_CAUSE: Final = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_OURS: Final = re.compile(r"^\s*(?:\w+Error: )?barnabas\.[\w.]+: (.+)$", re.MULTILINE)


class PipelineFailed(BarnabasError):
    """A pipeline, a query or Spark itself has failed; the message says why in one line."""


class QueryFailed(BarnabasError):
    """A query of Spark's has failed; the message says why in one line."""


@contextlib.contextmanager
def spark_failures(log: Path) -> Iterator[None]:
    """Turns the failures of queries, and Spark's exceptions, into PipelineFailed, which names the log."""
    try:
        yield
    except QueryFailed as error:
        raise PipelineFailed(f"{error} (all of it: {log})") from error
    except Exception as error:
        if type(error).__module__.startswith(("py4j", "pyspark")):
            raise PipelineFailed(f"Spark: {error_text(error)} (all of it: {log})") from error
        raise


def error_text(error: BaseException | str) -> str:
    """Returns the cause of an exception of Spark's, or of the last exception in the output of a process.

    That is the message of our own exception in one of Spark's Python processes, if there is one. Otherwise it is the
    first lines without the JVM's stack, but with its last cause, and of Python's stack only the exception that was
    raised first.
    """
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    if isinstance(error, str):
        last = max((found.start(1) for found in _EXCEPTION.finditer(text)), default=0)
        text = text[last:]
    causes = _CAUSE.findall(text)
    text = text.partition(_STACK)[0]
    before, _, stack = text.partition(_TRACEBACK)
    raised = _RAISED.search(stack)
    if raised is not None:
        text = f"{before}\n{raised[1]}"
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    told = " ".join([line for line in lines if not _CAUSE.match(line)][:_LINES])
    return f"{told}; caused by {causes[-1].strip()}" if causes and causes[-1].strip() not in told else told
