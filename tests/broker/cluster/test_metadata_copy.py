"""The copy of the metadata beside the logs: what was written is read, and damage is noticed."""

import asyncio
import logging
from concurrent.futures import Future
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.broker.cluster.metadata_copy import INTERVAL_S, MetadataCopier, read_copy, write_copy
from barnabas.errors import CorruptMessage
from barnabas.log.directories.checkpoints import METADATA_COPY
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from broker.virtual_loop import run


def image(version: int = 7, partitions: int = 3) -> MetadataImage:
    partition = PartitionImage(1, 4, (1, 2), (1,), 9, elr=(2,))
    return MetadataImage(
        "cluster",
        version=version,
        controller_id=1,
        controller_epoch=3,
        brokers={1: BrokerImage(1, 5, (), "rack")},
        topics={"t": TopicImage("t", UUID(int=1), (partition,) * partitions)},
        topic_configs={"t": {"retention.ms": "1"}},
        broker_configs={"": {"a": "b"}},
    )


def contents(image: MetadataImage) -> tuple[object, ...]:
    ids = image.cluster_id, image.version, image.controller_id, image.controller_epoch
    return *ids, image.brokers, image.topics, image.topic_configs, image.broker_configs


@pytest.mark.parametrize("partitions", [1, 5000], ids=["one part", "several parts"])
def test_what_was_written_is_read(tmp_path: Path, partitions: int) -> None:
    path = tmp_path / METADATA_COPY
    write_copy(str(path), image(1))
    write_copy(str(path), image(2, partitions))
    assert contents(read_copy(path)) == contents(image(2, partitions))


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / METADATA_COPY
    write_copy(str(path), image())
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole[:5], whole + b"x", whole[:20] + bytes([whole[20] ^ 1]) + whole[21:]):
        path.write_bytes(damaged)
        with pytest.raises(CorruptMessage):
            read_copy(path)


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
