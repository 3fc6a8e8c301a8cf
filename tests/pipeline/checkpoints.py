"""Checkpoints as Spark writes them, without Spark."""

import json
from pathlib import Path
from typing import Any

from barnabas.pipeline.checkpoint import read_checkpoint
from barnabas.pipeline.diagnosis import BrokerView, Problem, find_problems
from barnabas.types import TopicPartition

IDS = {"orders": "11111111-1111-1111-1111-111111111111"}
HEAD = '{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{"spark.sql.shuffle.partitions":"2"}}'
ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
WELL = BrokerView(IDS, {ZERO: 0, ONE: 0}, {ZERO: 50, ONE: 70}, None)
"""A broker that has all records of the interrupted checkpoint."""


def write_checkpoint(path: Path, *batches: dict[str, int], commits: int, ids: dict[str, str] | None = None) -> Path:
    """Each batch is the offsets of topic orders; `commits` is how many are done."""
    for name in ("offsets", "commits"):
        (path / name).mkdir(parents=True)
    (path / "metadata").write_text('{"id":"22222222-2222-2222-2222-222222222222"}')
    for number, offsets in enumerate(batches):
        document: dict[str, Any] = {"orders": offsets, "@ids": IDS if ids is None else ids}
        lines = ["v1", HEAD % (1_700_000_000_000 + number * 1000), json.dumps(document)]
        (path / "offsets" / str(number)).write_text("\n".join(lines))
        (path / "offsets" / f".{number}.crc").write_bytes(b"crc")
    for number in range(commits):
        (path / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return path


def write_interrupted_checkpoint(path: Path) -> Path:
    """Writes four batches, of which the last was begun and not committed."""
    return write_checkpoint(
        path, {"0": 10, "1": 20}, {"0": 30, "1": 20}, {"0": 40, "1": 60}, {"0": 45, "1": 60}, commits=3
    )


def problems(path: Path, broker: BrokerView | None = WELL) -> list[Problem]:
    return find_problems(read_checkpoint(path), broker)
