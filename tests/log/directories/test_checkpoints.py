import errno
import os
import uuid
from pathlib import Path
from threading import Thread

import pytest

from barnabas.log.directories import checkpoints
from barnabas.log.directories.checkpoints import replace_file
from barnabas.types import TopicPartition
from log.log_files import fail_at

TOPIC_ID = uuid.UUID("c7b1f9a0-3d1e-4b0a-9f6e-2d5a8c1e7f42")


def test_offset_checkpoints_have_kafkas_form(tmp_path: Path) -> None:
    path = str(tmp_path / checkpoints.RECOVERY_CHECKPOINT)
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b-c", 12): 2**40}
    checkpoints.write_offset_checkpoint(path, offsets)
    assert Path(path).read_text() == f"0\n2\na 0 5\nb-c 12 {2**40}\n"
    assert checkpoints.read_offset_checkpoint(path) == offsets


def test_epoch_checkpoints_have_kafkas_form(tmp_path: Path) -> None:
    path = str(tmp_path / "leader-epoch-checkpoint")
    checkpoints.write_epoch_checkpoint(path, [(0, 0), (3, 100)])
    assert Path(path).read_text() == "0\n2\n0 0\n3 100\n"
    assert checkpoints.read_epoch_checkpoint(path) == [(0, 0), (3, 100)]


def test_a_missing_checkpoint_is_empty(tmp_path: Path) -> None:
    assert checkpoints.read_offset_checkpoint(str(tmp_path / "x")) == {}


@pytest.mark.parametrize(
    "content",
    [b"", b"0\n", b"1\n0\n", b"0\n2\na 0 5\n", b"0\n1\na 0 x\n", b"0\n1\na 0\n", b"\xff\xfe\n", b"0\n1\na 0 5 6\n"],
)
def test_a_damaged_checkpoint_is_said_to_be(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(checkpoints.CorruptCheckpoint, match="x"):
        checkpoints.read_offset_checkpoint(str(path))


def test_partition_metadata_has_kafkas_form(tmp_path: Path) -> None:
    checkpoints.write_partition_metadata(str(tmp_path), TOPIC_ID)
    text = (tmp_path / "partition.metadata").read_text()
    assert text == "version: 0\ntopic_id: x7H5oD0eSwqfbi1ajB5_Qg"
    assert checkpoints.read_partition_metadata(str(tmp_path)) == TOPIC_ID


@pytest.mark.parametrize("content", [b"", b"version: 0\n", b"version: 0\ntopic_id: abc\n", b"\xff\xff"])
def test_lost_partition_metadata_is_none(tmp_path: Path, content: bytes) -> None:
    assert checkpoints.read_partition_metadata(str(tmp_path)) is None
    (tmp_path / "partition.metadata").write_bytes(content)
    assert checkpoints.read_partition_metadata(str(tmp_path)) is None


def test_properties_survive_and_comments_do_not_count(tmp_path: Path) -> None:
    path = str(tmp_path / "meta.properties")
    checkpoints.write_properties(path, {"version": "1", "cluster.id": "abc=="})
    assert checkpoints.read_properties(path) == {"version": "1", "cluster.id": "abc=="}
    assert Path(path).read_text().startswith("#\n")


def test_the_clean_marker_comes_and_goes(tmp_path: Path) -> None:
    directory = str(tmp_path)
    assert not checkpoints.read_clean_shutdown(directory)
    checkpoints.write_clean_shutdown(directory, 7)
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version": 0, "brokerEpoch": 7}'
    assert checkpoints.read_clean_shutdown(directory)
    checkpoints.remove_clean_shutdown(directory)
    checkpoints.remove_clean_shutdown(directory)
    assert not checkpoints.read_clean_shutdown(directory)


def test_replacing_leaves_no_temporary_file(tmp_path: Path) -> None:
    checkpoints.replace_file(str(tmp_path / "x"), b"old")
    checkpoints.replace_file(str(tmp_path / "x"), b"new", sync=False)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"new"


def test_syncs_that_fail_together_leave_the_durability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the next start believes that acknowledged records may be lost."""
    directory = str(tmp_path)
    checkpoints.write_running(directory, {"bootId": "boot-1", "directory": "1:2", "durability": "fsync"})
    other = Thread(target=checkpoints.distrust_page_cache, args=(directory,))
    replace, replaced = os.replace, []

    def replace_and_meet(old: str, new: str) -> None:
        replaced.append(new)
        if len(replaced) == 1:
            other.start()
            other.join(0.05)  # it would be over by then if it did not wait
        replace(old, new)

    monkeypatch.setattr(os, "replace", replace_and_meet)
    checkpoints.distrust_page_cache(directory)
    other.join()
    assert checkpoints.read_running(directory) == {"durability": "fsync"}
    assert len(replaced) == 1


def test_the_first_failure_of_a_disk_is_told(tmp_path, monkeypatch) -> None:
    fail_at(monkeypatch, "replace", "file", errno.ENOSPC)
    fail_at(monkeypatch, "unlink", "file")
    with pytest.raises(OSError, match="No space left"):
        replace_file(f"{tmp_path}/file", b"new")
