"""The lines of compiled modules in tracebacks.

Code that mypyc has compiled names its file as the compiler saw it, `src/barnabas/...`, which exists in a checkout only.
Python then asks the module's loader, which has no source. Entries in `linecache` go before that.
"""

import linecache
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

__all__ = ["show_source"]

_PACKAGE: Final = Path(__file__).parents[2]
_COMPILED_IN: Final = (
    "broker",
    "broker/cluster",
    "broker/handlers/peers",
    "broker/handlers/records",
    "broker/peers",
    "broker/requests",
    "log",
    "log/producers",
    "network",
    "records",
    "replication",
    "records/compiled",
    "protocol",
    "connection",
    "connection/broker",
    "connection/drivers",
    "client/consumer",
    "client/fetch",
    "client/producer",
    "client/producer/drivers",
)
"""The folders that have compiled modules."""


def show_source() -> None:
    """Registers the source of each compiled module. A file is read when a traceback shows it."""
    cache: dict[str, Any] = linecache.cache  # a tuple of a getter alone is a lazy entry of linecache
    for folder in _COMPILED_IN:
        for entry in os.scandir(_PACKAGE / folder):
            if entry.name.endswith(".so"):
                source = f"{entry.name.partition('.')[0]}.py"
                cache.setdefault(f"src/barnabas/{folder}/{source}", (_getter(_PACKAGE / folder / source),))


def _getter(path: Path) -> Callable[[], str]:
    return partial(path.read_text, encoding="utf-8")
