"""Damaged data directories against the start of a broker's logs: no crash, no hang, and what was verified is whole.

    python tests/fuzz/fuzz_recovery.py --seconds 600 --seed 1

The directory holds a log of some segments with everything there is: idempotent producers, transactions that were
committed and aborted, leader epochs, indexes, snapshots, checkpoints. An input says how the last process ended (first
byte: closed cleanly, same boot of the machine, flushed), then what happened to the files: nine bytes an operation.

What must hold:

* starting gives logs or a UsageError, and that only for `meta.properties` or an old message format;
* reading all there is, looking up times, epochs and transactions, retention, and appending give data or a KafkaError;
* after an unclean start on another boot every batch served has its checksum and offsets grow, as far as the recovery
  point, which says what need not be verified, was not itself among the damaged files;
* what was verified once is still there after the next start.
"""

import contextlib
import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from fuzz_engine import Target, main

from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaError, UsageError
from barnabas.log.directories.checkpoints import META_PROPERTIES, RECOVERY_CHECKPOINT
from barnabas.log.log_manager import LogManager
from barnabas.log.producers.verification_guards import Sender
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import BatchHeader, crc_of, iter_headers, read_header
from barnabas.records.builder import build_batch, build_control_batch
from barnabas.records.record import Record
from barnabas.records.validation import ValidatedBatch
from barnabas.types import TopicPartition

START_MS = 1_700_000_000_000
PARTITION = TopicPartition("flights", 3)
CONFIG = LogConfig(segment_bytes=3_000, index_interval_bytes=200)
SECONDS_MAX = 2.0
OPERATION_SIZE = 9
OPERATIONS_MAX = 12
GROWTH_MAX = 16_384
CLEAN, SAME_BOOT, FLUSHED = 1, 2, 4


class HandClock:
    """Time stands still."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


# --- the undamaged directory ------------------------------------------------------------------------------------------


def batch(count: int, number: int, **options: int | bool) -> ValidatedBatch:
    records = [Record(0, START_MS + number * 1000 + i, b"key%d" % i, b"value" * (number % 9), ()) for i in range(count)]
    data = build_batch(records, **options)  # type: ignore[arg-type]
    header = read_header(data)
    return ValidatedBatch(header, data, header.max_timestamp, count - 1, count)


def marker(producer_id: int, *, committed: bool) -> ValidatedBatch:
    data = build_control_batch(
        committed=committed, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, timestamp=START_MS
    )
    return ValidatedBatch(read_header(data), data, START_MS, 0, 1)


def fill(log: UnifiedLog) -> None:
    sequences: dict[int, int] = {}

    def send(producer_id: int, count: int, number: int, *, transactional: bool = False) -> None:
        sequence = sequences.get(producer_id, 0)
        sequences[producer_id] = sequence + count
        options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        sent = batch(count, number, **options, transactional=transactional)
        guard = log.begin_verification(Sender.of(sent.header), starts_at_zero=False) if transactional else None
        log.append_as_leader(sent, number // 20, origin="client", guard=guard)

    for number in range(60):
        send(7, 1 + number % 3, number)
        if number % 4 == 0:
            log.append_as_leader(batch(2, number), number // 20)
        if number % 10 == 3:
            send(100 + number, 2, number, transactional=True)
        if number % 10 == 6:
            ended = marker(100 + number - 3, committed=number % 20 == 6)
            log.append_as_leader(ended, number // 20, origin="coordinator")
        if number % 16 == 0:
            log.update_high_watermark(log.log_end_offset)
    send(999, 1, 60, transactional=True)  # still open
    log.update_high_watermark(log.log_end_offset)


def manager(path: str, boot_id: str) -> LogManager:
    return LogManager([path], HandClock(), boot_id=boot_id)


def start(logs: LogManager) -> None:
    logs.startup(lambda topic: CONFIG, node_id=1, cluster_id="fuzzed")


def read_tree(path: str) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(Path(path).rglob("*")) if file.is_file()}


def build(flags: int) -> dict[str, bytes]:
    """The files of a directory whose last process ended as the flags say."""
    with scratch() as path:
        logs = manager(path, "boot-1")
        start(logs)
        fill(logs.create(PARTITION, uuid.UUID(int=5), CONFIG))
        logs.create(TopicPartition("empty", 0), uuid.UUID(int=6), CONFIG)
        if flags & FLUSHED:
            logs.flush_dirty_logs(START_MS)
        logs.checkpoint_recovery_points()
        logs.checkpoint_high_watermarks()
        if flags & CLEAN:
            logs.shutdown()
        files = read_tree(path)
        if not flags & CLEAN:
            logs.shutdown()
    return files


@contextlib.contextmanager
def scratch() -> Iterator[str]:
    shared = Path("/dev/shm")
    path = tempfile.mkdtemp(prefix="barnabas-fuzz-", dir=shared if shared.is_dir() else None)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


_templates: dict[int, dict[str, bytes]] = {}


def template(flags: int) -> dict[str, bytes]:
    if flags not in _templates:
        _templates[flags] = build(flags)
    return dict(_templates[flags])


# --- damage -----------------------------------------------------------------------------------------------------------


def damage(files: dict[str, bytes], operations: bytes) -> set[str]:
    """Nine bytes an operation: file, kind, place (3), value (4). The names of the files that were touched."""
    touched = set()
    for at in range(0, min(len(operations), OPERATION_SIZE * OPERATIONS_MAX), OPERATION_SIZE):
        operation = operations[at : at + OPERATION_SIZE]
        if len(operation) < OPERATION_SIZE or not files:
            break
        names = sorted(files)
        name = names[operation[0] % len(names)]
        value = operation[5:]
        data = bytearray(files[name])
        place = int.from_bytes(operation[2:5], "big") % (len(data) + 1)
        number = int.from_bytes(value, "big")
        touched.add(name)
        match operation[1] % 10:
            case 0:
                data[place : place + 4] = value
            case 1:
                data[place : place + 1] = value[:1]
            case 2:
                del data[place:]
            case 3:
                data += bytes(number % GROWTH_MAX)
            case 4:
                data += data[place : place + number % GROWTH_MAX]
            case 5:
                data[place : place + number % 64] = bytes(number % 64)
            case 6:
                data[place:place] = value
            case 7:
                other = names[number % len(names)]
                data = bytearray(files[other])
            case 8:
                if place < len(data):
                    data[place] ^= 1 << (number % 8)
            case _:
                del files[name]
                continue
        files[name] = bytes(data)
    return touched


def write_tree(path: str, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        target = os.path.join(path, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(data)


# --- what must hold ---------------------------------------------------------------------------------------------------


def run(data: bytes) -> str:
    """Put one input through; a word for the way it took."""
    if not data:
        return "nothing"
    flags = data[0] & (CLEAN | SAME_BOOT | FLUSHED)
    files = template(flags)
    touched = damage(files, data[1:])
    began = time.thread_time()
    with scratch() as path:
        write_tree(path, files)
        outcome = check(path, flags, touched)
    spent = time.thread_time() - began
    assert spent < SECONDS_MAX, f"{spent:.1f} s"
    return f"{flags} {outcome}"


def check(path: str, flags: int, touched: set[str]) -> str:
    boot_id = "boot-1" if flags & SAME_BOOT else "boot-2"
    logs = manager(path, boot_id)
    try:
        start(logs)
    except UsageError as error:
        if META_PROPERTIES in str(error) or "message format" in str(error):
            return "refused"
        raise
    log = logs.get(PARTITION)
    verified = not flags & (CLEAN | SAME_BOOT | FLUSHED) and RECOVERY_CHECKPOINT not in touched
    words = []
    if log is not None:
        words.append(read_all(log, verified))
        ask_everything(log)
        words.append(append(log, verified))
    with contextlib.suppress(KafkaError):
        logs.cleanup_logs(START_MS)
    served = contents(log) if log is not None and verified else None
    end = log.log_end_offset if log is not None else 0
    try:
        logs.shutdown(flush=False)
    except KafkaError as error:
        return " ".join([*words, type(error).__name__])
    if served is not None:
        again = manager(path, boot_id)
        start(again)
        log = again.get(PARTITION)
        assert log is not None
        assert log.log_end_offset == end, f"the log ended at {end}, now at {log.log_end_offset}"
        assert contents(log) == served, "what was verified has changed"
        again.shutdown(flush=False)
    return " ".join(words)


def batches(log: UnifiedLog) -> Iterator[tuple[BatchHeader, bytes]]:
    """Everything that a consumer would be served, in its order. Raises KafkaError; ends where reading gets nowhere."""
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        found = log.read(offset, 1_000_000, upper_bound=end, min_one_message=True)
        if found.file_slice is None:
            return
        data = found.file_slice.read()
        position, reached = 0, offset
        for header in iter_headers(data):
            yield header, data[position : position + header.size_bytes]
            position += header.size_bytes
            reached = header.next_offset
        if reached <= offset:
            return
        offset = reached


def contents(log: UnifiedLog) -> list[bytes]:
    return [data for _, data in batches(log)]


def read_all(log: UnifiedLog, verified: bool) -> str:
    marks = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
    assert list(marks) == sorted(marks), marks
    count, next_offset = 0, -1
    try:
        for header, data in batches(log):
            count += 1
            if verified:
                assert crc_of(data) == header.crc, f"a damaged batch at offset {header.base_offset}"
                assert header.base_offset >= next_offset, f"offset {header.base_offset} after {next_offset - 1}"
                assert header.last_offset < log.log_end_offset, header
                next_offset = header.next_offset
    except (KafkaError, EOFError) as error:
        if verified:
            raise
        return f"{count // 8} {type(error).__name__}"
    return f"{count // 4} {len(log.segments)}"


def ask_everything(log: UnifiedLog) -> None:
    """Only a KafkaError may come of it."""
    end = log.log_end_offset
    questions = (
        lambda: [log.offset_for_timestamp(START_MS + step * 7000) for step in range(-1, 10)],
        log.max_timestamp,
        lambda: [log.offset_for_leader_epoch(epoch) for epoch in (-1, 0, 1, 2, 3, 2**31 - 1)],
        lambda: log.aborted_transactions(log.log_start_offset, end),
        lambda: log.active_producers(),
        lambda: [
            log.read(offset, 100, upper_bound=end, min_one_message=False) for offset in range(0, end, end // 20 + 1)
        ],
    )
    for question in questions:
        with contextlib.suppress(KafkaError):
            question()


def append(log: UnifiedLog, verified: bool) -> str:
    """The log takes further batches, and serves them."""
    end = log.log_end_offset
    try:
        info = log.append_as_leader(batch(2, 70), 5)
        log.append_as_leader(batch(1, 71, producer_id=12, producer_epoch=0, base_sequence=0), 5)
        log.update_high_watermark(log.log_end_offset)
    except KafkaError as error:
        if verified:
            raise
        return type(error).__name__
    assert info.first_offset == end
    if verified:
        last = contents(log)[-2:]
        assert [read_header(data).base_offset for data in last] == [end, end + 2]
    return "appended"


# --- inputs -----------------------------------------------------------------------------------------------------------


def seeds() -> list[bytes]:
    """Each way to end undamaged, and one operation of each kind on each file of a crash."""
    found = [bytes([flags]) for flags in range(8)]
    for number in range(len(template(0))):
        found += [bytes([0, number, kind, 0, kind * 7, number * 31 % 256, 0, 0, 5, 77]) for kind in range(10)]
    for flags in range(1, 8):
        found += [bytes([flags, number, 0, 0, 1, 9, 0, 0, 0, 1]) for number in range(len(template(flags)))]
    return found


def run_quietly(data: bytes) -> str:
    """Damage is expected here: thousands of warnings about it would say nothing. Others' loggers stay as they are."""
    logger = logging.getLogger("barnabas")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        return run(data)
    finally:
        logger.setLevel(level)


TARGET = Target("recovery", run_quietly, seeds, input_max=1 + OPERATION_SIZE * OPERATIONS_MAX)

if __name__ == "__main__":
    main(TARGET, __doc__)
