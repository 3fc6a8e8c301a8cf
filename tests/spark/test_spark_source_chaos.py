"""A query whose topics change while it, or the broker, is killed. `python tests/spark/chaos --source` plays many."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
sys.path.insert(0, str(Path(__file__).parent / "chaos"))
from sink_processes import Hosts
from source_rounds import SourceLife


def test_each_committed_record_is_read_once(tmp_path: Path) -> None:
    """Of this seed: transactions are aborted, partitions added, a topic is made anew; a Python process, the broker and
    the JVM are killed."""
    hosts, told = Hosts(tmp_path), []
    try:
        trouble = SourceLife(seed=5, number=0, rounds=4).live(tmp_path / "life", hosts, told.append)
    finally:
        hosts.close()
    assert not trouble, "\n".join([trouble, *told])
