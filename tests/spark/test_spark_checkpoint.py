"""What is read of a query's checkpoint."""

from pathlib import Path

import pytest

from barnabas.spark.checkpoint import plan_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a b" / "offsets").mkdir(parents=True)
    for batch, text in enumerate(["first", "second"]):
        (tmp_path / "a b" / "offsets" / str(batch)).write_text(text)
    return tmp_path / "a b"


def test_a_batch_has_its_own_mark(folder: Path) -> None:
    first = plan_of(str(folder), 0)
    assert len(first) == 16
    assert plan_of(str(folder), 1) != first
    assert plan_of(folder.as_uri(), 0) == first
    assert plan_of(folder.as_uri().replace("///", "/"), 0) == first
    (folder / "offsets" / "0").write_text("planned anew")
    assert plan_of(str(folder), 0) != first


def test_what_cannot_be_read_has_none(folder: Path) -> None:
    for location in (None, str(folder / "other"), f"hdfs://cluster{folder}", f"file://elsewhere{folder}", "s3a://b/c"):
        assert plan_of(location, 0) == ""
    assert plan_of(str(folder), 7) == ""
