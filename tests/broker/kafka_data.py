"""The data directory of a Kafka 4.3.1, for the tests that open it.

`golden/kafka-data.tar.gz` is the directory of a Kafka 4.3.1 (one node, broker and controller), started twice and ended
cleanly both times: topic `flights` (3 partitions, retention.ms=-1) with records of 2017, of an idempotent producer and
of three transactions of `tower`, the second aborted; `ports` (compacted), `plain` (max.message.bytes=2000000), `gone`
(deleted); the groups `ground-crew` (classic) and `modern` (consumer protocol) with offsets for two partitions each.
`tests/interop/test_taken_over.py` opens what the newest release writes.
"""

import tarfile
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden" / "kafka-data.tar.gz"
METADATA = "__cluster_metadata-0"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path / "data", filter="data")
    return tmp_path / "data"
