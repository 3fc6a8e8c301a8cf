"""A coordinator's records in the log of a partition that this broker leads."""

import logging
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.broker.coordinators.coordinator_log import ReplicatedCoordinatorLog
from barnabas.config.log_config import DEFAULT_LOG_CONFIG
from barnabas.errors import KafkaStorageError, NotLeaderOrFollower, UnknownTopicOrPartition
from barnabas.log.log_manager import LogManager
from barnabas.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.records.batch import iter_headers
from barnabas.records.builder import build_batch
from barnabas.records.file_slice import FileSlice
from barnabas.records.record import Record
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.types import Offset, TopicPartition
from replication.conftest import clock as clock
from replication.conftest import logs as logs

ME, OTHER = 1, 2
TOPIC = "__internal"


@pytest.fixture
def log(logs: LogManager, tmp_path: Path) -> ReplicatedCoordinatorLog:
    """Partition 0 is led here, in epoch 4; partition 1 elsewhere. Reads take 300 bytes."""
    manager = ReplicaManager(ME, logs, lambda topic: DEFAULT_LOG_CONFIG, logging.getLogger("test"))
    partitions = tuple(PartitionImage(leader, 4, (ME, OTHER), (leader,), 0) for leader in (ME, OTHER))
    manager.apply(MetadataImage(topics={TOPIC: TopicImage(TOPIC, UUID(int=1), partitions)}), None)
    return ReplicatedCoordinatorLog(TOPIC, manager, 300)


def batch(count: int, size: int = 10) -> bytes:
    return build_batch([Record(0, 1, b"k", b"v" * size)] * count)


def test_records_are_appended_in_the_epoch_of_the_election(log: ReplicatedCoordinatorLog) -> None:
    assert (log.append(0, batch(3), 4), log.append(0, batch(2), 4)) == (3, 5)
    assert (log.log_range(0), log.high_watermark(0)) == ((0, 5), 5)
    assert log.max_batch_bytes(0) == DEFAULT_LOG_CONFIG.max_message_bytes
    with pytest.raises(NotLeaderOrFollower, match="is in leader epoch 4"):
        log.append(0, batch(1), 3)
    with pytest.raises(NotLeaderOrFollower):
        log.append(1, batch(1), 4)
    with pytest.raises(UnknownTopicOrPartition):
        log.append(2, batch(1), 4)
    assert log.log_range(0) == (0, 5)


def test_whole_batches_are_read_up_to_the_end(log: ReplicatedCoordinatorLog) -> None:
    for count, size in ((2, 10), (3, 10), (1, 1000), (1, 10)):
        log.append(0, batch(count, size), 4)

    def read(offset: int, max_bytes: int = 10_000) -> list[int]:
        return [header.base_offset for header in iter_headers(log.read(0, offset, max_bytes))]

    assert read(0) == [0, 2], "as many as the buffer takes"
    assert read(3)[0] == 2
    assert read(5) == [5], "larger than the buffer, and whole"
    assert read(6, 1) == [6]
    assert log.read(0, 7, 10_000) == b""


def test_a_damaged_batch_is_named_with_the_way_out(log: ReplicatedCoordinatorLog, logs: LogManager) -> None:
    for _ in range(3):
        log.append(0, batch(2), 4)
    damaged = logs.logs[TopicPartition(TOPIC, 0)]
    position, size = damaged.active_segment.locate(Offset(2)) or (0, 0)
    with open(damaged.active_segment.path(".log"), "r+b") as file:
        file.seek(position + size - 1)
        file.write(b"\xff")
    with pytest.raises(KafkaStorageError, match=r"__internal-0: .*offset 2 is wrong.*move .*/__internal-0 away"):
        log.read(0, Offset(1), 10_000)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), EOFError("the segment ends early")])
def test_a_disk_that_does_not_read_is_a_storage_error(
    log: ReplicatedCoordinatorLog, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(piece: FileSlice) -> bytes:
        raise error

    log.append(0, batch(1), 4)
    monkeypatch.setattr(FileSlice, "read", fail)
    with pytest.raises(KafkaStorageError, match=r"__internal-0: .*(Input/output error|the segment ends early)"):
        log.read(0, 0, 1000)
