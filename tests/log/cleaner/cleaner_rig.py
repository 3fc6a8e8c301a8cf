"""A compacted log with its cleaner, the work done here and now instead of by a process; and consumers of that log."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.log.cleaner.cleaner_protocol import (
    EVENT_MAX_BYTES,
    JOB_MAX_BYTES,
    CleanerConfig,
    CleaningJob,
    Frames,
    frame,
)
from barnabas.log.cleaner.cleaner_worker import perform
from barnabas.log.cleaner.log_cleaner_manager import LogCleanerManager
from barnabas.log.log_manager import LogManager
from barnabas.log.log_offsets import AppendInfo
from barnabas.log.producers.verification_guards import Sender
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import BatchHeader, iter_batches, read_header
from barnabas.records.builder import build_batch, build_control_batch
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from barnabas.records.validation import ValidatedBatch
from barnabas.types import TopicPartition
from faulty_filesystem import silenced

START_MS = 1_700_000_000_000
TP = TopicPartition("cities", 0)
COMPACTED: dict[str, Any] = {
    "cleanup_policy": frozenset(("compact",)),
    "min_cleanable_dirty_ratio": 0.0,
    "delete_retention_ms": 1000,
    "file_delete_delay_ms": 0,
    "index_interval_bytes": 100,
}


MakeRig = Callable[..., "CleanerRig"]


class HandClock:
    def __init__(self) -> None:
        self.now_ms = START_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


class InlineWorker:
    """Does a job when it is submitted. `stop_at` raises where a process would be killed."""

    def __init__(self) -> None:
        self.cleaner: LogCleanerManager | None = None
        self.events: list[dict[str, Any]] = []
        self.spent: list[int] = []
        self.on_spend: Callable[[int], None] = lambda size: None
        self.before_event: Callable[[dict[str, Any]], None] = lambda event: None
        self.killed = False

    def submit(self, job: CleaningJob) -> None:
        self.killed = False
        (message,) = Frames(JOB_MAX_BYTES).feed(job.pack())
        assert CleaningJob.parse(message) == job
        with contextlib.suppress(_Killed):
            perform(job, self)
        if self.killed:
            assert self.cleaner is not None
            self.cleaner.ended("was killed")

    def kill(self) -> None:
        self.killed = True

    def spend(self, size: int) -> None:
        self.spent.append(size)
        self.on_spend(size)
        if self.killed:
            raise _Killed

    def tell(self, event: dict[str, Any]) -> None:
        assert self.cleaner is not None
        (message,) = Frames(EVENT_MAX_BYTES).feed(frame(event))
        self.events.append(message)
        self.before_event(message)
        if self.killed:
            raise _Killed
        self.cleaner.event(message)


class _Killed(Exception):
    pass


class Seen(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


class CleanerRig:
    """One data directory, one log, one cleaner."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self.clock = HandClock()
        self.config = LogConfig(**{**COMPACTED, **settings})
        self.limits = CleanerConfig()
        self.epoch = 0
        self.changes = 0
        self.start()

    def start(self) -> None:
        self.manager = LogManager([self.root], self.clock, boot_id="boot")
        self.manager.startup(lambda topic: self.config, node_id=1)
        self.log: UnifiedLog = self.manager.create(TP, None, self.config)
        self.worker = InlineWorker()
        self.cleaner = LogCleanerManager(self.manager, self.worker, lambda: self.limits, self.clock, self._changed)
        self.worker.cleaner = self.cleaner

    def _changed(self) -> None:
        self.changes += 1
        self.cleaner.persist()

    def restart(self, *, crash: bool = False) -> None:
        """Another process on the same directory."""
        self.cleaner.close()
        if crash:
            self.release()
        else:
            self.manager.shutdown()
        self.start()

    def release(self) -> None:
        """Let go of everything as a crash would. The high watermark is told: it is not what is tested here."""
        self.manager.checkpoint_high_watermarks()
        for log in self.manager.logs.values():
            log.release()
        for directory in self.manager.directories:
            directory.unlock()

    def clean(self) -> int:
        """Until nothing is left to do; how often there was something."""
        times = 0
        while self.cleaner.run():
            times += 1
            assert times < 50, "the cleaner does not come to an end"
        return times

    # -- writing -------------------------------------------------------------------------------------------------------

    def append(self, data: bytes, origin: str = "client") -> AppendInfo:
        header = read_header(data)
        batch = ValidatedBatch(header, data, header.max_timestamp, header.last_offset_delta, header.record_count)
        guard = None
        if header.is_transactional and not header.is_control:  # as if the coordinator had been asked
            guard = self.log.begin_verification(Sender.of(header), starts_at_zero=False)
        info = self.log.append_as_leader(batch, self.epoch, origin=origin, guard=guard)
        self.log.update_high_watermark(self.log.log_end_offset)
        return info

    def put(self, *pairs: tuple[str, str | None], **options: Any) -> int:
        """One batch; its first offset."""
        now = self.clock.now_ms
        records = [Record(0, now, k.encode(), None if v is None else v.encode()) for k, v in pairs]
        return self.append(build_batch(records, **options)).first_offset

    def marker(self, producer_id: int, *, commit: bool, epoch: int = 0) -> int:
        data = build_control_batch(
            committed=commit,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=0,
            timestamp=self.clock.now_ms,
        )
        return self.append(data, "coordinator").first_offset

    def transaction(self, producer_id: int, sequence: int, *pairs: tuple[str, str | None]) -> int:
        """One batch of a transaction that stays open; its first offset."""
        return self.put(*pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)

    def roll(self) -> None:
        self.log.roll()

    # -- reading -------------------------------------------------------------------------------------------------------

    def batches(self, start: int | None = None, end: int | None = None) -> list[tuple[BatchHeader, bytes]]:
        """Returns the batches that fetches from `start` on return one after the other, up to the mark."""
        log = self.log
        found: list[tuple[BatchHeader, bytes]] = []
        offset = log.log_start_offset if start is None else start
        end = log.high_watermark if end is None else end
        while offset < end:
            piece = log.read(offset, 1 << 20, upper_bound=end, min_one_message=True).file_slice
            if piece is None:
                break
            for header, batch in iter_batches(piece.read()):
                found.append((header, bytes(batch)))
                assert header.last_offset >= offset, "an older batch than asked for"
                offset = header.next_offset
        return found

    def read(self, *, committed: bool = True, start: int | None = None) -> list[Seen]:
        """The records that a consumer gets, as Kafka's consumers filter them."""
        log = self.log
        first = log.log_start_offset if start is None else start
        end = log.last_stable_offset if committed else log.high_watermark
        aborted = sorted(log.aborted_transactions(first, end), key=lambda entry: entry.first_offset)
        out: set[int] = set()
        seen: list[Seen] = []
        for header, batch in self.batches(start, end):
            while aborted and aborted[0].first_offset <= header.last_offset:
                out.add(aborted.pop(0).producer_id)
            records = read_records(batch)
            if header.is_control:
                if records and records[0].key is not None and records[0].key[2:4] == b"\0\0":
                    out.discard(header.producer_id)
                continue
            if committed and header.is_transactional and header.producer_id in out:
                continue
            seen += [Seen(r.offset, r.key, r.value, r.timestamp) for r in records if r.offset >= first]
        return seen

    def values(self, **options: Any) -> list[tuple[int, str, str | None]]:
        """(offset, key, value) as text."""
        return [
            (r.offset, "" if r.key is None else r.key.decode(), None if r.value is None else r.value.decode())
            for r in self.read(**options)
        ]

    def offsets(self, **options: Any) -> list[int]:
        return [record.offset for record in self.read(**options)]

    def headers(self) -> list[BatchHeader]:
        return [header for header, _ in self.batches()]

    def uncleanable(self) -> str:
        """Returns why the log is not cleaned any more; empty if it is."""
        return self.cleaner.state(TP).uncleanable

    def files(self, *suffixes: str) -> list[str]:
        return sorted(path.name for path in Path(self.log.directory).iterdir() if path.name.endswith(suffixes))


@pytest.fixture(autouse=True, scope="session")
def quiet_cleaner() -> Iterator[None]:
    with silenced("barnabas.log.cleaner"):
        yield


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[MakeRig]:
    """`make_rig(segment_bytes=500)`."""
    made: list[CleanerRig] = []

    def make(**settings: Any) -> CleanerRig:
        rig = CleanerRig(tmp_path / "data", **settings)
        made.append(rig)
        return rig

    yield make
    for rig in made:
        rig.release()


def latest(pairs: Iterable[Seen]) -> dict[bytes | None, Seen]:
    """The last record of each key."""
    return {seen.key: seen for seen in pairs}
