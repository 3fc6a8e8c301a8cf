"""Formats each message of the broker's log as one line, whatever names clients and groups have."""

import logging
from types import TracebackType
from typing import TypeAlias

from barnabas.printable import printable

__all__ = ["OneLineFormatter"]

_ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class OneLineFormatter(logging.Formatter):
    """Escapes unprintable characters in messages and indents tracebacks: the text of an error may have line ends, too,
    and must not look like a line of the log."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: _ExcInfo) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join("    " + printable(line) for line in text.split("\n"))
