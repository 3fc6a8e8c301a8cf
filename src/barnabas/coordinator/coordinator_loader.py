"""Reading a partition of an internal topic into its state machine, a few milliseconds of work at a time.

The topic is compacted, so a record counts only as long as none with its key follows; where the cleaner has not been yet
that is one in thousands. So records are kept by key as they come, and only those that survive a while are decoded and
replayed. Records of transactions and their end markers keep their place among all others.
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
"""What is read in one go."""
WAITING_MAX: Final = 1000
"""Records that wait for a later one with their key; then all of them are replayed."""

R = TypeVar("R")


class CoordinatorLog(Protocol):
    """The partitions of one internal topic, as far as a coordinator needs them. Every method may raise KafkaError."""

    def append(
        self,
        partition: int,
        batch: bytes,
        leader_epoch: LeaderEpoch,
        *,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> Offset:
        """Write one v2 batch as the partition's leader; returns the log end offset behind it.

        `guard` lets the first batch of a transaction in, `transaction_version` says by which rules an end marker is
        judged.
        """

    def read(self, partition: int, offset: Offset, max_bytes: int) -> bytes:
        """Whole batches from the one that contains `offset`, at least one; b"" at the log end."""

    def log_range(self, partition: int) -> tuple[Offset, Offset]:
        """(log start offset, log end offset)."""

    def high_watermark(self, partition: int) -> Offset:
        """The offset up to which everything is committed."""

    def max_batch_bytes(self, partition: int) -> int:
        """The topic's max.message.bytes."""


class CoordinatorLoader(Generic[R]):
    """The load of one partition."""

    def __init__(
        self,
        name: str,
        partition: int,
        start_offset: Offset,
        log: CoordinatorLog,
        codec: RecordSerde[R],
        machine: CoordinatorShard[R],
        logger: logging.Logger,
    ) -> None:
        """`name` is the partition's in messages."""
        self.records = 0
        """Read so far."""
        self._name = name
        self._partition = partition
        self._offset = start_offset
        self._log = log
        self._codec = codec
        self._machine = machine
        self._logger = logger
        self._waiting: dict[bytes, Record] = {}
        self._open: set[int] = set()
        """Producers with records of a transaction that is not decided."""

    def step(self) -> bool:
        """Read on; whether the end is reached. Raises KafkaError if the log cannot be read or a batch is damaged."""
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
                overtaken = waiting.get(key)
                if overtaken is not None:
                    if overtaken.value is None and self._open:
                        # A tombstone also takes away what open transactions hold under its key.
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
            self._machine.replay_end_transaction(producer_id, kind == 1)

    def _replay_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for record in waiting.values():
            self._replay(record, NO_PRODUCER_ID)

    def _replay(self, record: Record, producer_id: ProducerId) -> None:
        assert record.key is not None
        try:
            decoded: Any = self._codec.decode(record.key, record.value)
        except CorruptMessage as error:
            # One damaged record must not take the groups of a whole partition away.
            self._logger.error("%s, offset %d is left out: %s", self._name, record.offset, error)
            return
        if decoded is not None:
            self._machine.replay(Offset(record.offset), producer_id, decoded)
