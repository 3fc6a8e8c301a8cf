"""A partition of the simulated brokers: batches of leader epochs, transactions, and who may see which record."""

from barnabas.records.builder import build_batch, build_control_batch
from barnabas.records.record import Record

__all__ = ["Log"]


class Log:
    """One partition."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        """(base offset, last offset, bytes)."""
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.epochs: list[tuple[int, int]] = []
        """(epoch, first offset), of those that have records."""
        self.records: set[int] = set()
        """Offsets of records, control records not among them."""
        self.hidden: set[int] = set()
        """Those of aborted transactions."""
        self.open: dict[int, list[int]] = {}
        """Offsets of the records of open transactions, by producer."""
        self.aborted: list[tuple[int, int, int]] = []
        """(producer id, first offset, offset of the marker)."""

    def append(self, *values: bytes) -> None:
        self._add(values, producer_id=-1)

    def write(self, producer_id: int, *values: bytes) -> None:
        """In a transaction, which begins if there is none."""
        self.open.setdefault(producer_id, []).extend(range(self.end, self.end + len(values)))
        self._add(values, producer_id=producer_id)

    def _add(self, values: tuple[bytes, ...], *, producer_id: int) -> None:
        transactional = producer_id >= 0
        self.records.update(range(self.end, self.end + len(values)))
        batch = build_batch(
            [Record(0, 0, None, value) for value in values],
            base_offset=self.end,
            partition_leader_epoch=self.epoch,
            producer_id=producer_id,
            producer_epoch=0 if transactional else -1,
            base_sequence=0 if transactional else -1,
            transactional=transactional,
        )
        self._place(batch, len(values))

    def close(self, producer_id: int, *, committed: bool) -> None:
        """The end marker of a transaction."""
        offsets = self.open.pop(producer_id)
        if not committed:
            self.hidden.update(offsets)
            self.aborted.append((producer_id, offsets[0], self.end))
        marker = build_control_batch(
            committed=committed,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=0,
            base_offset=self.end,
            partition_leader_epoch=self.epoch,
        )
        self._place(marker, 1)

    def _place(self, batch: bytes, count: int) -> None:
        if not self.epochs or self.epochs[-1][0] != self.epoch:
            self.epochs.append((self.epoch, self.end))
        self.batches.append((self.end, self.end + count - 1, batch))
        self.end += count

    # --- questions --------------------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        return min((offsets[0] for offsets in self.open.values()), default=self.end)

    def visible(self, *, read_committed: bool) -> list[int]:
        """Offsets of the records that consumers get."""
        if not read_committed:
            return sorted(self.records)
        return sorted(offset for offset in self.records - self.hidden if offset < self.last_stable_offset)

    def read(self, offset: int, max_bytes: int, *, read_committed: bool = False) -> bytes:
        out = b""
        for base, last, batch in self.batches:
            if last >= offset:
                if (read_committed and base >= self.last_stable_offset) or (out and len(out) + len(batch) > max_bytes):
                    break
                out += batch
        return out

    def aborted_from(self, offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that a reader from there may meet."""
        return [(producer_id, first) for producer_id, first, marker in self.aborted if marker >= offset]

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch that is not above this one, and where it ends; -1 for none."""
        found = (-1, -1)
        for index, (known, _) in enumerate(self.epochs):
            if known <= epoch:
                following = self.epochs[index + 1 :]
                found = (known, following[0][1] if following else self.end)
        return (epoch, self.end) if epoch == self.epoch else found
