"""What commands print: aligned tables for people, JSON with stable keys for programs."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.cli.framework.streams import redirect_to_null
from barnabas.errors import BarnabasError
from barnabas.printable import printable, printable_json

__all__ = ["CommandFailed", "notice", "print_json", "size_text", "table", "time_text"]


class CommandFailed(BarnabasError):
    """The operation failed and one line says why; an empty line if everything was said already. Exit code 1."""


def notice(text: str) -> None:
    """A line on standard error. One that cannot be written is dropped: it must not end what it reports on."""
    try:
        print(printable(text), file=sys.stderr, flush=True)
    except OSError:
        redirect_to_null(sys.stderr)


def print_json(value: Any, *, compact: bool = False) -> None:
    """One JSON document on standard output: indented, or on one line."""
    import json

    text = json.dumps(value, indent=None if compact else 2, default=str, ensure_ascii=False)
    sys.stdout.write(printable_json(text) + "\n")


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns two blanks apart; those that hold only numbers are aligned to the right. What is not printable in a cell
    is escaped."""
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


def size_text(size: float) -> str:
    """`1.5 MB`; decimal units, as in everything that is measured per second here."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
