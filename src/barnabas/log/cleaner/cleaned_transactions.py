"""Tracks transactions while a cleaner walks over the batches of a log: which records were aborted, and which end
markers are no longer needed.

A marker is needed as long as a batch of its transaction is in the log: without the abort's marker the data behind it
would never be stable, without the index entry it would be read. Every transaction that the cleaner meets has ended,
because nothing above the last stable offset is cleaned.
"""

import os
from collections.abc import Iterable
from struct import Struct
from typing import Final

from barnabas.errors import CorruptMessage
from barnabas.log.indexes.transaction_index import AbortedTransaction, parse_entries
from barnabas.records.batch import BatchHeader
from barnabas.records.reader import read_records
from barnabas.types import Offset, ProducerId

__all__ = ["CleanedTransactions", "read_aborted_transactions"]

_CONTROL_KEY: Final = Struct(">hh")
_ABORT: Final = 0
_COMMIT: Final = 1


class CleanedTransactions:
    """Gets every batch of a transaction and every control batch, in the order of the log."""

    def __init__(self, aborted: Iterable[AbortedTransaction], from_offset: Offset) -> None:
        """`aborted` are the aborted transactions of the log. Those that ended below `from_offset`, where the walk
        begins, are ignored."""
        ahead = [transaction for transaction in aborted if transaction.last_offset >= from_offset]
        self._ahead = sorted(ahead, key=lambda transaction: -transaction.first_offset)
        self._aborted: dict[ProducerId, AbortedTransaction] = {}
        self._with_data: set[ProducerId] = set()
        """The producers whose open transaction has batches in the log."""
        self.kept: list[AbortedTransaction] = []
        """The aborted transactions whose markers are needed, for the index of the segment that is being written."""

    def _begin_up_to(self, offset: Offset) -> None:
        while self._ahead and self._ahead[-1].first_offset <= offset:
            transaction = self._ahead.pop()
            current = self._aborted.get(transaction.producer_id)
            if current is None or current.last_offset < transaction.first_offset:
                self._aborted[transaction.producer_id] = transaction

    def is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        self._with_data.add(header.producer_id)
        aborted = self._aborted.get(header.producer_id)
        return aborted is not None and header.base_offset < aborted.last_offset

    def is_needed(self, header: BatchHeader, batch: bytes | memoryview) -> bool:
        """Returns whether this control batch must stay. Raises CorruptMessage for an abort that is not in the
        indexes."""
        self._begin_up_to(header.last_offset)
        kind = _control_type(header, batch)
        if kind is None:
            return False  # an earlier cleaning has emptied the batch
        if kind not in (_ABORT, _COMMIT):
            return True
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        aborted = self._aborted.pop(header.producer_id, None) if kind == _ABORT else None
        if had_data and aborted is not None:
            self.kept.append(aborted)
        elif had_data and kind == _ABORT:
            # its records would count as committed, and replace committed records before them
            raise CorruptMessage(
                f"producer {header.producer_id} aborted a transaction at offset {header.base_offset}, of which no "
                ".txnindex tells: stop the broker and remove the .txnindex and .snapshot files of the partition, the "
                "next start makes them anew"
            )
        return had_data


def _control_type(header: BatchHeader, batch: bytes | memoryview) -> int | None:
    if not header.record_count:
        return None
    key = read_records(batch, check_crc=False)[0].key
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptMessage(f"the control batch at offset {header.base_offset} has no key that says its kind")
    kind: int = _CONTROL_KEY.unpack_from(key)[1]
    return kind


def read_aborted_transactions(directory: str) -> list[AbortedTransaction]:
    """Returns the aborted transactions of all segments. Entries that are being written lie above the cleaned part.

    Raises OSError, CorruptTransactionIndex.
    """
    found: list[AbortedTransaction] = []
    for name in sorted(os.listdir(directory)):
        stem, suffix = os.path.splitext(name)
        if suffix == ".txnindex" and stem.isdigit():
            path = f"{directory}/{name}"
            with open(path, "rb") as file:
                found += parse_entries(path, file.read(), torn_end=True)
    return found
