"""What is said, and done, when offsets that a query wanted are not there."""

import logging
from collections.abc import Sequence
from typing import Final

from barnabas.errors import BarnabasError
from barnabas.spark.planning import OffsetRange

__all__ = ["DataLoss", "lost", "lost_for"]

_log = logging.getLogger("barnabas.spark")

_SHOWN_MAX: Final = 20


class DataLoss(BarnabasError):
    """Offsets that a query wanted are gone, and it is not to go on without them."""


def lost(on_data_loss: str, gone: Sequence[OffsetRange], why: str) -> None:
    """Tell of these offsets. Raises DataLoss unless the query is to go on."""
    which = "; ".join(map(str, gone[:_SHOWN_MAX])) + (" and more" if len(gone) > _SHOWN_MAX else "")
    lost_for(on_data_loss, f"{sum(each.size for each in gone)} offsets are lost ({which}): {why}")


def lost_for(on_data_loss: str, what: str) -> None:
    """The same for what cannot be counted."""
    if on_data_loss == "fail":
        raise DataLoss(
            f"{what}. To go on without them set option onDataLoss=warn; to read from elsewhere begin with a new"
            " checkpoint and startingOffsets"
        )
    _log.log(logging.WARNING if on_data_loss == "warn" else logging.INFO, "%s; they are left out", what)
