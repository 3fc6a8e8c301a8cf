"""What is read of a query's checkpoint."""

from pathlib import Path

import pytest

from barnabas.spark.sink.checkpoint import BatchPlan, read_batch_plan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a b" / "offsets").mkdir(parents=True)
    for batch, text in enumerate(["first", "second"]):
        (tmp_path / "a b" / "offsets" / str(batch)).write_text(text)
    return tmp_path / "a b"


def test_a_batch_has_its_own_mark(folder: Path) -> None:
    first = read_batch_plan(str(folder), 0)
    assert len(first.mark) == 16
    assert read_batch_plan(str(folder), 1) != first
    assert read_batch_plan(folder.as_uri(), 0) == first
    assert read_batch_plan(folder.as_uri().replace("///", "/"), 0) == first
    (folder / "offsets" / "0").write_text("planned anew")
    assert read_batch_plan(str(folder), 0) != first


def test_what_cannot_be_read_has_none(folder: Path) -> None:
    for location in (None, str(folder / "other"), f"hdfs://cluster{folder}", f"file://elsewhere{folder}", "s3a://b/c"):
        assert read_batch_plan(location, 0) == BatchPlan()
    assert read_batch_plan(str(folder), 7) == BatchPlan()


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ('v1\n{"batchWatermarkMs":0,"batchTimestampMs":1763000000000,"conf":{}}\n{"t":{"0":1}}', 1763000000000),
        ('v1\n{"batchTimestampMs":"soon"}', None),
        ("v1\n[7]", None),
        ('v1\n{"batchTimestampMs"', None),
        ("v1", None),
        ("", None),
    ],
)
def test_when_it_was_planned(folder: Path, text: str, at_ms: int | None) -> None:
    (folder / "offsets" / "0").write_text(text)
    assert read_batch_plan(str(folder), 0).at_ms == at_ms
