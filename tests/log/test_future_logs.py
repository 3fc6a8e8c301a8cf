"""The future logs that a start finds."""

import uuid
from pathlib import Path

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaStorageError
from barnabas.log.directories.checkpoints import RUNNING
from barnabas.log.log_manager import LogManager
from barnabas.types import BrokerId
from hand_clock import HandClock
from log.manager_rig import A0, CONFIG, start

TOPIC_ID = uuid.UUID(int=1)


def manager(tmp_path: Path) -> LogManager:
    return LogManager([tmp_path / "one", tmp_path / "two"], HandClock(), boot_id="boot")


def begun(tmp_path: Path) -> str:
    """The name of a future directory in "two"; the log is in "one"."""
    running = start(manager(tmp_path))
    running.prefer(A0.topic, A0.partition, running.directories[0])
    running.create(A0, TOPIC_ID, CONFIG)
    future = running.futures.create(A0, running.directories[1], TOPIC_ID)
    running.open_future(future, CONFIG)
    running.shutdown()
    return Path(future.directory).name


def names(tmp_path: Path, directory: str) -> list[str]:
    return sorted(path.name for path in (tmp_path / directory).glob("a-0*"))


def test_its_name_is_kafkas(tmp_path: Path) -> None:
    name, dot, rest = begun(tmp_path).partition(".")
    assert (name, dot) == ("a-0", ".")
    assert len(rest) == 32 + len("-future")
    assert rest.endswith("-future")
    assert int(rest[:32], 16)


def test_a_start_finds_it(tmp_path: Path) -> None:
    name = begun(tmp_path)
    running = start(manager(tmp_path))
    (future,) = running.futures
    assert (Path(future.directory).name, future.home) == (name, running.directories[1])
    assert A0 in running.futures
    running.shutdown()


def test_after_a_loss_of_power_it_begins_anew(tmp_path: Path) -> None:
    name = begun(tmp_path)
    for path in ("one", "two"):
        (tmp_path / path / RUNNING).unlink()
        (tmp_path / path / ".kafka_cleanshutdown").unlink()
    running = start(manager(tmp_path))
    (future,) = running.futures
    assert Path(future.directory).name != name
    assert [each for each in names(tmp_path, "two") if each.endswith("-future")] == [Path(future.directory).name]
    running.shutdown()


def test_that_of_a_compacted_topic_begins_anew(tmp_path: Path) -> None:
    name = begun(tmp_path)
    running = manager(tmp_path)
    running.startup(lambda _: LogConfig(cleanup_policy=frozenset(("compact",))), node_id=BrokerId(1))
    (future,) = running.futures
    assert Path(future.directory).name != name
    running.shutdown()


def test_that_of_a_log_that_is_gone_is_put_aside(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / "one" / "a-0").rename(tmp_path / "away")
    running = start(manager(tmp_path))
    assert not list(running.futures)
    (name,) = names(tmp_path, "two")
    assert name.endswith("-stray")
    running.shutdown()


@pytest.mark.parametrize("belongs", [True, False])
def test_that_of_another_topic_is_removed(tmp_path: Path, belongs: bool) -> None:
    name = begun(tmp_path)
    metadata = tmp_path / "two" / name / "partition.metadata"
    metadata.write_text(metadata.read_text().replace("AAAAAQ", "AAAAAg"))
    running = start(manager(tmp_path), belongs=lambda _, topic_id: belongs and topic_id == TOPIC_ID)
    assert not list(running.futures)
    running.remove_deleted(running._clock.wall_ms())
    assert names(tmp_path, "two") == []
    running.shutdown()


def test_of_two_one_stays(tmp_path: Path) -> None:
    name = begun(tmp_path)
    second = tmp_path / "two" / f"a-0.{uuid.uuid4().hex}-future"
    second.mkdir()
    (second / "partition.metadata").write_bytes((tmp_path / "two" / name / "partition.metadata").read_bytes())
    running = start(manager(tmp_path))
    assert len(list(running.futures)) == 1
    assert len([each for each in names(tmp_path, "two") if each.endswith("-future")]) == 1
    running.shutdown()


def test_one_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = start(manager(tmp_path))

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("barnabas.log.future_logs.write_partition_metadata", refuse)
    with pytest.raises(KafkaStorageError, match="No space left"):
        running.futures.create(A0, running.directories[1], TOPIC_ID)
    assert A0 not in running.futures
    running.remove_deleted(running._clock.wall_ms())
    assert names(tmp_path, "two") == []
    running.shutdown()
