"""Status and lag from checkpoints."""

from pathlib import Path

from barnabas.pipeline.checkpoint import read_checkpoint
from barnabas.pipeline.status import lag_rows, status_row
from barnabas.types import TopicPartition
from pipeline.checkpoints import WELL


def test_status_and_lag(path: Path) -> None:
    found = read_checkpoint(path)
    row = status_row(found, WELL.ends)
    assert (row["batch"], row["state"], row["lag"]) == (3, "under way, or interrupted", 20)
    assert row["offsets_per_second"] == 35.0, "70 offsets in the two seconds from batch 0 to batch 2"
    assert [(each["partition"], each["read"], each["end"], each["lag"]) for each in lag_rows(found, WELL.ends)] == [
        (0, 40, 50, 10),
        (1, 60, 70, 10),
    ]
    new = lag_rows(found, {TopicPartition("orders", 2): 5})
    assert (new[0]["read"], new[0]["lag"]) == (None, 5), "a partition that is new"
    assert status_row(found, None)["lag"] is None
