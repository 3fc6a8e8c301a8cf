"""Copies of checkpoints."""

from pathlib import Path

from barnabas.pipeline.checkpoint import read_checkpoint
from barnabas.pipeline.repair import backup_of
from pipeline.checkpoints import write_checkpoint


def test_a_query_named_by_digits(tmp_path: Path) -> None:
    """Only flows of declarative pipelines number their checkpoints."""
    path = write_checkpoint(tmp_path / "checkpoints" / "2024", commits=0)
    assert read_checkpoint(path).name == "2024"
    assert backup_of(path).name.startswith("2024.backup-")
    flow = write_checkpoint(tmp_path / "_checkpoints" / "to_orders" / "orders" / "0", commits=0)
    assert read_checkpoint(flow).name == "orders"
