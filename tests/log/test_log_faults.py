"""Every call that a log makes to the file system fails once, in each way in which it can.

A script of clients, of the broker's periodic work and of restarts runs with one fault after the other. Clients repeat
what failed, as librdkafka and the Java client do, also across restarts. In the end nothing that was acknowledged may be
missing or there twice, nothing that was aborted may be seen by read_committed: whether the process was killed, or the
machine went down.
"""

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaStorageError, UsageError
from barnabas.log.log_manager import LogManager
from barnabas.log.producers.verification_guards import Sender
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import iter_batches, read_header
from barnabas.records.builder import build_batch, build_control_batch
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from barnabas.records.validation import ValidatedBatch
from barnabas.types import TopicPartition
from faulty_filesystem import ENDINGS, FaultyFileSystem, directory_in_memory, faults_at, silenced

TP = TopicPartition("flights", 0)
DAY_MS = 86_400_000
CONFIG = LogConfig(
    segment_bytes=500, index_interval_bytes=0, retention_ms=-1, file_delete_delay_ms=0, segment_ms=10 * DAY_MS
)
TRIES = 2
"""So often a client sends a batch before it waits for a better time."""


@pytest.fixture
def root() -> Iterator[Path]:
    with directory_in_memory() as path:
        yield path


@pytest.fixture
def quiet() -> Iterator[None]:
    with silenced("barnabas.log"):
        yield


class StoppedClock:
    def __init__(self) -> None:
        self.now_ms = time.time_ns() // 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


class Sent(NamedTuple):
    """A batch of one record, or the end of a transaction."""

    value: bytes
    batch: ValidatedBatch


class Producer:
    """Sends in order, and again until it is acknowledged."""

    def __init__(self, script: "Script", producer_id: int, *, transactional: bool = False) -> None:
        self.script = script
        self.producer_id = producer_id
        self.transactional = transactional
        self.sequence = 0
        self.waiting: list[Sent] = []
        self.open: list[bytes] = []
        """Of the transaction."""
        self.last: tuple[Sent, int] | None = None

    def send(self, name: str) -> None:
        value = f"{self.producer_id}:{name}".encode()
        # a backfill: the records are of last week
        record = Record(0, self.script.clock.now_ms - 7 * DAY_MS, None, value)
        data = build_batch(
            [record],
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequence,
            transactional=self.transactional,
        )
        self.sequence += 1
        if self.transactional:
            self.open.append(value)
        self._put(value, data)

    def end(self, *, commit: bool) -> None:
        data = build_control_batch(
            committed=commit, producer_id=self.producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1
        )
        (self.script.committed if commit else self.script.aborted).update(self.open)
        self.open = []
        self._put(b"", data)

    def _put(self, value: bytes, data: bytes) -> None:
        header = read_header(data)
        self.script.sent.add(value)
        self.waiting.append(Sent(value, ValidatedBatch(header, data, header.max_timestamp, 0, 1)))
        self.drain()

    def drain(self) -> None:
        while self.waiting:
            sent = self.waiting[0]
            offset = self.script.append(sent.batch)
            if offset is None:
                return
            del self.waiting[0]
            if sent.value:
                self.script.acknowledged[sent.value] = offset
                self.last = sent, offset


class Script:
    """Runs one log through three lives of its broker."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.fs = FaultyFileSystem(root)
        self.clock = StoppedClock()
        self.boot = "boot-1"
        self.sent: set[bytes] = set()
        self.acknowledged: dict[bytes, int] = {}
        self.promised: dict[bytes, int] = {}
        """The records that a flush or a clean shutdown has brought to the device."""
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.plain = Producer(self, -1)
        self.idempotent = Producer(self, 7)
        self.first, self.second = Producer(self, 8, transactional=True), Producer(self, 9, transactional=True)
        self.producers = (self.idempotent, self.first, self.second)
        self.manager: LogManager | None = None

    @property
    def log(self) -> UnifiedLog:
        assert self.manager is not None
        return self.manager.logs[TP]

    # -- what clients do -----------------------------------------------------------------------------------------------

    def append(self, batch: ValidatedBatch) -> int | None:
        """The batch's offset, or None if it was refused as often as a client tries."""
        header = batch.header
        origin = "coordinator" if header.is_control else "client"
        for _ in range(TRIES):
            log = self.log_if_any()
            if log is None:
                return None
            guard = None
            if header.is_transactional and not header.is_control:
                guard = log.begin_verification(Sender.of(header), starts_at_zero=False)
            with contextlib.suppress(KafkaStorageError):
                info = log.append_as_leader(batch, 0, origin=origin, guard=guard)
                log.update_high_watermark(log.log_end_offset)
                return info.first_offset
        return None

    def log_if_any(self) -> UnifiedLog | None:
        """Made as the broker makes the logs that a disk refused: again and again."""
        assert self.manager is not None
        log = self.manager.logs.get(TP)
        if log is None:
            with contextlib.suppress(KafkaStorageError):
                log = self.manager.create(TP, None, CONFIG)
        return log

    # -- what the broker does ------------------------------------------------------------------------------------------

    def start(self) -> None:
        for attempt in range(2):
            self.manager = LogManager([self.root], self.clock, boot_id=self.boot, open_files_max=3)
            try:
                self.manager.startup(lambda _: CONFIG, node_id=1)
                return
            except (UsageError, KafkaStorageError):
                assert not attempt, "the disk works again, but the broker does not start"
                self.fs.fault = None
        raise AssertionError

    def flush(self) -> None:
        assert self.manager is not None
        with contextlib.suppress(KafkaStorageError):
            self.manager.flush_dirty_logs(self.clock.now_ms)
        self.note_promises()

    def flush_all(self) -> None:
        if (log := self.log_if_any()) is not None:
            with contextlib.suppress(KafkaStorageError):
                log.flush()
            self.note_promises()

    def note_promises(self) -> None:
        """The checkpoint declares all records below the recovery point to be on the device."""
        with contextlib.suppress(OSError):
            self.manager.checkpoint_recovery_points()
            log = self.log_if_any()
            if log is not None:
                self.promised |= {v: o for v, o in self.acknowledged.items() if o < log.recovery_point}

    def checkpoint(self) -> None:
        with contextlib.suppress(OSError):
            self.manager.checkpoint_log_start_offsets()
        with contextlib.suppress(OSError):
            self.manager.checkpoint_high_watermarks()

    def retention(self) -> None:
        if (log := self.log_if_any()) is None or len(log.segments) < 2:
            return
        log.delete_records(min(log.segments[1].base_offset, log.high_watermark))
        self.manager.cleanup_logs(self.clock.now_ms)
        self.manager.remove_deleted(self.clock.now_ms)

    def cut(self) -> None:
        """The last record, of nobody's transaction, goes."""
        log = self.log_if_any()
        if log is None:
            return
        self.plain.send("cut")
        offset = self.acknowledged.pop(b"-1:cut", None)
        self.promised.pop(b"-1:cut", None)
        with contextlib.suppress(KafkaStorageError):
            if offset is not None:
                log.truncate_to(offset)
        self.plain.waiting.clear()
        self.plain.sequence = 0

    def stop(self) -> None:
        with contextlib.suppress(KafkaStorageError):
            log = self.log_if_any()
            self.manager.shutdown()
            if log is not None:
                assert log.offline_reason is None, "a log that is offline was marked as closed cleanly"
            self.promised |= self.acknowledged

    def kill(self) -> None:
        for log in self.manager.logs.values():
            log.release()
        for directory in self.manager.directories:
            directory.unlock()

    # -- the script ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.first_life()
        self.second_life()
        self.third_life()

    def first_life(self) -> None:
        self.start()
        self.log_if_any()
        for number in range(2):
            self.idempotent.send(f"a{number}")
        self.first.send("aborted-1")
        self.second.send("committed-1")
        self.first.end(commit=False)
        if (log := self.log_if_any()) is not None:
            log.take_snapshot()
        self.second.end(commit=True)
        self.flush_all()
        self.first.send("aborted-2")
        self.first.end(commit=False)
        for number in range(3):
            self.idempotent.send(f"b{number}" + "x" * 100)
        self.flush()
        self.cut()
        self.checkpoint()
        self.second.send("aborted-3")
        self.first.send("aborted-5")
        self.first.end(commit=False)
        self.stop()

    def second_life(self) -> None:
        self.start()
        self.second.end(commit=False)
        self.first.send("committed-2")
        self.idempotent.send("c" + "x" * 100)
        self.manager.expire_producers(self.clock.now_ms)
        self.first.end(commit=True)
        self.retention()
        self.kill()

    def third_life(self) -> None:
        self.start()
        self.second.send("aborted-4")
        self.second.end(commit=False)
        self.idempotent.send("d")
        self.flush_all()

    # -- what must be --------------------------------------------------------------------------------------------------

    def check_killed(self) -> None:
        self.kill()
        self.fs.fault = None
        self.start()
        self.check(self.acknowledged)
        if self.idempotent.last is not None and self.idempotent.last[1] >= self.log.log_start_offset:
            sent, offset = self.idempotent.last
            assert self.append(sent.batch) == offset, f"{sent.value!r} was stored twice"
        for producer in self.producers:
            producer.drain()
            assert not producer.waiting, "the disk works again, but the log takes no writes"
        self.check(self.acknowledged)
        visible = self.read(committed=True)
        if not any(producer.open for producer in self.producers):
            start = self.log.log_start_offset
            assert {value for value in self.committed if self.acknowledged[value] >= start} <= set(visible)
        self.manager.shutdown()

    def check_powerless(self, *, names_last: bool) -> None:
        self.kill()
        self.fs.fault = None
        self.boot = "boot-2"
        self.fs.lose_power(names_last=names_last)
        self.start()
        if TP in self.manager.logs:
            self.check(self.promised)
            self.idempotent_goes_on()
            self.check(self.promised)
        else:
            assert not self.promised
        self.manager.shutdown()

    def idempotent_goes_on(self) -> None:
        Producer(self, 70).send("e")

    def check(self, expected: dict[bytes, int]) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)
        found = self.read(committed=False)
        start = self.log.log_start_offset
        missing = {value: offset for value, offset in expected.items() if offset >= start and value not in found}
        assert not missing, f"{missing} of {found}"
        assert {value: found[value] for value in expected if value in found} == {
            value: offset for value, offset in expected.items() if value in found
        }
        assert set(found) <= self.sent
        seen = self.read(committed=True)
        assert not self.aborted & set(seen), f"aborted, but read: {self.aborted & set(seen)}"

    def read(self, *, committed: bool) -> dict[bytes, int]:
        """Values and their offsets, as a consumer gets them from the log's start."""
        log = self.log
        end = log.last_stable_offset if committed else log.log_end_offset
        found: dict[bytes, int] = {}
        aborted: set[int] = set()
        ahead = sorted(log.aborted_transactions(log.log_start_offset, end), key=lambda each: each.first_offset)
        offset = expected = log.log_start_offset
        while offset < end:
            piece = log.read(offset, 1 << 20, upper_bound=end, min_one_message=True).file_slice
            assert piece is not None, f"nothing at {offset}, the log ends at {end}"
            for header, batch in iter_batches(piece.read()):
                assert self.boot == "boot-2" or header.base_offset == expected, f"{expected} is missing"
                while ahead and ahead[0].first_offset <= header.last_offset:
                    aborted.add(ahead.pop(0).producer_id)
                offset = expected = header.next_offset
                for record in read_records(batch):
                    if header.is_control:
                        aborted.discard(header.producer_id)
                    elif not (committed and header.is_transactional and header.producer_id in aborted):
                        assert record.value not in found, f"{record.value!r} is there twice"
                        found[record.value] = record.offset
        return found


@contextlib.contextmanager
def script(root: Path) -> Iterator[Script]:
    """Small enough that every kind of file is written to again and again."""
    running = Script(str(root))
    root.mkdir()
    with (
        mock.patch("barnabas.log.log_loader.TAIL_BYTES", 300),
        mock.patch("barnabas.log.indexes.sparse_index.TAIL_ENTRIES", 2),
        running.fs.watch(),
    ):
        yield running
    running.fs.close()
    shutil.rmtree(root)


def end(running: Script, ending: str) -> None:
    if ending == "killed":
        running.check_killed()
    else:
        running.check_powerless(names_last=ending == "power lost, names last")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_disk_that_works_keeps_everything(root: Path, ending: str) -> None:
    with script(root / "log") as running:
        running.run()
        assert len(running.acknowledged) == len(running.sent - {b"", b"-1:cut"})
        assert {call.name for call in running.fs.calls} >= {"pwritev", "fdatasync", "mmap", "replace", "rename"}
        end(running, ending)


@pytest.mark.parametrize("names_last", [False, True])
def test_a_clean_shutdown_survives_a_power_loss(root: Path, names_last: bool) -> None:
    """Files that a start trusts without verification, above all the index of aborted transactions, were synced."""
    with script(root / "log") as running:
        running.first_life()
        running.boot = "boot-2"
        running.fs.lose_power(names_last=names_last)
        running.start()
        running.check(running.acknowledged)
        running.kill()


@pytest.mark.parametrize(
    ("kind", "lasts"), [("EIO", False), ("EIO", True), ("ENOSPC", True), ("EMFILE", True), ("short write", False)]
)
def test_every_call_may_fail(root: Path, quiet: None, kind: str, lasts: bool) -> None:
    with script(root / "without") as running:
        running.run()
        calls = running.fs.calls
        running.kill()
    for number, (fault, ending) in enumerate(faults_at(calls, kind, lasts=lasts)):
        with script(root / f"{number}") as running:
            running.fs.fault = fault
            try:
                running.run()
                end(running, ending)
            except BaseException as error:
                error.add_note(f"{fault} ({calls[fault.number]}), {ending}")
                raise
            assert running.fs.struck
