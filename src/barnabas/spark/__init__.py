"""Spark over topics, without a jar: `spark.read.format("barnabas")` and `spark.readStream.format("barnabas")`.

Spark finds the data source by itself (`pyspark_barnabas`), under the option names of its own Kafka connector. Needs
pyspark: extra `spark`. Nothing else in Barnabas imports this package.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.spark.data_source import BarnabasDataSource
    from barnabas.spark.query_listener import BarnabasQueryListener
    from barnabas.spark.sessions import register, session, session_settings
    from barnabas.spark.sink.cluster import end_query
    from barnabas.spark.sink.generations import switch_generation

__all__ = [
    "BarnabasDataSource",
    "BarnabasQueryListener",
    "end_query",
    "register",
    "session",
    "session_settings",
    "switch_generation",
]

_MODULES = {
    "BarnabasDataSource": "data_source",
    "BarnabasQueryListener": "query_listener",
    "end_query": "sink.cluster",
    "register": "sessions",
    "session": "sessions",
    "session_settings": "sessions",
    "switch_generation": "sink.generations",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
