"""The files that a path means. No Spark."""

import os
from pathlib import Path

import pytest

from barnabas.errors import UsageError
from barnabas.types import TopicPartition

pytest.importorskip("pyarrow")

from barnabas.spark.segments.segment_files import find_segments

from .conftest import files_of


def test_all_that_a_path_can_mean(data: Path) -> None:
    both = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    everything = find_segments(str(data))
    assert {file.partition for file in everything} == {*both, TopicPartition("mixed", 0)}
    orders = find_segments(str(data), lambda partition: partition.topic == "orders")
    assert {file.partition for file in orders} == set(both)
    assert find_segments(f"file://{data}/orders-*") == [file for file in everything if file.partition in both]
    assert find_segments(f"{data}/orders-0, {data}/orders-1") == find_segments(f"{data}/orders-[01]")
    one = files_of(data, "orders-0")
    assert len(one) > 2
    assert [file.is_newest for file in one] == [False] * (len(one) - 1) + [True]
    assert [file.next_base_offset for file in one[:-1]] == [file.base_offset for file in one[1:]]
    assert find_segments(one[1].path) == [one[1]]


def test_internal_topics_only_if_named(data: Path) -> None:
    assert not any(file.partition.topic.startswith("__") for file in find_segments(str(data)))
    assert find_segments(str(data), lambda partition: partition.topic == "__transaction_state")


def test_what_is_wrong_with_a_path_is_named(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="/nowhere does not exist here"):
        find_segments("/nowhere")
    with pytest.raises(UsageError, match="holds no logs"):
        find_segments(str(tmp_path))
    with pytest.raises(UsageError, match="no log of the topics"):
        find_segments(str(data), lambda partition: False)
    (tmp_path / "copy").symlink_to(data / "orders-0")
    with pytest.raises(UsageError, match="its name does not say of which partition"):
        find_segments(str(tmp_path / "copy"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "orders-0").mkdir()
    (tmp_path / "other" / "orders-0" / os.path.basename(files_of(data, "orders-0")[0].path)).touch()
    with pytest.raises(UsageError, match=r"orders-0 is in .* would come twice"):
        find_segments(f"{data}, {tmp_path / 'other'}")
