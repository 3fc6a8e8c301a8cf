"""Producers that the application has not closed: at the end of the process they send what they still have.

All of them together get EXIT_TIMEOUT_S. What is not acknowledged then is lost, and a warning says how many records
these are and why. The handlers of `atexit` run when the other threads have ended but for daemon threads, which still
run; children of `multiprocessing` call none of them, but their own.
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
        """Sends what is left, in this time at most, and warns of what was not sent."""


_open: "weakref.WeakSet[Closable]" = weakref.WeakSet()
_looked_in = 0
"""The process that was last asked whether it is a child of `multiprocessing`."""


def close_at_exit(producer: Closable) -> None:
    """Has the producer closed when the process ends, if it still exists."""
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
        import logging  # only mistakes pay for this import

        if not reason and (unreachable := client.unreachable()).attempts:
            reason = f": {unreachable}"
        records = "1 record was" if count == 1 else f"{count} records were"
        text = "%s not acknowledged %s and may be lost%s; %s"
        logging.getLogger("barnabas.producer").warning(text, records, why, reason, way_out)


def _final(batches: Iterable[ProducerBatch]) -> Iterable[ProducerBatch]:
    """The batches, or the parts that have replaced them."""
    for batch in batches:
        if batch.parts is None:
            yield batch
        else:
            yield from _final(batch.parts)
