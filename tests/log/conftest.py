"""The shared parts of the tests of the log: a clock set by hand, a disk that fails on demand, batches and logs in a
line."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.log.directories.disk import Disk, fsync_directory
from barnabas.log.log_loader import LogEnvironment, LogState, Verification, create_log, load_log
from barnabas.log.log_manager import LogManager
from barnabas.log.log_offsets import AppendInfo
from barnabas.log.producers.verification_guards import Sender, VerificationGuard
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import read_header
from barnabas.records.builder import build_batch, build_control_batch
from barnabas.records.record import Record
from barnabas.records.validation import ValidatedBatch
from barnabas.types import TopicPartition

START_MS = 1_700_000_000_000


class HandClock:
    """Time moves when a test says so."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


class FaultyDisk(Disk):
    """A disk with `room` more bytes; `fails` names calls that answer with EIO."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.fails: set[str] = set()
        self.chunk: int | None = None

    def _check(self, call: str) -> None:
        if call in self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def pwritev(self, fd, buffers, position):
        self._check("pwritev")
        data = b"".join(buffers)
        if self.chunk is not None:
            data = data[: self.chunk]
        if self.room is not None:
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[: self.room]
            self.room -= len(data)
        return os.pwrite(fd, data, position)

    def pwrite(self, fd, data, position):
        self._check("pwrite")
        if self.room is not None and not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fd, data, position)

    def ftruncate(self, fd, size):
        self._check("ftruncate")
        os.ftruncate(fd, size)

    def fdatasync(self, fd):
        self._check("fdatasync")
        os.fdatasync(fd)

    def pread(self, fd, size, position):
        self._check("pread")
        return os.pread(fd, size, position)


class Rig:
    """Makes logs in a temporary directory, and batches for them."""

    topic_partition = TopicPartition("flights", 3)

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = HandClock()
        self.disk = FaultyDisk()
        self.environment = LogEnvironment(self.clock, self.disk)
        self.config = LogConfig()

    def log(self, **settings: object) -> UnifiedLog:
        """A new log with these settings."""
        self.config = LogConfig(**settings)
        return create_log(str(self.root / "flights-3"), self.topic_partition, self.config, self.environment, None)

    def reopen(self, log: UnifiedLog, verification: Verification = Verification.NONE, **state: object) -> UnifiedLog:
        """The log as the next process finds it: `NONE` after closing it, otherwise as a crash left it."""
        if verification is Verification.NONE:
            log.close()
            fsync_directory(str(self.root))  # as the manager of the logs does
        else:
            log.release()
        return self.load(log, verification, **state)

    def load(self, log: UnifiedLog, verification: Verification, **state: object) -> UnifiedLog:
        """Open the directory of a log that is closed already."""
        fields = {
            "trusted_boot": verification is Verification.TAIL,
            "recovery_point": log.recovery_point,
            "log_start_offset": log.log_start_offset,
            "high_watermark": log.high_watermark,
        }
        self.environment = LogEnvironment(self.clock, self.disk)
        return load_log(
            log.directory,
            self.topic_partition,
            self.config,
            self.environment,
            LogState(verification, **(fields | state)),
        )

    def batch(
        self, count: int = 1, *, size: int = 10, timestamp: int | None = None, **options: object
    ) -> ValidatedBatch:
        """A batch as validation hands it on; every record has the same timestamp unless it is given as a list."""
        now = self.clock.now_ms if timestamp is None else timestamp
        return self.batch_of([Record(0, now, b"k", b"v" * size) for _ in range(count)], **options)

    def batch_of(self, records: list[Record], **options: object) -> ValidatedBatch:
        """A batch of these records."""
        data = build_batch(records, **options)
        header = read_header(data)
        return ValidatedBatch(header, data, header.max_timestamp, len(records) - 1, len(records))

    def marker(
        self, producer_id: int, *, committed: bool, producer_epoch: int = 0, coordinator_epoch: int = 1
    ) -> ValidatedBatch:
        """The end of a transaction."""
        data = build_control_batch(
            committed=committed,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=self.clock.now_ms,
        )
        header = read_header(data)
        return ValidatedBatch(header, data, header.max_timestamp, 0, 1)

    def append(self, log: UnifiedLog, count: int = 1, *, epoch: int = 0, **options: object) -> AppendInfo:
        """Append a batch and let all replicas have it."""
        batch = self.batch(count, **options)
        info = log.append_as_leader(batch, epoch, guard=self.guard(log, batch))
        log.update_high_watermark(log.log_end_offset)
        return info

    def guard(
        self, log: UnifiedLog, batch: ValidatedBatch, *, starts_at_zero: bool = False
    ) -> VerificationGuard | None:
        """Returns the guard for a transactional batch, as if its coordinator had been asked."""
        if not batch.header.is_transactional:
            return None
        return log.begin_verification(Sender.of(batch.header), starts_at_zero=starts_at_zero)

    def send(
        self, log: UnifiedLog, producer_id: int, sequence: int, count: int = 1, *, producer_epoch: int = 0
    ) -> AppendInfo:
        """Append a batch of an idempotent producer."""
        options = {"producer_id": producer_id, "producer_epoch": producer_epoch, "base_sequence": sequence}
        return self.append(log, count, **options)

    def send_old(self, log: UnifiedLog, sequence: int) -> AppendInfo:
        """Append a batch of a backfill by producer 7: its records are of last week."""
        stamp = self.clock.now_ms - 7 * 86_400_000
        return self.append(log, timestamp=stamp, producer_id=7, producer_epoch=0, base_sequence=sequence)

    def manager(self, name: str = "data", **options: object) -> LogManager:
        """A manager of one data directory; not started."""
        return LogManager([self.root / name], self.clock, **({"boot_id": "boot-1", "disk": self.disk} | options))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture
def offsets_in() -> Callable[[bytes], list[int]]:
    """The base offsets of the whole batches in some bytes."""

    def offsets(data: bytes) -> list[int]:
        found, position = [], 0
        while position + 61 <= len(data):
            header = read_header(data, position)
            if position + header.size_bytes > len(data):
                break
            found.append(header.base_offset)
            position += header.size_bytes
        return found

    return offsets
