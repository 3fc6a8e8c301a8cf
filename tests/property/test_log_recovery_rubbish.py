"""After any damage to a log's files, opening it ends in a working log or in one line with the reason."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.config.log_config import LogConfig
from barnabas.errors import CorruptMessage, KafkaError, UsageError
from barnabas.log.log_loader import LogEnvironment, LogState, Verification, create_log, load_log
from barnabas.log.producers.verification_guards import Sender
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import iter_batches, read_header
from barnabas.records.builder import build_batch, build_control_batch
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from barnabas.records.validation import ValidatedBatch
from barnabas.types import TopicPartition

TP = TopicPartition("flights", 3)
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200)
START_MS = 1_700_000_000_000


class StoppedClock:
    def wall_ms(self) -> int:
        return START_MS

    def monotonic(self) -> float:
        return 0.0


def validated(data: bytes) -> ValidatedBatch:
    header = read_header(data)
    return ValidatedBatch(header, data, header.max_timestamp, header.last_offset_delta, header.record_count)


def append(log: UnifiedLog, count: int = 1, **options: object) -> None:
    records = [Record(0, START_MS, b"k", b"v" * 30) for _ in range(count)]
    batch = validated(build_batch(records, **options))
    guard = (
        log.begin_verification(Sender.of(batch.header), starts_at_zero=False) if batch.header.is_transactional else None
    )
    log.append_as_leader(batch, 0, guard=guard)
    log.update_high_watermark(log.log_end_offset)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments with producers, an aborted transaction, epochs, indexes and snapshots."""
    path = tmp_path_factory.mktemp("log") / str(TP)
    log = create_log(str(path), TP, CONFIG, LogEnvironment(StoppedClock()), None)
    for number in range(12):
        append(log, 2)
        append(log, producer_id=7, producer_epoch=0, base_sequence=number)
    append(log, producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
    marker = build_control_batch(
        committed=False, producer_id=8, producer_epoch=0, coordinator_epoch=0, timestamp=START_MS
    )
    log.append_as_leader(validated(marker), 0, origin="coordinator")
    append(log, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    assert len(log.segments) == 3
    log.close()
    return path


@st.composite
def damages(draw: st.DrawFn) -> tuple[int, str, float, bytes]:
    """(which file, what happens to it, where, with what)."""
    what = draw(st.sampled_from(["overwrite", "cut", "insert", "append", "remove", "zero"]))
    data = draw(st.binary(min_size=1, max_size=40))
    return draw(st.integers(0, 99)), what, draw(st.floats(0, 1)), data


def apply(path: Path, damage: tuple[int, str, float, bytes]) -> None:
    number, what, where, data = damage
    files = sorted(path.iterdir())
    if not files:
        return
    file = files[number % len(files)]
    content = bytearray(file.read_bytes())
    position = int(where * len(content))
    if what == "remove":
        file.unlink()
        return
    if what == "overwrite":
        content[position : position + len(data)] = data
    elif what == "cut":
        del content[position:]
    elif what == "insert":
        content[position:position] = data
    elif what == "append":
        content += data * 5
    else:
        content[position:] = bytes(len(content) - position)
    file.write_bytes(content)


def read_all(log: UnifiedLog) -> None:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20, upper_bound=log.log_end_offset, min_one_message=True).file_slice
        if piece is None:
            return
        before = offset
        for header, batch in iter_batches(piece.read()):
            read_records(batch)
            if header.next_offset <= offset:
                break
            offset = header.next_offset
        if offset == before:
            raise CorruptMessage(f"offset {offset}: a batch goes back, or reaches past the end of its segment")


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(damages(), min_size=1, max_size=4), st.sampled_from(list(Verification)), st.integers(0, 40))
def test_a_damaged_log_opens_or_says_why_not(
    original: Path, hurt: list[tuple[int, str, float, bytes]], verification: Verification, recovery_point: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(shutil.copytree(original, Path(directory) / str(TP)))
        for damage in hurt:
            apply(path, damage)
        if verification is Verification.FULL:
            recovery_point = 0
        state = LogState(verification, verification is Verification.TAIL, recovery_point)
        try:
            log = load_log(str(path), TP, CONFIG, LogEnvironment(StoppedClock()), state)
        except UsageError as error:
            if "\n" in str(error):
                raise
            return
        log.offsets.check()
        end = log.log_end_offset
        append(log, 3)
        assert log.log_end_offset == end + 3
        if verification is Verification.FULL:
            read_all(log)
            log.offset_for_timestamp(START_MS)
            log.aborted_transactions(log.log_start_offset, log.log_end_offset)
            log.truncate_to((log.log_start_offset + end) // 2)
            append(log)
        else:
            # what was not read again may be damaged: it is answered with an error of Kafka's, never with an accident
            try:
                read_all(log)
                log.offset_for_timestamp(START_MS)
                log.aborted_transactions(log.log_start_offset, log.log_end_offset)
            except (KafkaError, EOFError):
                pass
        log.close()
