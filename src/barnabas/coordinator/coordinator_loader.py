"""Loads a partition of an internal topic into its shard, a few milliseconds of work at a time.

The topic is compacted, so only the last record of a key counts. In a part that is not cleaned yet, that is one record
in thousands. The loader therefore keeps records by key, and decodes and replays only those without a later one among
the next records. Records of transactions and their end markers are replayed in the order of the log.
"""

import logging
from typing import Any, Final, Generic, Protocol, TypeVar

from barnabas.coordinator.coordinator_shard import CoordinatorShard, RecordSerde
from barnabas.errors import CorruptMessage
from barnabas.log.producers.verification_guards import VerificationGuard
from barnabas.records.batch import BatchHeader, iter_batches
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from barnabas.types import NO_PRODUCER_ID, LeaderEpoch, Offset, ProducerId

__all__ = ["CoordinatorLoader", "CoordinatorLog"]

CHUNK_BYTES: Final = 128 * 1024
"""The size of one read."""
WAITING_MAX: Final = 1000
"""The number of records that are kept by key before all of them are replayed."""

R = TypeVar("R")


class CoordinatorLog(Protocol):
    """A coordinator's access to the partitions of its internal topic. Every method may raise KafkaError."""

    def append(
        self,
        partition: int,
        batch: bytes,
        leader_epoch: LeaderEpoch,
        *,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> Offset:
        """Appends one v2 batch as the partition's leader. Returns the log end offset after it.

        The first batch of a transaction needs a `guard`. `transaction_version` selects the rules by which an end marker
        is checked.
        """

    def read(self, partition: int, offset: Offset, max_bytes: int) -> bytes:
        """Returns whole batches from the one that contains `offset` on, at least one; b"" at the log end."""

    def log_range(self, partition: int) -> tuple[Offset, Offset]:
        """Returns the log start offset and the log end offset."""

    def high_watermark(self, partition: int) -> Offset:
        """Returns the high watermark."""

    def max_batch_bytes(self, partition: int) -> int:
        """Returns the topic's max.message.bytes."""


class CoordinatorLoader(Generic[R]):
    def __init__(
        self,
        name: str,
        partition: int,
        start_offset: Offset,
        log: CoordinatorLog,
        serde: RecordSerde[R],
        shard: CoordinatorShard[R],
        logger: logging.Logger,
    ) -> None:
        self.records = 0
        """The number of records that have been read."""
        self._name = name
        self._partition = partition
        self._offset = start_offset
        self._log = log
        self._serde = serde
        self._shard = shard
        self._logger = logger
        self._waiting: dict[bytes, Record] = {}
        self._open: set[int] = set()
        """The producers with an open transaction."""

    def step(self) -> bool:
        """Reads the next chunk. Returns whether the end is reached. Raises KafkaError."""
        start = self._offset
        for header, batch in iter_batches(self._log.read(self._partition, start, CHUNK_BYTES)):
            if header.last_offset >= self._offset:
                self._read(header, batch)
                self._offset = header.next_offset
        if self._offset > start and self._offset < self._log.log_range(self._partition)[1]:
            return False
        self._replay_waiting()
        return True

    def _read(self, header: BatchHeader, batch: memoryview) -> None:
        plain = not (header.is_transactional or header.is_control)
        if not plain:
            self._replay_waiting()
            if not header.is_control:
                self._open.add(header.producer_id)
        waiting = self._waiting
        for record in read_records(batch):
            key = record.key
            if record.offset < self._offset or key is None:
                continue
            self.records += 1
            if header.is_control:
                self._end_transaction(header.producer_id, key)
            elif not plain:
                self._replay(record, header.producer_id)
            else:
                replaced = waiting.get(key)
                if replaced is not None:
                    if replaced.value is None and self._open:
                        # A tombstone also removes the pending records of open transactions with its key.
                        self._replay_waiting()
                        waiting = self._waiting
                    else:
                        del waiting[key]
                waiting[key] = record
        if len(waiting) >= WAITING_MAX:
            self._replay_waiting()

    def _end_transaction(self, producer_id: ProducerId, key: bytes) -> None:
        kind = int.from_bytes(key[2:4], "big")
        self._open.discard(producer_id)
        if kind in (0, 1):
            self._shard.replay_end_transaction(producer_id, kind == 1)

    def _replay_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for record in waiting.values():
            self._replay(record, NO_PRODUCER_ID)

    def _replay(self, record: Record, producer_id: ProducerId) -> None:
        assert record.key is not None
        try:
            decoded: Any = self._serde.decode(record.key, record.value)
        except CorruptMessage as error:
            # One damaged record must not make all groups of the partition unavailable.
            self._logger.error("%s, offset %d is left out: %s", self._name, record.offset, error)
            return
        if decoded is not None:
            self._shard.replay(Offset(record.offset), producer_id, decoded)
