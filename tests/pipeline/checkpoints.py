"""Checkpoints as Spark writes them, without Spark."""

import json
from pathlib import Path
from typing import Any

IDS = {"orders": "11111111-1111-1111-1111-111111111111"}
HEAD = '{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{"spark.sql.shuffle.partitions":"2"}}'


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
