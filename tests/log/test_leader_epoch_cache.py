import errno
from pathlib import Path

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.log.leader_epoch_cache import LeaderEpochFileCache
from barnabas.log.unified_log import UnifiedLog
from log.log_files import refuse


@pytest.fixture
def cache(tmp_path: Path) -> LeaderEpochFileCache:
    cache = LeaderEpochFileCache(str(tmp_path / "leader-epoch-checkpoint"))
    for epoch, offset in ((1, 10), (3, 100), (5, 200)):
        cache.assign(epoch, offset)
    return cache


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),
        (1, (1, 100)),
        (2, (1, 100)),
        (3, (3, 200)),
        (4, (3, 200)),
        (5, (5, 250)),
        (6, (-1, -1)),
    ],
)
def test_end_offsets_are_kafkas(cache: LeaderEpochFileCache, asked: int, answer: tuple[int, int]) -> None:
    assert cache.end_offset_for(asked, 250) == answer


def test_an_empty_cache_cannot_say(tmp_path: Path) -> None:
    cache = LeaderEpochFileCache(str(tmp_path / "x"))
    cache.load()
    assert cache.latest == -1
    assert cache.end_offset_for(0, 0) == (-1, -1)


@pytest.mark.parametrize(("offset", "epoch"), [(5, -1), (10, 1), (99, 1), (100, 3), (10_000, 5)])
def test_an_offset_has_the_epoch_in_force(cache: LeaderEpochFileCache, offset: int, epoch: int) -> None:
    assert cache.epoch_for(offset) == epoch


def test_entries_survive(cache: LeaderEpochFileCache) -> None:
    again = LeaderEpochFileCache(cache.path)
    again.load()
    assert again.entries == [(1, 10), (3, 100), (5, 200)]
    assert again.latest == 5


def test_a_contradicted_entry_goes(cache: LeaderEpochFileCache) -> None:
    cache.assign(7, 150)
    assert cache.entries == [(1, 10), (3, 100), (7, 150)]


def test_truncation_at_the_end(cache: LeaderEpochFileCache) -> None:
    cache.truncate_from_end(200)
    assert cache.entries == [(1, 10), (3, 100)]
    assert cache.latest == 3


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (5, [(1, 10), (3, 100), (5, 200)]),
        (50, [(1, 50), (3, 100), (5, 200)]),
        (100, [(3, 100), (5, 200)]),
        (999, [(5, 999)]),
    ],
)
def test_truncation_at_the_start(cache: LeaderEpochFileCache, start: int, entries: list[tuple[int, int]]) -> None:
    cache.truncate_from_start(start)
    assert cache.entries == entries


def test_a_damaged_file_counts_as_empty(cache: LeaderEpochFileCache) -> None:
    Path(cache.path).write_text("rubbish")
    cache.load()
    assert cache.entries == []


def test_a_log_of_another_cluster_goes_on_in_this_ones_epoch(cache: LeaderEpochFileCache) -> None:
    cache.assign(2, 300)
    assert cache.entries == [(1, 10), (2, 300)]
    assert cache.latest == 2


@pytest.fixture
def log(rig, monkeypatch: pytest.MonkeyPatch) -> UnifiedLog:
    """A log on a full disk, that was cut below its last leader epoch and has got records of the one before."""
    log = rig.log()
    rig.append(log, 10, epoch=3)
    rig.append(log, 10, epoch=5)
    monkeypatch.setattr("barnabas.log.leader_epoch_cache.write_epoch_checkpoint", refuse(errno.ENOSPC))
    log.truncate_to(10)
    rig.append(log, 20, epoch=3)
    return log


def written(log: UnifiedLog) -> list[tuple[int, int]]:
    cache = LeaderEpochFileCache(log.leader_epochs.path)
    cache.load()
    return cache.entries


def test_what_a_full_disk_refuses_is_written_when_there_is_room(log: UnifiedLog, monkeypatch) -> None:
    with pytest.raises(KafkaStorageError):
        log.flush()
    monkeypatch.undo()
    log.flush()
    assert written(log) == [(3, 0)]


def test_a_log_is_not_closed_cleanly_with_epochs_of_before(log: UnifiedLog, monkeypatch) -> None:
    with pytest.raises(KafkaStorageError):
        log.close(flush=False)
    monkeypatch.undo()
    log.close(flush=False)
    assert written(log) == [(3, 0)]
