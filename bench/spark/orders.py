"""The parameters that `bench.spark.comparison` passes to a process that measures one Spark session."""

from typing import NamedTuple

SESSIONS = ("plain", "tuned")
READY = "ready"
"""The format of `bench.spark.ready`."""


class Orders(NamedTuple):
    """The parameters of one session's measurements."""

    address: str
    session: str
    formats: list[str]
    rows: list[str]
    rounds: int
    records: int
    lag_gb: float
    jars: list[str]
    directory: str
