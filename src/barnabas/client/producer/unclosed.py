"""Closes, at the end of the process, the producers that the application has not closed.

All of them together get EXIT_TIMEOUT_S to send their records. Records that are not acknowledged then are lost, and a
warning gives their number and the reason. The handlers of `atexit` run when all threads but daemon threads have ended.
Children of `multiprocessing` do not call these handlers, but have finalizers of their own.
"""

import atexit
import os
import sys
import time
import weakref
from collections.abc import Iterable
from typing import Final, Protocol

from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.connection.network_client import NetworkClient
from barnabas.errors import ClientClosed

__all__ = ["close_at_exit", "warn_of_lost"]

EXIT_TIMEOUT_S: Final = 5.0


class Closable(Protocol):
    """A producer of either kind."""

    def _close_at_exit(self, timeout_s: float) -> None:
        """Sends the remaining records for `timeout_s` at most, and warns of those that were not sent."""


_open: "weakref.WeakSet[Closable]" = weakref.WeakSet()
_looked_in = 0
"""The id of the last process in which `close_at_exit` looked whether it is a child of `multiprocessing`."""


def close_at_exit(producer: Closable) -> None:
    """Registers the producer to be closed when the process ends, if it still exists then."""
    global _looked_in
    _open.add(producer)
    if _looked_in != os.getpid():
        _looked_in = os.getpid()
        processes = sys.modules.get("multiprocessing")
        if processes is not None and processes.parent_process() is not None:
            from multiprocessing.util import Finalize

            Finalize(None, _close_all, exitpriority=0)


def _close_all() -> None:
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    for producer in list(_open):
        producer._close_at_exit(max(deadline - time.monotonic(), 0.0))


atexit.register(_close_all)


def warn_of_lost(batches: Iterable[ProducerBatch], client: NetworkClient, why: str, way_out: str) -> None:
    """Warns of the records of these batches that were not acknowledged, if there are any."""
    count = 0
    reason = ""
    for batch in _final(batches):
        if not batch.done or batch.error is not None:
            count += int(batch.count)
            if batch.error is not None and not isinstance(batch.error, ClientClosed):
                reason = f": {batch.error}"
    if count:
        import logging  # imported only after a mistake

        if not reason and (unreachable := client.unreachable()).attempts:
            reason = f": {unreachable}"
        records = "1 record was" if count == 1 else f"{count} records were"
        text = "%s not acknowledged %s and may be lost%s; %s"
        logging.getLogger("barnabas.producer").warning(text, records, why, reason, way_out)


def _final(batches: Iterable[ProducerBatch]) -> Iterable[ProducerBatch]:
    """Yields the batches, or the parts that have replaced them."""
    for batch in batches:
        if batch.parts is None:
            yield batch
        else:
            yield from _final(batch.parts)
