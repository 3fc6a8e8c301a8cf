"""DescribeLogDirs: the sizes of partitions in each directory."""

import shutil
from pathlib import Path

import pytest

from barnabas.broker.server import Broker
from barnabas.errors import (
    KafkaStorageError,
)
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from broker.admin_rig import ask, create, produce, running_broker, versions
from broker.admin_rig import broker as broker


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
def test_sizes_of_partitions(broker: Broker, tmp_path: Path, version: int) -> None:
    create(broker, "a", 2)
    create(broker, "b")
    size = produce(broker, "a", 1)
    answer = ask(broker, DescribeLogDirsRequest(topics=None), version)
    (directory,) = answer.results
    assert (answer.error_code, directory.error_code, directory.log_dir) == (0, 0, str(tmp_path))
    sizes = {(t.name, p.partition_index): p.partition_size for t in directory.topics for p in t.partitions}
    assert sizes == {("a", 0): 0, ("a", 1): size, ("b", 0): 0}
    assert all((p.offset_lag, p.is_future_key) == (0, False) for t in directory.topics for p in t.partitions)
    space = shutil.disk_usage(tmp_path)
    assert directory.total_bytes == (space.total if version >= 4 else -1)
    assert (0 < directory.usable_bytes <= space.total) == (version >= 4)


def test_only_partitions_that_are_asked_for_and_here(broker: Broker) -> None:
    create(broker, "a", 2)
    wanted = [
        DescribableLogDirTopic(topic="a", partitions=[1, 7]),
        DescribableLogDirTopic(topic="nosuch", partitions=[0]),
    ]
    (directory,) = ask(broker, DescribeLogDirsRequest(topics=wanted)).results
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in directory.topics] == [("a", [1])]
    (nothing,) = ask(broker, DescribeLogDirsRequest(topics=[])).results
    assert (nothing.error_code, list(nothing.topics)) == (0, [])


def test_each_directory_shows_its_own(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with running_broker(tmp_path, log_dirs=f"{one},{two}") as broker:
        create(broker, "a", 2)
        results = {r.log_dir: r.topics for r in ask(broker, DescribeLogDirsRequest(topics=None)).results}
        assert set(results) == {str(one), str(two)}
        found = [[p.partition_index for t in topics for p in t.partitions] for topics in results.values()]
        assert sorted(found) == [[0], [1]]


def test_directory_that_is_gone(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: str) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("os.statvfs", gone)
    (directory,) = ask(broker, DescribeLogDirsRequest(topics=None)).results
    assert directory.error_code == KafkaStorageError.code
