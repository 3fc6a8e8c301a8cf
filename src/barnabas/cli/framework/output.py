"""The output of commands: aligned tables for people, JSON with stable keys for programs."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from barnabas.cli.framework.streams import redirect_to_null
from barnabas.errors import BarnabasError
from barnabas.printable import printable, printable_json

__all__ = ["CommandFailed", "known", "notice", "now_ms", "print_json", "show", "size_text", "table", "time_text"]


class CommandFailed(BarnabasError):
    """The operation failed and one line says why; an empty line if everything was said already. Exit code 1."""


def notice(text: str) -> None:
    """Prints a line on standard error. Ignores failures, so that they do not end the work that the line reports."""
    try:
        print(printable(text), file=sys.stderr, flush=True)
    except OSError:
        redirect_to_null(sys.stderr)


def print_json(value: Any) -> None:
    """Prints an indented JSON document; what JSON has no form for, such as an error, is its text."""
    import json

    sys.stdout.write(printable_json(json.dumps(value, indent=2, default=str, ensure_ascii=False)) + "\n")


def show(value: Any, as_json: bool, text: Callable[[], str]) -> None:
    """Prints the value as JSON, or its text for people."""
    if as_json:
        print_json(value)
    else:
        print(text())


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns aligned columns, those of numbers to the right. Characters that are not printable are escaped."""
    cells = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    numeric = [bool(cells) and all(_is_number(row[i]) for row in cells) for i in range(len(headers))]
    widths = [max([len(header), *(len(row[i]) for row in cells)]) for i, header in enumerate(headers)]
    lines = []
    for row in [[header.upper() for header in headers], *cells]:
        parts = [c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True)]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "", 1).removeprefix("-").isdigit()


def known(value: int) -> int | None:
    """Returns None for a negative number, which in Kafka stands for a missing value."""
    return value if value >= 0 else None


def now_ms() -> int:
    """Returns the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def time_text(timestamp_ms: int) -> str:
    """`2013-01-01T05:15:00.000Z`, or `-` for no time."""
    from datetime import UTC, datetime

    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


def size_text(size: float | None) -> str | None:
    """`1.5 MB`, in decimal units; None for None, which a table shows as `-`."""
    if size is None:
        return None
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
