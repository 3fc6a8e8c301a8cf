"""The copy of the metadata beside the logs: what was written is read, and damage is noticed."""

from pathlib import Path
from uuid import UUID

import pytest

from barnabas.broker.cluster.metadata_copy import CopyVersion, read_copy, read_version, write_copy
from barnabas.errors import CorruptMessage
from barnabas.log.directories.checkpoints import METADATA_COPY
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage


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
    assert read_version(path) == CopyVersion("cluster", 3, 2)


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / METADATA_COPY
    write_copy(str(path), image())
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole[:5], whole + b"x", whole[:20] + bytes([whole[20] ^ 1]) + whole[21:]):
        path.write_bytes(damaged)
        with pytest.raises(CorruptMessage):
            read_copy(path)
