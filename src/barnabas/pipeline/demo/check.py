"""Compares the results of the pipeline with those of pandas from the original files."""

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas import Admin, Consumer
from barnabas.pipeline.demo.flights import ARCHIVE, Flight, data_file, flight_id
from barnabas.pipeline.demo.queries import LATE_MINUTES
from barnabas.pipeline.demo.topics import DELAYS, end_offsets
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import SparkSession

__all__ = ["Checks", "Results", "check_archive", "compare", "expected_delays", "read_results"]

_KEY: Final = ["carrier", "hour"]
_COLUMNS: Final = [
    *_KEY, "airline", "flights", "departed", "late", "delay_minutes", "worst", "farthest", "miles",
]  # fmt: skip
_SHOWN: Final = 5
_WAIT_S: Final = 30.0


class Results(NamedTuple):
    """The compacted topic, read to its end."""

    frame: "pandas.DataFrame"
    """The latest figures of each carrier and hour."""
    records: int
    doubled: list[str]
    """Keys that one batch has written more than once."""


class Checks(NamedTuple):
    """The number of compared figures, and a text for each difference."""

    hours: int
    problems: list[str]


def read_results(admin: Admin, settings: dict[str, object]) -> Results:
    """Reads the committed records of the topic with our own consumer."""
    import pandas

    ends = end_offsets(admin, DELAYS)
    latest: dict[str, Any] = {}
    written: Counter[tuple[str, int]] = Counter()
    with Consumer(settings, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign(ends)
        while _behind(consumer, ends):
            records = consumer.poll(_WAIT_S, 10_000)
            if not records and _behind(consumer, ends):
                return Results(pandas.DataFrame(), 0, [f"nothing more of {DELAYS} came for {_WAIT_S:g} s"])
            for record in records:
                key = (record.key or b"").decode()
                latest[key] = json.loads(record.value or b"null")
                written[key, latest[key]["batch"]] += 1
    doubled = [key for (key, _), count in written.items() if count > 1]
    frame = pandas.DataFrame(list(latest.values()), columns=_COLUMNS)
    return Results(frame, written.total(), doubled)


def _behind(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    return any(consumer.position(partition) < end for partition, end in ends.items())


def expected_delays(flights: Sequence[Flight]) -> "pandas.DataFrame":
    """Returns the same figures from the package's files, for the flights that were replayed."""
    import pandas

    columns = ["carrier", "dest", "dep_delay", "distance", "time_hour"]
    original = pandas.read_csv(data_file(ARCHIVE), usecols=columns, keep_default_na=False, na_values=["NA", ""])
    rows = original.iloc[[flight_id(flight.value) for flight in flights]]
    airlines = pandas.read_csv(data_file("airlines.csv"), keep_default_na=False).rename(columns={"name": "airline"})
    airports = pandas.read_csv(data_file("airports.csv"), keep_default_na=False)[["faa", "name"]]
    rows = rows.merge(airlines, on="carrier", how="left").merge(airports, left_on="dest", right_on="faa", how="left")
    rows["farthest"] = rows["name"].fillna(rows["dest"])
    rows["late"] = rows["dep_delay"] > LATE_MINUTES
    rows = rows.rename(columns={"time_hour": "hour", "distance": "miles"})
    groups = rows.groupby([*_KEY, "airline"], as_index=False, dropna=False)
    found = groups.agg(
        flights=("dest", "size"), departed=("dep_delay", "count"), late=("late", "sum"), worst=("dep_delay", "max")
    )
    found["delay_minutes"] = groups["dep_delay"].sum(min_count=1)["dep_delay"]
    last = rows.sort_values(["miles", "farthest"]).groupby(_KEY, as_index=False).last()
    return found.merge(last[[*_KEY, "farthest", "miles"]], on=_KEY)[_COLUMNS]


def compare(found: Results, expected: "pandas.DataFrame") -> Checks:
    """Compares every figure of every carrier and hour."""
    problems = [f"{key} was written twice by one batch" for key in found.doubled[:_SHOWN]]
    both = expected.merge(found.frame, on=_KEY, how="outer", suffixes=("", "_found"), indicator=True)
    for side, what in (("left_only", "is missing"), ("right_only", "should not be there")):
        rows = both[both["_merge"] == side]
        problems += [f"{row.carrier} {row.hour} {what}" for row in rows.head(_SHOWN).itertuples()]
        if len(rows) > _SHOWN:
            problems.append(f"{len(rows):,} carriers and hours {what}")
    there = both[both["_merge"] == "both"]
    for column in _COLUMNS[len(_KEY) :]:
        ours, theirs = there[f"{column}_found"], there[column]
        other = there[~((ours == theirs) | (ours.isna() & theirs.isna()))]
        for row in other.head(_SHOWN).to_dict("records"):
            problems.append(
                f"{row['carrier']} {row['hour']}: {column} is {row[column + '_found']}, pandas has {row[column]}"
            )
        if len(other) > _SHOWN:
            problems.append(f"{column} differs in {len(other):,} carriers and hours")
    return Checks(len(expected), problems)


def check_archive(spark: "SparkSession", path: str, flights: Sequence[Flight]) -> Checks:
    """Checks that each event is in the Parquet files, once and unchanged."""
    from pyspark.sql import functions as sql

    digest = sql.crc32(sql.concat(sql.col("key"), sql.col("value"))).alias("digest")
    rows = spark.read.parquet(path).select("partition", "offset", digest).toPandas()
    problems = []
    doubled = int(rows.duplicated(["partition", "offset"]).sum())
    if doubled:
        problems.append(f"the archive has {doubled:,} events more than once")
    wanted = Counter(zlib.crc32(flight.key + flight.value) for flight in flights)
    there = Counter(rows["digest"].tolist())
    for less, what in ((wanted - there, "lacks"), (there - wanted, "has besides")):
        if less:
            problems.append(f"the archive {what} {less.total():,} events")
    return Checks(len(rows), problems)
