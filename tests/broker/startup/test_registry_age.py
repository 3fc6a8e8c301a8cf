"""A registry that is older than what the data directories have seen of it is refused, with one broker and with several,
in a file and in ZooKeeper."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from barnabas.broker.cluster.metadata_copy import write_copy
from barnabas.broker.startup.recovery import recover_registry
from barnabas.broker.startup.registry_age import image_not_older_than_copies, refuse_epochs_not_given
from barnabas.errors import UsageError
from barnabas.log.directories.checkpoints import METADATA_COPY
from barnabas.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.registry.content import RegistryContent
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.testing import Broker
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition
from broker.startup.test_startup_errors import serve
from broker.wire import on_controller, server_of


def image(version: int, controller_epoch: int, cluster_id: str = "c") -> MetadataImage:
    return MetadataImage(cluster_id, version=version, controller_epoch=controller_epoch)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[EmbeddedRegistry]:
    founding = RegistryContent(image(7, 3))
    with closing(EmbeddedRegistry(tmp_path / "r.db", founding=founding)) as registry:
        yield registry


@pytest.mark.parametrize(
    ("copy", "is_refused"),
    [
        (image(7, 3), False),
        (image(6, 3), False),
        (image(8, 3), True),
        (image(8, 2), True),
        (image(6, 4), True),
        (image(8, 4, "another"), False),
    ],
    ids=["equal", "older", "newer", "newer, of an earlier controller", "of a later controller", "another cluster's"],
)
def test_a_copy_that_is_newer_than_the_registry(
    registry: EmbeddedRegistry, tmp_path: Path, copy: MetadataImage, is_refused: bool
) -> None:
    write_copy(f"{tmp_path}/{METADATA_COPY}", copy)
    directories = [str(tmp_path / "without"), str(tmp_path)]
    found = registry.load().image
    if not is_refused:
        assert image_not_older_than_copies(registry, found, directories, "way out") is found
        return
    with pytest.raises(
        UsageError, match=rf"r\.db shows version 7 .* put back from a copy, as .*{METADATA_COPY} tells; .*out$"
    ):
        image_not_older_than_copies(registry, found, directories, "way out")


def test_a_damaged_copy_prevents_no_start(
    registry: EmbeddedRegistry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / METADATA_COPY).write_bytes(b"")
    found = registry.load().image
    assert image_not_older_than_copies(registry, found, [str(tmp_path)], "way out") is found
    assert "says nothing about the age of the registry" in caplog.text


def copy_of_registry(directory: Path) -> Callable[[], None]:
    """Returns what puts the registry back as it is now: the file of a broker that has stopped."""
    kept = directory.parent / "kept.db"
    shutil.copy(directory / "registry.db", kept)
    return lambda: shutil.copy(kept, directory / "registry.db")  # type: ignore[return-value]


@pytest.mark.parametrize("has_copy", [True, False], ids=["by the copy of the metadata", "by the last registration"])
def test_one_broker_refuses_a_registry_that_was_put_back(tmp_path: Path, has_copy: bool) -> None:
    data = tmp_path / "data"
    with Broker(data_dir=data) as broker:
        broker.create_topic("t")
    put_back = copy_of_registry(data)
    for value in (b"1", b"2"):  # each start leads in a new leader epoch
        with Broker(data_dir=data) as broker:
            on_controller(broker, lambda controller: controller.renew_leadership([("t", 0)]))
            broker.produce("t", value)
    put_back()
    if not has_copy:
        (data / METADATA_COPY).unlink()
    code, line = serve(data)
    assert code == 2
    why = f"as {data}/{METADATA_COPY} tells" if has_copy else f"{data} is newer than the registry"
    assert why in line
    assert "`barnabas cluster recover" in line


def test_a_topic_that_an_old_registry_does_not_know_is_not_put_aside(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data_dir=data):
        pass
    put_back = copy_of_registry(data)
    with Broker(data_dir=data) as broker:
        broker.create_topic("t", configs={"retention.ms": "-1"})
        broker.produce("t", b"kept")
    put_back()
    assert "was put back from a copy" in serve(data).line
    for path in data.glob("registry.db*"):
        path.unlink()
    done = recover_registry(data / "registry.db", [str(data)])
    assert (done.is_made, done.missing) == (True, {})
    with Broker(data_dir=data) as broker:
        assert [record.value for record in broker.records("t")] == [b"kept"]
        assert server_of(broker).image.topic_config("t") == {"retention.ms": "-1"}


def test_nothing_is_put_aside_before_the_age_of_the_registry_is_known(tmp_path: Path) -> None:
    """Here nothing tells it but the leader epoch of another log: the registry is of the same registration."""
    data, kept = tmp_path / "data", tmp_path / "kept.db"
    with Broker(data_dir=data) as broker:
        broker.create_topic("epochs")
        with closing(sqlite3.connect(data / "registry.db")) as now, closing(sqlite3.connect(kept)) as copy:
            now.backup(copy)
        broker.create_topic("t")
        on_controller(broker, lambda controller: controller.renew_leadership([("epochs", 0)]))
        for topic in ("t", "epochs"):
            broker.produce(topic, b"kept")
    for path in data.glob("registry.db*"):
        path.unlink()
    shutil.copy(kept, data / "registry.db")
    (data / METADATA_COPY).unlink()
    with pytest.raises(UsageError, match="has records of epoch"):
        Broker(data_dir=data).start()
    assert sorted(path.name for path in data.glob("*-*") if path.is_dir()) == ["epochs-0", "t-0"]


def test_each_of_several_brokers_refuses_it(tmp_path: Path) -> None:
    path, kept = tmp_path / "registry.db", tmp_path / "kept.db"

    def broker(node_id: int) -> Broker:
        return Broker(data_dir=tmp_path / f"{node_id}", settings={"node.id": node_id, "registry.file": str(path)})

    with broker(1), broker(2):
        pass
    shutil.copy(path, kept)
    with broker(1) as one, broker(2):
        one.create_topic("t")
    shutil.copy(kept, path)
    for node_id in (1, 2):
        with pytest.raises(UsageError, match=f"put back from a copy, as {tmp_path}/{node_id}/{METADATA_COPY} tells"):
            broker(node_id).start()


def test_a_log_with_an_epoch_that_was_not_given_out_is_named() -> None:
    one = (BrokerId(1),)
    partition = PartitionImage(BrokerId(1), LeaderEpoch(4), one, one)
    found = MetadataImage("cluster", topics={"t": TopicImage("t", uuid4(), (partition,))})

    def check(latest: int) -> None:
        log: Any = SimpleNamespace(directory="data/t-0", leader_epochs=SimpleNamespace(latest=latest))
        refuse_epochs_not_given(found, {TopicPartition("t", 0): log}, "r.db", "way out")

    check(4)
    with pytest.raises(
        UsageError, match=r"^the registry r\.db is at leader epoch 4 of t-0, but data/t-0 has .* epoch 5"
    ):
        check(5)
