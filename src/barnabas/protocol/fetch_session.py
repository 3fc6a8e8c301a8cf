"""The epochs of incremental fetch sessions, as both sides count them (KIP-227)."""

from typing import Final

__all__ = ["FINAL_EPOCH", "INITIAL_EPOCH", "NO_SESSION", "next_epoch"]

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
"""The epoch of a full request, which begins a session."""
FINAL_EPOCH: Final = -1
"""The epoch of a full request without a session."""
_EPOCH_MAX: Final = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """Returns the epoch of the request that follows one within a session."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1
