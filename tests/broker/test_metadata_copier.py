"""The copies of the metadata are written a while after a change, and at the end."""

import asyncio
import logging
from concurrent.futures import Future
from pathlib import Path

import pytest

from barnabas.broker.cluster.metadata_copy import read_copy
from barnabas.broker.metadata_copier import AGAIN_S, INTERVAL_S, MetadataCopier
from barnabas.log.directories.checkpoints import METADATA_COPY
from broker.cluster.test_metadata_copy import image
from broker.virtual_loop import run


class Disk:
    """An executor that runs what it is given when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[None], object, tuple[object, ...]]] = []

    def submit(self, function, /, *arguments):  # type: ignore[no-untyped-def]
        future: Future[None] = Future()
        self.waiting.append((future, function, arguments))
        return future

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future, function, arguments in waiting:
            future.set_result(function(*arguments))  # type: ignore[operator]


class World:
    """A copier in a virtual loop."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / METADATA_COPY
        self.image = image(1)
        self.disk = Disk()
        self.copier = MetadataCopier(
            [str(directory)],
            lambda: self.image,
            asyncio.get_running_loop(),
            self.disk,  # type: ignore[arg-type]
            logging.getLogger("test"),
        )

    def change(self, version: int) -> None:
        self.image = image(version)
        self.copier.image_changed()

    @property
    def copied(self) -> int | None:
        return read_copy(self.path).version if self.path.exists() else None


def test_changes_are_gathered_for_a_while(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.change(2)
        world.change(3)
        await asyncio.sleep(INTERVAL_S / 2)
        assert not world.disk.waiting
        await asyncio.sleep(INTERVAL_S)
        assert len(world.disk.waiting) == 1
        world.disk.run()
        assert world.copied == 3

    run(scenario())


def test_a_change_during_the_write_is_written_after_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.change(2)
        await asyncio.sleep(2 * INTERVAL_S)
        world.change(3)
        await asyncio.sleep(2 * INTERVAL_S)
        assert len(world.disk.waiting) == 1, "two threads must not write one file"
        world.disk.run()
        await asyncio.sleep(2 * INTERVAL_S)
        world.disk.run()
        assert world.copied == 3
        await asyncio.sleep(10 * INTERVAL_S)
        assert not world.disk.waiting

    run(scenario())


def test_the_end_writes_what_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.change(2)
        world.copier.close()
        assert world.copied == 2

    run(scenario())


def test_a_disk_that_refuses_the_copy_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world = World(tmp_path / "gone")
        world.change(2)
        world.copier.close()

    run(scenario())
    assert "is not up to date: No such file or directory" in caplog.text


def test_a_copy_for_which_there_is_no_memory_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_copy(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("barnabas.broker.cluster.metadata_copy.write_copy", write_copy)

    async def scenario() -> None:
        world = World(tmp_path)
        world.change(2)
        world.copier.close()

    run(scenario())
    assert "is not up to date: memory has run out" in caplog.text


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.change(2)
        await asyncio.sleep(2 * INTERVAL_S)
        world.change(3)
        world.copier.close()
        world.disk.run()
        await asyncio.sleep(2 * INTERVAL_S)
        assert (world.copied, world.disk.waiting) == (2, [])

    run(scenario())


def test_a_copy_that_the_disk_has_refused_is_told_once_and_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if nobody changes anything until the disk takes it."""

    async def scenario() -> None:
        world = World(tmp_path / "away")
        world.change(2)
        for _ in range(3):
            await asyncio.sleep(2 * AGAIN_S)
            world.disk.run()
        (tmp_path / "away").mkdir()
        await asyncio.sleep(2 * AGAIN_S)
        world.disk.run()
        assert world.copied == 2
        await asyncio.sleep(2 * AGAIN_S)
        assert not world.disk.waiting

    run(scenario())
    assert len(caplog.records) == 1
