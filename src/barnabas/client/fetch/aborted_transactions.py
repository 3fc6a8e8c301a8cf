"""Filters the aborted transactions out of fetched records, for read_committed."""

from collections.abc import Iterable

__all__ = ["AbortedTransactions"]


class AbortedTransactions:
    """Decides which batches of a partition belong to aborted transactions, in the order of the batches.

    The broker's list has (producer id, first offset) of each aborted transaction in the range. A producer's records
    are left out from there up to its abort marker; what the producer writes after that is another transaction.
    """

    __slots__ = ("_aborting", "_ahead")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._ahead = sorted([(first, producer) for producer, first in aborted], reverse=True)
        self._aborting: set[int] = set()

    def drops(self, producer_id: int, last_offset: int, *, transactional: bool) -> bool:
        """Returns whether a batch is part of an aborted transaction. To be called for control batches too."""
        ahead = self._ahead
        while ahead and ahead[-1][0] <= last_offset:
            self._aborting.add(ahead.pop()[1])
        return transactional and producer_id in self._aborting

    def end(self, producer_id: int) -> None:
        """Takes in the producer's abort marker."""
        self._aborting.discard(producer_id)
