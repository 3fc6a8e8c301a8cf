"""Moves of replicas between log directories, by both administrators."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.admin.log_dirs import TopicPartitionReplica
from barnabas.errors import ItemsFailed, LogDirNotFound, UsageError
from barnabas.testing import Broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=f"{tmp_path / 'one'},{tmp_path / 'two'}") as broker:
        yield broker


def homes(admin: Any) -> list[tuple[str, bool]]:
    """The names of the directories with replicas, and whether it is a future one."""
    return [
        (Path(each.path).name, replica.is_future) for each in admin.describe_log_dirs()[1] for replica in each.replicas
    ]


def test_a_replica_moves(admin: Any, broker: Broker, tmp_path: Path) -> None:
    admin.create_topics("flights")
    ((before, _),) = homes(admin)
    after = "two" if before == "one" else "one"
    admin.alter_replica_log_dirs({("flights", 0, 1): str(tmp_path / after)})
    deadline = time.monotonic() + 60
    while any(is_future for _, is_future in homes(admin)) and time.monotonic() < deadline:
        pass
    assert homes(admin) == [(after, False)]


def test_errors(admin: Any, broker: Broker, tmp_path: Path) -> None:
    admin.create_topics("flights")
    with pytest.raises(ItemsFailed) as caught:
        admin.alter_replica_log_dirs(
            {
                ("flights", 0, 1): str(tmp_path / "three"),
                ("flights", 7, 1): str(tmp_path / "two"),
            }
        )
    assert isinstance(caught.value.failed[TopicPartitionReplica("flights", 0, 1)], LogDirNotFound)
    assert set(caught.value.failed) == {("flights", 0, 1), ("flights", 7, 1)}
    for wrong in ({("flights", 0): "/disk"}, {("flights", 0, 1): 5}, {("flights", 0, 99): "/disk"}):
        with pytest.raises(UsageError):
            admin.alter_replica_log_dirs(wrong)
