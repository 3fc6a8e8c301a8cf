"""The attempts of a start while the registry is not reached."""

import logging
import time
from typing import Final

from barnabas.errors import NotYet
from barnabas.registry.registry import RegistryUnreachable

__all__ = ["StartAttempts"]

AGAIN_S: Final = 0.1
"""The pause before a start begins anew."""

_log = logging.getLogger("barnabas.broker")


class StartAttempts:
    """Used by whoever starts a broker, around the attempts."""

    def __init__(self) -> None:
        self._until: float | None = None

    def pause(self, error: RegistryUnreachable, longest_s: float) -> None:
        """Returns when the start may begin anew. Raises NotYet if the first attempt has failed so long ago."""
        self._until = self._until or time.monotonic() + longest_s
        if time.monotonic() >= self._until:
            raise NotYet(f"zookeeper.connect: {error}; start again when it is there") from None
        _log.warning("%s; the start begins anew", error)
        time.sleep(AGAIN_S)
