"""A query whose topics change while it, or the broker, is killed. `python -m tests.spark.chaos --source` plays many."""

import random
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from .chaos.sink_processes import Hosts, served, wait_for
from .chaos.source_rounds import BROKER, SourceLife, SourceScene

pytestmark = pytest.mark.spark


def test_each_committed_record_is_read_once(tmp_path: Path) -> None:
    """Of this seed: transactions are aborted, partitions added, a topic is made anew; a Python process, the broker and
    the JVM are killed."""
    hosts, told = Hosts(tmp_path), []
    try:
        trouble = SourceLife(seed=122, number=0, rounds=4).live(tmp_path / "life", hosts, told.append)
    finally:
        hosts.close()
    assert not trouble, "\n".join([*told, trouble])


def test_nothing_is_expected_that_was_compacted_away_before_it_was_read(tmp_path: Path) -> None:
    """A slow query reads only what is left of a compacted topic; the harness must not wait for the rest."""
    rng = random.Random(1)
    with served(tmp_path, settings=BROKER) as broker:
        scene = SourceScene(tmp_path / "scene", broker, "slow")

        def compacted() -> bool:
            scene.write(rng)
            return scene.fed.committed > scene.log().keys()

        wait_for(compacted, "some records are compacted away")
        there = Counter(scene.log().keys())
        scene.seen = lambda: there  # type: ignore[method-assign]
        assert not scene.missing()
        scene.make_anew()
        assert not scene.missing()
