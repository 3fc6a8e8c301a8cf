"""A log is moved between two disks while each call to the file system fails in turn, or is the last one of the process.

Whatever happens, the partition opens with exactly one current log, it has every record that was acknowledged (after a
loss of power, every one that was synced) at its offset, and once the disks work, a repeated move ends.
"""

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.errors import BarnabasError, KafkaStorageError, UsageError
from barnabas.log.future_logs import FutureLog
from barnabas.log.log_manager import LogManager
from barnabas.log.producers.verification_guards import Sender
from barnabas.records.batch import iter_batches, read_header
from barnabas.records.builder import build_batch, build_control_batch
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from barnabas.records.validation import ValidatedBatch
from barnabas.replication.log_dir_move import LogDirMove
from barnabas.replication.partition import Partition
from barnabas.types import BrokerId, TopicPartition
from faulty_filesystem import ENDINGS, Call, FaultyFileSystem, chosen, directory_in_memory, faults_at, silenced
from hand_clock import HandClock
from replication.rig import lead_alone

TP = TopicPartition("flights", 0)
TOPIC_ID = uuid.UUID(int=7)
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=0, retention_ms=-1, file_delete_delay_ms=0)
FAILURES = (BarnabasError, OSError)


class Killed(BaseException):
    """The process ends at a call."""


class MortalFileSystem(FaultyFileSystem):
    """`last` is the number of the call that the process does not survive."""

    last = -1

    def _meet(self, name: str, path: str) -> bool:
        if len(self.calls) == self.last:
            self.last = -1
            raise Killed(f"{name} {path}")
        return super()._meet(name, path)


class Script:
    """A broker of one partition and two disks."""

    def __init__(self, root: str) -> None:
        self.fs = MortalFileSystem(root)
        self.clock = HandClock()
        self.boot = "boot-1"
        self.disks = [f"{root}/d1", f"{root}/d2"]
        self.acknowledged: dict[bytes, int] = {}
        self.synced: dict[bytes, int] = {}
        self.aborted: dict[bytes, int] = {}
        """The records of the aborted transaction, with the offset of its marker."""
        self.sequences: dict[int, int] = {}
        self.sent = 0
        self.epoch = 0
        self.manager: LogManager | None = None
        self.partition: Partition | None = None

    # -- the broker --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for attempt in range(2):
            self.manager = LogManager(self.disks, self.clock, boot_id=self.boot)
            try:
                self.manager.startup(lambda _: CONFIG, node_id=BrokerId(1))
                self.lead()
                return
            except (UsageError, KafkaStorageError):
                assert not attempt, "the disks work again, but the broker does not start"
                self.manager.abandon()
                self.fs.fault = None

    def lead(self) -> None:
        manager = self.manager
        assert manager is not None
        if TP not in manager.logs:
            manager.prefer(TP.topic, TP.partition, manager.directories[0])
        self.partition = Partition(TP, TOPIC_ID, manager.create(TP, TOPIC_ID, CONFIG))
        self.epoch += 1
        lead_alone(self.partition, self.epoch)
        self.partition.log.update_high_watermark(self.partition.log.log_end_offset)

    def kill(self) -> None:
        assert self.manager is not None
        self.manager.abandon()

    # -- its clients -------------------------------------------------------------------------------------------------

    def send(self, producer_id: int = 7, *, transactional: bool = False) -> bytes:
        self.sent += 1
        value = b"%d:%d" % (producer_id, self.sent)
        sequence = self.sequences.setdefault(producer_id, 0)
        data = build_batch(
            [Record(0, self.clock.wall_ms(), None, value + b"x" * 60)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=transactional,
        )
        offset = self.append(data)
        if offset is not None:
            self.sequences[producer_id] = sequence + 1
            self.acknowledged[value] = offset
        return value

    def end_transaction(self, producer_id: int) -> int | None:
        data = build_control_batch(
            committed=False, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1
        )
        return self.append(data)

    def append(self, data: bytes) -> int | None:
        header = read_header(data)
        partition = self.partition
        assert partition is not None
        guard = None
        batch = ValidatedBatch(header, data, header.max_timestamp, 0, 1)
        with contextlib.suppress(*FAILURES):
            if header.is_transactional and not header.is_control:
                guard = partition.log.begin_verification(Sender.of(header), starts_at_zero=False)
            origin = "coordinator" if header.is_control else "client"
            return partition.append_as_leader(batch, 1, origin=origin, guard=guard).first_offset
        return None

    def flush(self) -> None:
        assert self.partition is not None
        log = self.partition.log
        with contextlib.suppress(*FAILURES):
            log.flush()
        self.synced |= {value: offset for value, offset in self.acknowledged.items() if offset < log.recovery_point}

    def truncate(self) -> None:
        """A record that nobody counts on goes, as that of a follower."""
        assert self.partition is not None
        value = self.send(1000 + self.sent)
        offset = self.acknowledged.pop(value, None)
        with contextlib.suppress(*FAILURES):
            if offset is not None:
                self.partition.log.truncate_to(offset)

    # -- moves -------------------------------------------------------------------------------------------------------

    def move(self, target: int) -> None:
        manager, partition = self.manager, self.partition
        assert manager is not None
        assert partition is not None
        home = manager.directories[target]
        with contextlib.suppress(*FAILURES):
            if manager.directory_of(TP) is not home and TP not in manager.futures:
                manager.drop_replaced(TP)
                manager.futures.create(TP, home, TOPIC_ID)
        self.go_on()

    def go_on(self) -> None:
        assert self.manager is not None
        for future in self.manager.futures:
            self.run(future)
        with contextlib.suppress(*FAILURES):
            self.manager.remove_deleted(self.clock.wall_ms())

    def run(self, future: FutureLog) -> None:
        assert self.manager is not None
        assert self.partition is not None
        move = LogDirMove(self.partition, future, self.manager)
        with contextlib.suppress(*FAILURES):
            for number, work in enumerate(move.steps()):
                work()
                self.during(number)
        if not move.is_in_place:
            self.manager.futures.drop(future)

    def during(self, number: int) -> None:
        self.send()
        if number == 2:
            self.truncate()
        if number % 2:
            self.flush()
        if number == 3:
            assert self.manager is not None
            with contextlib.suppress(*FAILURES):
                self.manager.checkpoint_log_start_offsets()
                self.manager.checkpoint_high_watermarks()

    def whole(self) -> None:
        self.start()
        value = self.send(8, transactional=True)
        for _ in range(6):
            self.send()
        marker = self.end_transaction(8)
        if marker is not None:
            self.aborted[value] = marker
        self.flush()
        self.send(9, transactional=True)
        self.move(1)
        self.end_transaction(9)
        self.send()
        self.kill()
        self.start()
        self.go_on()
        self.send()
        self.move(0)
        self.send()

    # -- what must be ------------------------------------------------------------------------------------------------

    def check(self, *, power_lost: bool) -> None:
        self.start()
        found = self.check_records(self.synced if power_lost else self.acknowledged)
        if power_lost:
            self.acknowledged = found
        self.go_on()
        assert self.manager is not None
        self.move(1 if self.manager.directory_of(TP) is self.manager.directories[0] else 0)
        self.check_records(self.acknowledged)
        self.send(90)
        if not power_lost:
            for producer_id in (7, 90):
                assert self.append(self.repeat(producer_id)) == max(
                    offset for value, offset in self.acknowledged.items() if value.startswith(b"%d:" % producer_id)
                )
        self.manager.shutdown()
        names = [path.name for disk in self.disks for path in Path(disk).iterdir()]
        assert [name for name in names if name == str(TP)] == [str(TP)]
        assert not [name for name in names if name.endswith(("-future", "-stray"))], names
        self.start()
        self.check_records(self.acknowledged)

    def repeat(self, producer_id: int) -> bytes:
        value = max(
            (v for v in self.acknowledged if v.startswith(b"%d:" % producer_id)), key=lambda v: self.acknowledged[v]
        )
        return build_batch(
            [Record(0, self.clock.wall_ms(), None, value + b"x" * 60)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=self.sequences[producer_id] - 1,
        )

    def check_records(self, expected: dict[bytes, int]) -> dict[bytes, int]:
        assert self.partition is not None
        log = self.partition.log
        log.update_high_watermark(log.log_end_offset)
        found: dict[bytes, int] = {}
        markers: set[int] = set()
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            part = log.read(offset, 1 << 20, upper_bound=log.log_end_offset, min_one_message=True).file_slice
            assert part is not None, f"nothing at {offset}: {log}"
            for header, batch in iter_batches(part.read()):
                offset = header.next_offset
                if header.is_control:
                    markers.add(header.base_offset)
                else:
                    found |= {record.value.rstrip(b"x"): record.offset for record in read_records(batch)}
        missing = {value: offset for value, offset in expected.items() if found.get(value) != offset}
        assert not missing, f"{missing} of {found}, {log} in {log.directory}"
        listed = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
        started = {entry.first_offset for entry in listed if entry.producer_id == 8}
        assert started >= {
            found[value] for value, marker in self.aborted.items() if marker in markers and value in found
        }
        return found


@pytest.fixture
def root() -> Iterator[Path]:
    with directory_in_memory() as path:
        yield path


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with silenced("barnabas.log"):
        yield


@contextlib.contextmanager
def script(root: Path) -> Iterator[Script]:
    """Slices of a few batches, so that a move has several."""
    root.mkdir()
    running = Script(str(root))
    with (
        mock.patch("barnabas.replication.log_dir_move.SLICE_MAX", 1000),
        mock.patch("barnabas.replication.log_dir_move.SLICE_MIN", 250),
        mock.patch("barnabas.replication.log_dir_move.LAST_BYTES", 250),
        running.fs.watch(),
    ):
        for path in (str(root), *running.disks):
            Path(path).mkdir(exist_ok=True)
            running.fs.sync_names(path)
        running.fs.sync_names(str(root))
        yield running
        running.kill()
    running.fs.close()
    shutil.rmtree(root)


def end(running: Script, ending: str) -> None:
    running.kill()
    running.fs.fault = None
    running.fs.last = -1
    if ending != "killed":
        running.boot = "boot-2"
        running.fs.lose_power(names_last=ending == "power lost, names last")
    running.check(power_lost=ending != "killed")


def calls_of_a_run(root: Path) -> list[Call]:
    with script(root) as running:
        running.whole()
        assert running.partition is not None
        assert len(running.acknowledged) == running.sent - 2, "of each move one record is truncated"
        return running.fs.calls


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_move_keeps_everything(root: Path, ending: str) -> None:
    with script(root / "log") as running:
        running.whole()
        end(running, ending)


@pytest.mark.parametrize(
    ("kind", "lasts"), [("EIO", False), ("EIO", True), ("ENOSPC", True), ("EMFILE", True), ("short write", False)]
)
def test_every_call_may_fail(root: Path, kind: str, lasts: bool) -> None:
    calls = calls_of_a_run(root / "without")
    for number, (fault, ending) in enumerate(faults_at(calls, kind, lasts=lasts)):
        with script(root / f"{number}") as running:
            running.fs.fault = fault
            try:
                running.whole()
                end(running, ending)
            except BaseException as error:
                error.add_note(f"{fault} ({calls[fault.number]}), {ending}")
                raise


def test_every_call_may_be_the_last(root: Path) -> None:
    calls = calls_of_a_run(root / "without")
    for number, ending in chosen(range(len(calls))):
        with script(root / f"{number}") as running:
            running.fs.last = number
            try:
                with contextlib.suppress(Killed):
                    running.whole()
                end(running, ending)
            except BaseException as error:
                error.add_note(f"call {number} ({calls[number]}), {ending}")
                raise
