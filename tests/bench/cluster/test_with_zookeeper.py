"""The table of failovers with ZooKeeper, and its clusters."""

from pathlib import Path

import pytest

from bench.cluster.with_zookeeper import MACHINES, failover_table, make
from bench.peers import KAFKA_VERSION, PeerUnavailable


def test_the_table_has_medians_and_what_was_lost() -> None:
    results = {
        "SIGKILL of a leader": {
            "gap_s": {"kafka": [8.0, 9.0, 10.0], "zookeeper": [0.1, 0.3, 0.2]},
            "gap_elsewhere_s": {"kafka": [7.0, 7.0, 7.0], "zookeeper": [0.05, 0.06, 0.07]},
            "lost": {"kafka": [0, 0, 0], "zookeeper": [0, 2, 1]},
            "doubled": {"kafka": [0, 0, 0], "zookeeper": [0, 0, 0]},
        }
    }
    assert failover_table(["kafka", "zookeeper", "machines"], results) == [
        f"| | Apache Kafka {KAFKA_VERSION} (KRaft) | one machine, ZooKeeper | several machines, ZooKeeper |",
        "|---|---|---|---|",
        "| SIGKILL of a leader | 9 (10), elsewhere 7 | 0.2 (0.3), elsewhere 0.06 (0.07); lost 3 |  |",
    ]


def test_namespaces_need_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(PeerUnavailable, match="only root may make namespaces"):
        make(MACHINES, tmp_path)
