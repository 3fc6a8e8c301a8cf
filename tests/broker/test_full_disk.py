"""A full disk: produce fails with KAFKA_STORAGE_ERROR, nothing acknowledged is lost, reads go on, and so does all else
once there is room again. The same from outside, on a file system of a few megabytes."""

import contextlib
import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.log.directories.disk import Disk
from barnabas.testing import Broker
from broker.sent_requests import batch, fetch, produce, values
from broker.served import Served, small_file_system
from broker.wire import Wire


class Room:
    """The disk takes so many more bytes; a write that goes beyond is cut short first, as the kernel does it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 1 << 40
        monkeypatch.setattr(Disk, "pwritev", staticmethod(self._pwritev))
        monkeypatch.setattr(Disk, "pwrite", staticmethod(self._pwrite))

    def _pwritev(self, fd: int, buffers: Any, position: int, *flags: int) -> int:
        return self._pwrite(fd, b"".join(buffers), position)

    def _pwrite(self, fd: int, data: Any, position: int) -> int:
        if self.left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = bytes(data)[: self.left]
        self.left -= len(taken)
        return os.pwrite(fd, taken, position)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    return Room(monkeypatch)


def code(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("left", [0, 1, 20, 21, 61, 500])
def test_nothing_of_a_write_that_failed_is_ever_seen(room: Room, left: int) -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        assert code(wire.ask(produce(broker, {0: batch(b"kept")}), 12)) == 0
        room.left = left
        big = batch(os.urandom(1000))
        for _ in range(3):
            assert code(wire.ask(produce(broker, {0: big}), 12)) == KafkaStorageError.code
            room.left = 0
        seen = wire.ask(fetch(broker, {0: 0}), 12).responses[0].partitions[0]
        assert (values(seen.records), seen.high_watermark) == ([b"kept"], 1)
        room.left = 1 << 40
        answer = wire.ask(produce(broker, {0: batch(b"again")}), 12)
        assert code(answer) == 0
        assert answer.responses[0].partition_responses[0].base_offset == 1
        broker.restart()
        assert [record.value for record in broker.records("t")] == [b"kept", b"again"]


def test_an_idempotent_producer_may_try_again(room: Room) -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")

        def send(sequence: int) -> int:
            records = batch(b"x", producer_id=3, producer_epoch=0, base_sequence=sequence)
            return code(wire.ask(produce(broker, {0: records}), 12))

        assert send(0) == 0
        room.left = 0
        assert send(1) == KafkaStorageError.code
        room.left = 1 << 40
        assert [send(1), send(2), send(1)] == [0, 0, 0]
        assert broker.end_offsets("t") == [3]


# --- from outside ---------------------------------------------------------------------------------------------------


def fill(wire: Wire) -> int:
    """Produce until the disk takes no more; returns how many batches were acknowledged."""
    from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True), 12)
    for count in range(1000):
        result = code(wire.ask(produce(None, {0: batch(b"%06d" % count + bytes(60_000))}), 12))  # type: ignore[arg-type]
        if result:
            assert result == KafkaStorageError.code
            return count
    raise AssertionError("the disk never became full")


def read_back(wire: Wire) -> list[int]:
    found: list[int] = []
    while True:
        answer = wire.ask(fetch(None, {0: len(found)}, max_bytes=1 << 20), 12)  # type: ignore[arg-type]
        got = [int((value or b"")[:6]) for value in values(answer.responses[0].partitions[0].records)]
        if not got:
            return found
        found += got


def test_a_full_file_system_and_room_again(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "disk", "8m"):
        ballast = tmp_path / "disk" / "ballast"
        ballast.write_bytes(bytes(3 << 20))
        served = Served(tmp_path, tmp_path / "disk" / "data", "log.segment.bytes=1048576")
        try:
            with Wire(served.address) as wire:
                acknowledged = fill(wire)
                assert acknowledged > 20
                assert read_back(wire) == list(range(acknowledged))
                ballast.unlink()
                more = code(wire.ask(produce(None, {0: batch(b"%06d" % acknowledged)}), 12))  # type: ignore[arg-type]
                assert more == 0
                assert read_back(wire) == list(range(acknowledged + 1))
        finally:
            assert served.stop() == 0, served.errors.read_text()
        again = Served(tmp_path, tmp_path / "disk" / "data", "log.segment.bytes=1048576")
        with Wire(again.address) as wire:
            assert read_back(wire) == list(range(acknowledged + 1))
        assert again.stop() == 0
        assert "Traceback" not in again.errors.read_text()


def test_a_disk_without_reserve_that_stays_full_through_stop_and_start(tmp_path: Path) -> None:
    data = tmp_path / "disk" / "data"
    settings = ("log.segment.bytes=1048576", "log.dir.reserve.bytes=0")
    with small_file_system(tmp_path / "disk", "6m"):
        ballast = tmp_path / "disk" / "ballast"
        ballast.write_bytes(bytes(1 << 20))
        served = Served(tmp_path, data, *settings)
        with Wire(served.address) as wire:
            acknowledged = fill(wire)
        with contextlib.suppress(OSError), ballast.open("ab") as rest:
            rest.write(bytes(8 << 20))
        served.stop()
        assert "Traceback" not in served.errors.read_text()
        refused = subprocess.run(
            [sys.executable, "-m", "barnabas", "serve", "--data-dir", str(data), "--listen", "127.0.0.1:0"]
            + [f"--set={setting}" for setting in settings],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert refused.returncode != 0
        (line,) = refused.stderr.splitlines()
        assert "No space left on device" in line
        assert str(data) in line
        assert "make room" in line
        ballast.unlink()
        again = Served(tmp_path, data, *settings)
        with Wire(again.address) as wire:
            assert read_back(wire) == list(range(acknowledged))
        again.stop()


def test_what_else_needs_room_fails_and_works_again(tmp_path: Path) -> None:
    """New topics, groups and commits on a disk that is full to the last byte."""
    with small_file_system(tmp_path / "disk", "6m"):
        ballast = tmp_path / "disk" / "ballast"
        ballast.write_bytes(bytes(2 << 20))
        served = Served(tmp_path, tmp_path / "disk" / "data", "offsets.topic.num.partitions=1")
        try:
            with Wire(served.address) as wire:
                fill(wire)
                with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as rest:
                    while True:
                        rest.write(bytes(4096))
                for _ in range(2):
                    assert create(wire, "new") != 0
                    assert commit(wire) != 0
                assert read_back(wire)
                ballast.unlink()
                assert (create(wire, "new"), commit(wire)) == (0, 0)
        finally:
            assert served.stop() == 0, served.errors.read_text()
        assert "Traceback" not in served.errors.read_text()


def create(wire: Wire, name: str) -> int:
    from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return int(wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5).topics[0].error_code)


def commit(wire: Wire) -> int:
    from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
    from barnabas.protocol.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    wire.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
    return int(wire.ask(request, 8).topics[0].partitions[0].error_code)


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    served = Served(tmp_path, tmp_path / "data", file_size_max=1 << 20)
    try:
        with Wire(served.address) as wire:
            acknowledged = fill(wire)
            assert acknowledged > 10
            assert read_back(wire) == list(range(acknowledged))
    finally:
        assert served.stop() == 0, served.errors.read_text()
    assert "Traceback" not in served.errors.read_text()


def barnabas(served: Served, *words: str) -> str:
    """Returns the output of a command that must succeed."""
    command = [sys.executable, "-m", "barnabas", *words, "-b", f"{served.address[0]}:{served.address[1]}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def fill_to_the_last_byte(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "ballast").open("ab", buffering=0) as rest:
        while True:
            rest.write(bytes(4096))
    status = os.statvfs(disk)
    assert status.f_bavail == 0


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "started on the full disk"])
@pytest.mark.parametrize(
    "way_out",
    [
        ("topics", "delete", "t"),
        ("configs", "set", "topic", "t", "retention.bytes=1000000"),
    ],
    ids=["delete", "retention"],
)
def test_a_full_disk_has_a_way_out(tmp_path: Path, way_out: tuple[str, ...], restarted: bool) -> None:
    disk = tmp_path / "disk"
    settings = (
        "log.segment.bytes=1048576",
        "log.segment.delete.delay.ms=0",
        "log.initial.task.delay.ms=0",
        "log.retention.check.interval.ms=200",
        "log.retention.ms=-1",  # the records have timestamps of long ago
    )
    with small_file_system(disk, "10m"):
        served = Served(tmp_path, disk / "data", *settings)
        try:
            with Wire(served.address) as wire:
                assert fill(wire) > 60
            fill_to_the_last_byte(disk)
            if restarted:
                served.stop()
                fill_to_the_last_byte(disk)
                served = Served(tmp_path, disk / "data", *settings)
                fill_to_the_last_byte(disk)
            barnabas(served, *way_out)
            deadline = time.monotonic() + 30
            while os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize < 3 << 20:
                assert time.monotonic() < deadline, served.errors.read_text()
                time.sleep(0.05)
            barnabas(served, "topics", "create", "again")
        finally:
            assert served.stop() == 0, served.errors.read_text()
        told = served.errors.read_text()
        assert "Traceback" not in told
        if not restarted:
            assert "the disk is full" in told


def test_producers_do_not_use_up_what_is_set_aside(tmp_path: Path) -> None:
    """The broker renews its registration on the full disk again and again, and producers wait for every free byte."""
    disk = tmp_path / "disk"
    settings = ("log.segment.delete.delay.ms=0", "broker.heartbeat.interval.ms=10")
    with small_file_system(disk, "10m"):
        served = Served(tmp_path, disk / "data", *settings)
        try:
            reserve = disk / "data" / "barnabas-reserve"
            with Wire(served.address) as wire:
                assert fill(wire) > 60
                fill_to_the_last_byte(disk)
                before = reserve.stat().st_size
                deadline = time.monotonic() + 1
                while time.monotonic() < deadline:
                    wire.ask(produce(None, {0: batch(bytes(3000))}), 12)  # type: ignore[arg-type]
                assert reserve.stat().st_size > before - (512 << 10)
            barnabas(served, "topics", "delete", "t")
        finally:
            assert served.stop() == 0, served.errors.read_text()
