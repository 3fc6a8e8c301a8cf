"""The source files of the code that runs in a broker, for tests that read them."""

from collections.abc import Iterator
from pathlib import Path

import barnabas

__all__ = ["broker_sources"]

_PACKAGE = Path(barnabas.__file__).parent
_PARTS = (
    *("broker", "controller", "coordinator", "log", "metadata", "network", "registry", "replication"),
    *("connection/broker", "connection/drivers/aio.py"),
)


def broker_sources(*others: str) -> Iterator[tuple[str, str]]:
    """Yields the name in the package and the text of each file, and of what is below the others."""
    for place in (_PACKAGE / part for part in (*_PARTS, *others)):
        for path in (place, *place.rglob("*.py")):
            if path.suffix:
                yield str(path.relative_to(_PACKAGE)), path.read_text()
