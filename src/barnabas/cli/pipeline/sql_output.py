"""Prints the rows of a query as a table, as CSV, or as JSON lines. Spark itself makes texts of its types."""

import csv
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from barnabas.cli.framework.output import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["print_rows"]


def print_rows(frame: "DataFrame", most: int, form: str) -> int:
    """Prints at most `most` rows, or all if that is 0. Returns the number of rows, at most one above `most`."""
    names = _unique(frame.columns)
    rows = _json_rows(frame, names, most)
    count = 0
    if form == "json":
        for count, row in enumerate(rows, 1):
            if not most or count <= most:
                sys.stdout.write(row + "\n")
        return count
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(frame.columns)
        for count, row in enumerate(rows, 1):
            if not most or count <= most:
                writer.writerow(["" if cell is None else cell for cell in _cells(row, names)])
        return count
    cells = [_cells(row, names) for row in rows]
    _print_table(frame.columns, cells[:most] if most else cells)
    return len(cells)


def _json_rows(frame: "DataFrame", names: list[str], most: int) -> Iterator[str]:
    from pyspark.sql import functions as f

    if not names:  # a statement without an answer
        return
    some = frame.toDF(*names)
    if most:
        some = some.limit(most + 1)
    columns = [_shown(f.col("`" + name.replace("`", "``") + "`"), name, some) for name in names]
    texts = some.select(f.to_json(f.struct(*columns), {"ignoreNullFields": "false"}).alias("row"))
    for row in texts.toLocalIterator():
        yield row.row


def _shown(column: Any, name: str, frame: "DataFrame") -> Any:
    """Returns a column with bytes as text where they are UTF-8, else in base64."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import BinaryType

    if not isinstance(frame.schema[name].dataType, BinaryType):
        return column
    text = column.cast("string")
    return f.when(f.is_valid_utf8(text), text).otherwise(f.base64(column)).alias(name)


def _unique(columns: list[str]) -> list[str]:
    """Returns the names, with a number for each repeated one: `count(1)`, `count(1)_2`."""
    found: list[str] = []
    for name in columns:
        number, unique = 1, name
        while unique.lower() in (other.lower() for other in found):
            number += 1
            unique = f"{name}_{number}"
        found.append(unique)
    return found


def _cells(row: str, names: list[str]) -> list[str | None]:
    document = json.loads(row, parse_float=_Number, parse_int=_Number)
    return [_text(document.get(name)) for name in names]


class _Number(str):
    """A number as Spark has written it."""

    __slots__ = ()


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return _json_of(value)


def _json_of(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {_json_of(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json_of, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _print_table(columns: list[str], rows: list[list[str | None]]) -> None:
    if not columns:
        return
    shown = [["NULL" if cell is None else cell for cell in row] for row in rows]
    if not sys.stdout.isatty():
        print(table(columns, shown))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD)
    for index, name in enumerate(columns):
        numbers = all(isinstance(row[index], _Number) for row in rows if row[index] is not None)
        drawn.add_column(Text(name), justify="right" if rows and numbers else "left")
    for row in shown:
        drawn.add_row(*map(Text, row))
    Console().print(drawn)
