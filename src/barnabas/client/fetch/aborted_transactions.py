"""Which batches of a Fetch answer belong to aborted transactions, for consumers that read committed records only."""

from collections.abc import Iterable

__all__ = ["AbortedTransactions"]


class AbortedTransactions:
    """Is shown the batches of one partition's answer in their order; says which to leave out.

    The broker's list has (producer id, first offset) of each aborted transaction in the range. A producer's records
    are left out from there up to its abort marker; a transaction of the same producer after that is another one.
    """

    __slots__ = ("_aborting", "_ahead")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._ahead = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._aborting: set[int] = set()

    def drops(self, producer_id: int, last_offset: int, *, transactional: bool) -> bool:
        """Whether a batch of records is part of an aborted transaction; control batches are to be shown as well."""
        ahead = self._ahead
        while ahead and ahead[-1][0] <= last_offset:
            self._aborting.add(ahead.pop()[1])
        return transactional and producer_id in self._aborting

    def end(self, producer_id: int) -> None:
        """The producer's abort marker was seen."""
        self._aborting.discard(producer_id)
