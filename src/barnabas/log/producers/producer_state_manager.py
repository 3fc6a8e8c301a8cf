"""The state of a log's idempotent and transactional producers: their last batches, and open transactions.

A retried batch is recognised by its sequence numbers among the last five of its producer and answered with the offsets
it got the first time; a gap is refused. The state follows from the batches in the log; snapshots in Kafka's format,
written at a roll, at a clean shutdown and every few megabytes, shorten the replay.

Any producer id is taken, as in Kafka: the log may be older than the cluster's registry, and a client keeps the id that
it has even where that is refused. So the number of producers is bounded: see PRODUCERS_MAX and ALL_PRODUCERS_MAX.

Where we differ from Kafka: beyond 10,000 idempotent producers of a partition, or 100,000 of all partitions of a broker,
those that wrote longest ago are forgotten, as if they had expired; Kafka keeps any number.
"""

import contextlib
import logging
import os
from collections import OrderedDict
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from barnabas.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from barnabas.log.producers.producer_snapshot import (
    SNAPSHOT_SUFFIX,
    CorruptSnapshot,
    SnapshotEntry,
    read_snapshot,
    snapshot_offsets,
    write_snapshot,
)
from barnabas.log.producers.verification_guards import Sender, VerificationGuard, VerificationGuards
from barnabas.records.batch import SEQUENCE_MAX, BatchHeader
from barnabas.types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_SEQUENCE, Offset, ProducerId, TopicPartition

__all__ = [
    "ALL_PRODUCERS_MAX",
    "CACHED_BATCHES",
    "DEFAULT_PRODUCER_EXPIRATION_MS",
    "PRODUCERS_MAX",
    "CachedBatch",
    "CompletedTransaction",
    "EndMarker",
    "ProducerEntry",
    "ProducerStateManager",
    "fair_share",
]

DEFAULT_PRODUCER_EXPIRATION_MS: Final = 86_400_000
"""Kafka's producer.id.expiration.ms."""
CACHED_BATCHES: Final = 5
"""The number of batches that an idempotent producer may have in flight."""
RAISED_EPOCH_FROM: Final = 2
"""The transaction version from which a marker has a higher epoch than the records of its transaction."""
PRODUCER_EPOCH_MAX: Final = 0x7FFF
PRODUCERS_MAX: Final = 10_000
"""The bound on the producers of one log. Above it, those that wrote longest ago are removed. A snapshot, which is
written on the event loop, takes 2 µs for each."""
ALL_PRODUCERS_MAX: Final = 100_000
"""The bound on the producers of all logs of a broker. A producer takes 600 bytes of memory with one batch, 1,600 with
five."""
_LOOKS_MAX: Final = 100
"""The number of producers with open transactions that are skipped in search of one that can be removed."""

_log = logging.getLogger(__name__)


class CachedBatch(NamedTuple):
    """One of a producer's last batches."""

    first_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    timestamp: int


class EndMarker(NamedTuple):
    """The control record that ends a transaction."""

    commit: bool
    coordinator_epoch: int


class CompletedTransaction(NamedTuple):
    """A transaction that has ended. `last_offset` is that of the marker, `last_stable_offset` that at the time of the
    marker."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    aborted: bool
    last_stable_offset: Offset


class ProducerEntry:
    """A producer with its epoch, its last batches (oldest first) and its open transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_append_ms",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: ProducerId) -> None:
        self.producer_id = producer_id
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        """The timestamp of the producer's last records."""
        self.last_append_ms = -1
        """The time of the last append by the clock of the log. The records' timestamps may be of another time."""
        self.current_txn_first_offset = NO_OFFSET
        self.batches: list[CachedBatch] = []

    @property
    def last_sequence(self) -> int:
        """The last sequence; -1 if the producer has only written markers in its epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> Offset:
        """The last offset; -1 if the producer has only written markers in its epoch."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def to_snapshot(self) -> SnapshotEntry:
        """Returns the entry for a snapshot, which has only the last of the cached batches."""
        last = self.batches[-1] if self.batches else None
        return SnapshotEntry(
            self.producer_id,
            self.producer_epoch,
            last.last_sequence if last else NO_SEQUENCE,
            last.last_offset if last else NO_OFFSET,
            last.last_offset - last.first_offset if last else 0,
            self.last_append_ms,
            self.coordinator_epoch,
            self.current_txn_first_offset,
        )

    @classmethod
    def from_snapshot(cls, stored: SnapshotEntry) -> "ProducerEntry":
        entry = cls(stored.producer_id)
        entry.producer_epoch = stored.producer_epoch
        entry.coordinator_epoch = stored.coordinator_epoch
        entry.last_timestamp = entry.last_append_ms = stored.timestamp
        entry.current_txn_first_offset = stored.current_txn_first_offset
        if stored.last_offset >= 0:
            first_sequence = (stored.last_sequence - stored.offset_delta) & SEQUENCE_MAX
            first_offset = Offset(stored.last_offset - stored.offset_delta)
            entry.batches.append(
                CachedBatch(first_sequence, stored.last_sequence, first_offset, stored.last_offset, stored.timestamp)
            )
        return entry


class ProducerStateManager:
    """The producers of one log. The state is right up to `end_offset`."""

    __slots__ = (
        "_directory",
        "_has_forgotten",
        "_ongoing",
        "_snapshots",
        "_topic_partition",
        "_unreplicated",
        "end_offset",
        "expiration_ms",
        "guards",
        "producers",
    )

    def __init__(
        self, topic_partition: TopicPartition, directory: str, expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS
    ) -> None:
        self._topic_partition = topic_partition
        self._directory = directory
        self.expiration_ms = expiration_ms
        self.producers: OrderedDict[int, ProducerEntry] = OrderedDict()
        """The producers by their ids, in the order of their last writes, the oldest first."""
        self._has_forgotten = False
        self.end_offset = Offset(0)
        self.guards = VerificationGuards()
        self._ongoing: OrderedDict[Offset, None] = OrderedDict()
        """The first offsets of open transactions, in this order."""
        self._unreplicated: list[tuple[Offset, Offset]] = []
        """A heap of (first offset, offset of the marker) of the transactions that ended above the high watermark, and
        of some that ended below."""
        self._snapshots: list[Offset] = []

    # -- checking and updating -----------------------------------------------------------------------------------------

    def find_duplicate(self, header: BatchHeader) -> CachedBatch | None:
        """Returns the batch of which this one is a retry, if it is one of the producer's last five."""
        entry = self.producers.get(header.producer_id)
        if entry is None or entry.producer_epoch != header.producer_epoch:
            return None
        first_sequence = header.base_sequence
        for batch in entry.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == header.last_sequence:
                return batch
        return None

    def check(self, header: BatchHeader, *, check_sequence: bool) -> None:
        """Checks a batch's epoch and sequence. Raises InvalidProducerEpoch, OutOfOrderSequenceNumber, InvalidTxnState.

        `check_sequence` is for clients: coordinators write offsets and markers without sequences.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return  # new, expired or deleted with its records: any sequence may come first
        if header.producer_epoch < entry.producer_epoch:
            raise self._stale(entry, header.producer_epoch)
        if check_sequence:
            self._check_sequence(entry, header)
        if entry.current_txn_first_offset >= 0 and not header.is_transactional:
            raise InvalidTxnState(
                f"Expected transactional write from producer {header.producer_id} in {self._topic_partition}"
            )

    def _stale(self, entry: ProducerEntry, epoch: int) -> InvalidProducerEpoch:
        return InvalidProducerEpoch(
            f"Epoch of producer {entry.producer_id} in {self._topic_partition} is {epoch}, "
            f"which is smaller than the last seen epoch {entry.producer_epoch}"
        )

    def has_ongoing_transaction(self, producer_id: ProducerId, epoch: int) -> bool:
        """Returns whether the producer's transaction of this epoch has records here."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset >= 0 and entry.producer_epoch == epoch

    def begin_verification(self, sender: Sender, *, starts_at_zero: bool, now_ms: int) -> VerificationGuard | None:
        """Returns the guard for the first batch of a transaction; None if the transaction has records here, so that no
        verification is needed. Raises InvalidProducerEpoch."""
        producer_id, epoch, _ = sender
        if self.has_ongoing_transaction(producer_id, epoch):
            return None
        entry = self.producers.get(producer_id)
        if entry is not None and epoch < entry.producer_epoch:
            raise self._stale(entry, epoch)
        return self.guards.begin(sender, starts_at_zero=starts_at_zero, now_ms=now_ms)

    def check_transaction(self, header: BatchHeader, guard: VerificationGuard | None, *, check_sequence: bool) -> None:
        """Checks whether a transactional batch may be written. Raises InvalidProducerEpoch, InvalidTxnState,
        OutOfOrderSequenceNumber."""
        epoch = header.producer_epoch
        if self.has_ongoing_transaction(header.producer_id, epoch):
            return
        entry = self.producers.get(header.producer_id)
        if entry is not None and epoch < entry.producer_epoch:
            raise self._stale(entry, epoch)
        if guard is None or not self.guards.holds(header.producer_id, guard):
            raise InvalidTxnState(
                f"Record of producer {header.producer_id} for {self._topic_partition} was not part of an ongoing "
                "transaction"
            )
        if check_sequence:
            guard.check_sequence(header, known=entry is not None and bool(entry.batches))

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader) -> None:
        first_sequence, current = header.base_sequence, entry.producer_epoch
        if header.producer_epoch != current:
            if first_sequence and current != NO_PRODUCER_EPOCH:
                raise OutOfOrderSequenceNumber(
                    f"Invalid sequence number for new epoch of producer {header.producer_id} in "
                    f"{self._topic_partition}: {header.producer_epoch} (request epoch), "
                    f"{first_sequence} (seq. number), {current} (current epoch)"
                )
            return
        last_sequence = entry.last_sequence
        if first_sequence != last_sequence + 1 and not (first_sequence == 0 and last_sequence == SEQUENCE_MAX):
            raise OutOfOrderSequenceNumber(
                f"Out of order sequence number for producer {header.producer_id} in {self._topic_partition}: "
                f"{first_sequence} (incoming seq. number), {last_sequence} (current end sequence number)"
            )

    def _entry_to_change(self, producer_id: ProducerId) -> ProducerEntry:
        """Returns the producer's entry, a new one if there is none, and moves it to the end of the order."""
        producers = self.producers
        entry = producers.get(producer_id)
        if entry is not None:
            producers.move_to_end(producer_id)
            return entry
        if len(producers) >= PRODUCERS_MAX:
            self.forget_oldest(PRODUCERS_MAX - 1)
        entry = producers[producer_id] = ProducerEntry(producer_id)
        return entry

    def update(self, header: BatchHeader, base_offset: Offset, append_ms: int) -> None:
        """Adds a data batch that was written at `base_offset`, at the time `append_ms`."""
        entry = self._entry_to_change(header.producer_id)
        if header.producer_epoch != entry.producer_epoch:
            entry.producer_epoch = header.producer_epoch
            entry.batches.clear()
        last_offset: Offset = base_offset + header.last_offset_delta  # type: ignore[assignment]
        batches = entry.batches
        batches.append(
            CachedBatch(header.base_sequence, header.last_sequence, base_offset, last_offset, header.max_timestamp)
        )
        if len(batches) > CACHED_BATCHES:
            del batches[0]
        entry.last_timestamp = header.max_timestamp
        entry.last_append_ms = append_ms
        if header.is_transactional:
            self.guards.end(header.producer_id)
            if entry.current_txn_first_offset < 0:
                entry.current_txn_first_offset = base_offset
                self._ongoing[base_offset] = None
        self.end_offset = last_offset + 1  # type: ignore[assignment]

    def check_marker(self, header: BatchHeader, marker: EndMarker, transaction_version: int) -> None:
        """Checks an end marker. Raises InvalidProducerEpoch, TransactionCoordinatorFenced.

        From transaction version 2 on (KIP-890) the coordinator raises the epoch for each marker, so one in the epoch of
        the records is late. A marker that ends nothing is accepted: the coordinator repeats it if the response was
        lost. So is one in the highest epoch, which cannot be raised.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        epoch, current = header.producer_epoch, entry.producer_epoch
        again = epoch == current and (
            transaction_version < RAISED_EPOCH_FROM or entry.current_txn_first_offset < 0 or epoch == PRODUCER_EPOCH_MAX
        )
        if epoch <= current and not again:
            raise InvalidProducerEpoch(
                f"Epoch of the marker of producer {header.producer_id} in {self._topic_partition} is {epoch}: it comes "
                f"too late after the last seen epoch {current} (transaction version {transaction_version})"
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"Invalid coordinator epoch for producer {header.producer_id} in {self._topic_partition}: "
                f"{marker.coordinator_epoch} (zombie), {entry.coordinator_epoch} (current)"
            )

    def end_transaction(
        self,
        header: BatchHeader,
        offset: Offset,
        marker: EndMarker,
        append_ms: int,
        transaction_version: int = 0,
    ) -> CompletedTransaction | None:
        """Applies a marker that was written at `offset`, at the time `append_ms`. Returns the transaction that it ends;
        None if the producer had none here. Only the leader knows the `transaction_version`."""
        entry = self._entry_to_change(header.producer_id)
        if header.producer_epoch != entry.producer_epoch:
            entry.producer_epoch = header.producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        entry.last_append_ms = append_ms
        self.end_offset = Offset(offset + 1)
        if transaction_version >= RAISED_EPOCH_FROM and header.producer_epoch < PRODUCER_EPOCH_MAX:
            self.guards.end_before(header.producer_id, header.producer_epoch)
        else:
            self.guards.end(header.producer_id)
        first_offset, entry.current_txn_first_offset = entry.current_txn_first_offset, NO_OFFSET
        if first_offset < 0:
            return None
        self._ongoing.pop(first_offset, None)
        heappush(self._unreplicated, (first_offset, offset))
        last_stable_offset = next(iter(self._ongoing), self.end_offset)
        return CompletedTransaction(header.producer_id, first_offset, offset, not marker.commit, last_stable_offset)

    # -- transactions --------------------------------------------------------------------------------------------------

    @property
    def has_transactions(self) -> bool:
        """Whether a transaction may keep the last stable offset below the high watermark."""
        return bool(self._ongoing or self._unreplicated)

    def first_unstable_offset(self, high_watermark: Offset) -> Offset | None:
        """Returns the first offset of the first transaction that is open, or complete above the high watermark only."""
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0][1] < high_watermark:
            heappop(unreplicated)
        undecided = next(iter(self._ongoing), None)
        if not unreplicated:
            return undecided
        first_offset = unreplicated[0][0]
        return first_offset if undecided is None else min(first_offset, undecided)

    # -- ends of the log -----------------------------------------------------------------------------------------------

    def remove_expired(self, now_ms: int) -> int:
        """Removes producers that have written nothing for producer.id.expiration.ms. Returns their number."""
        oldest = now_ms - self.expiration_ms
        expired = [
            entry.producer_id
            for entry in self.producers.values()
            if entry.last_append_ms <= oldest and entry.current_txn_first_offset < 0
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        self.guards.remove_started_before(oldest)
        return len(expired)

    def forget_oldest(self, keep: int) -> None:
        """Removes the producers that wrote longest ago until `keep` are left. Those in a transaction stay."""
        producers = self.producers
        excess = len(producers) - keep
        looks = excess + _LOOKS_MAX
        while excess > 0 and looks > 0:
            producer_id, entry = next(iter(producers.items()))
            looks -= 1
            if entry.current_txn_first_offset >= 0:
                producers.move_to_end(producer_id)
                continue
            del producers[producer_id]
            excess -= 1
            if not self._has_forgotten:
                self._has_forgotten = True
                _log.warning(
                    "%s: too many producers within producer.id.expiration.ms (%d in this log): those that wrote longest"
                    " ago are forgotten, a repeat of their last batches would be stored again. Do clients make a new"
                    " producer for each record?",
                    self._topic_partition,
                    len(producers) + 1,
                )

    def clear(self, end_offset: Offset) -> None:
        """Removes all producers; the state is right up to `end_offset`. Snapshots stay."""
        self.producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self.end_offset = end_offset

    def load(self, log_start_offset: Offset, log_end_offset: Offset) -> bool:
        """Loads the newest readable snapshot at or below the log's end. Returns False if there is none.

        Snapshots outside the log are removed. The caller replays the batches from `end_offset` on.
        """
        self.clear(log_start_offset)
        self._snapshots = snapshot_offsets(self._directory)
        self.remove_snapshots_outside(log_start_offset, log_end_offset)
        while self._snapshots:
            offset = self._snapshots[-1]
            try:
                stored = read_snapshot(self.snapshot_path(offset))
            except (CorruptSnapshot, FileNotFoundError):
                self._remove_snapshot(offset)
                continue
            self.restore(stored, offset)
            return True
        return False

    def restore(self, stored: Iterable[SnapshotEntry], offset: Offset) -> None:
        """Loads the entries of a snapshot; if they are too many, those that wrote last."""
        self.clear(offset)
        for item in sorted(stored, key=lambda item: item.last_offset):
            self.producers[item.producer_id] = ProducerEntry.from_snapshot(item)
        self.forget_oldest(PRODUCERS_MAX)
        ongoing = (entry.current_txn_first_offset for entry in self.producers.values())
        self._ongoing.update(dict.fromkeys(sorted(offset for offset in ongoing if offset >= 0)))

    def refill_batches(self, headers: Iterable[BatchHeader]) -> None:
        """Completes the cached batches from headers below `end_offset`: a snapshot has only the last batch of each
        producer."""
        found: dict[ProducerId, list[CachedBatch]] = {}
        for header in headers:
            entry = self.producers.get(header.producer_id)
            if entry is None or header.is_control or header.producer_epoch != entry.producer_epoch:
                continue
            batch = CachedBatch(
                header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, header.max_timestamp
            )
            if entry.batches and batch.last_offset < entry.batches[0].last_offset:
                found.setdefault(header.producer_id, []).append(batch)
        for producer_id, batches in found.items():
            entry = self.producers[producer_id]
            entry.batches = (batches + entry.batches)[-CACHED_BATCHES:]

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def snapshot_path(self, offset: Offset) -> str:
        """Returns the path of a snapshot: its offset in twenty digits, as in Kafka."""
        return f"{self._directory}/{offset:020d}{SNAPSHOT_SUFFIX}"

    @property
    def snapshots(self) -> tuple[int, ...]:
        """Returns the offsets of the snapshots on disk, smallest first."""
        return tuple(self._snapshots)

    def take_snapshot(self, offset: Offset, keep: Iterable[Offset] = (), *, sync: bool = False) -> None:
        """Writes a snapshot at the log's end `offset`. Raises OSError.

        Older snapshots other than those at the offsets in `keep` (the segments' bases) and the one before this are
        removed.
        """
        if not self._snapshots or self._snapshots[-1] < offset:
            write_snapshot(self.snapshot_path(offset), (e.to_snapshot() for e in self.producers.values()), sync=sync)
            self._snapshots.append(offset)
        kept = {*keep, *self._snapshots[-2:]}
        for old in [snapshot for snapshot in self._snapshots if snapshot not in kept]:
            self._remove_snapshot(old)

    def replace_snapshot(self, other: "ProducerStateManager", offset: Offset) -> None:
        """Writes a snapshot of another log's producers, whose end is `offset` as well. Raises OSError."""
        for snapshot in [each for each in self._snapshots if each >= offset]:
            self._remove_snapshot(snapshot)
        write_snapshot(self.snapshot_path(offset), (entry.to_snapshot() for entry in other.producers.values()))
        self._snapshots.append(offset)

    def replace(self, other: "ProducerStateManager") -> None:
        """Goes on in place of another log's producers: some are known to that one alone, because their records are
        gone. Verifications that have begun there go on."""
        self.producers = other.producers
        self.guards = other.guards
        self.end_offset = other.end_offset
        self._has_forgotten = other._has_forgotten
        self._ongoing = other._ongoing
        self._unreplicated = other._unreplicated

    def remove_snapshots_outside(self, log_start_offset: Offset, log_end_offset: Offset) -> None:
        for offset in [s for s in self._snapshots if s > log_end_offset or s <= log_start_offset]:
            self._remove_snapshot(offset)

    def remove_all_snapshots(self) -> None:
        """Removes all snapshots, because the log was emptied."""
        for offset in list(self._snapshots):
            self._remove_snapshot(offset)

    def rename_directory(self, directory: str) -> None:
        """Uses the new name of the log's directory."""
        self._directory = directory

    def _remove_snapshot(self, offset: Offset) -> None:
        self._snapshots.remove(offset)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.snapshot_path(offset))


def fair_share(counts: Iterable[int], total: int) -> int:
    """Returns the number of producers that each log may keep, at least one, so that at most `total` are left. Large
    logs may use the share that small logs do not need."""
    left = total
    waiting = sorted(counts)
    share = total
    for position, count in enumerate(waiting):
        share = left // (len(waiting) - position)
        if count > share:
            break
        left -= count
    return max(share, 1)
