"""`barnabas cluster recover`: the exit code tells whether the registry is whole."""

import json
from pathlib import Path

from broker.startup.test_recovery import Cluster, image
from cli.conftest import run_barnabas


def test_a_registry_that_may_lack_records_is_no_success(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.broker(1, image((2, 3)), (4, 1))
    cluster.broker(2, None, (4, 1))
    arguments = ["cluster", "recover", "--json", "--registry", str(cluster.registry), "--data-dir", cluster.data_dir(1)]
    without = run_barnabas(*arguments)
    assert (without.returncode, json.loads(without.stdout)["out_of_isr"]) == (1, ["t-0"])
    assert cluster.registry.exists()
    cluster.registry.unlink()
    whole = run_barnabas(*arguments, "--data-dir", cluster.data_dir(2))
    assert (whole.returncode, json.loads(whole.stdout)["out_of_isr"]) == (0, [])


def test_a_topic_without_any_log_is_no_success(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.broker(1, image((1,), partitions=2), (4, 1))
    done = run_barnabas("cluster", "recover", "--registry", str(cluster.registry), "--data-dir", cluster.data_dir(1))
    assert done.returncode == 1
    assert "no data directory has a replica of: t-1" in done.stdout
