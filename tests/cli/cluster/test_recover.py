"""`barnabas cluster recover`: the exit code tells whether the registry is whole."""

import json
from pathlib import Path

from broker.startup.test_recovery import Cluster, image
from cli.conftest import run_barnabas


def test_a_stale_replica_alone_makes_no_registry(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.broker(3, image((1, 2, 3)), (4, 1))
    arguments = ["cluster", "recover", "--registry", str(cluster.registry), "--data-dir", cluster.data_dir(3)]
    done = run_barnabas(*arguments)
    assert (done.returncode, cluster.registry.exists()) == (1, False)
    assert "a data directory of broker 1 is missing, with its replicas of t-0" in done.stdout
    assert "given up with --without 1 --without 2" in done.stdout
    assert run_barnabas(*arguments, "--without", "1").returncode == 1
    done = run_barnabas(*arguments, "--json", "--without", "1", "--without", "2")
    assert (done.returncode, json.loads(done.stdout)["missing"]) == (0, {"1": ["t-0"], "2": ["t-0"]})
    assert cluster.registry.exists()


def test_a_registry_that_may_lack_records_is_no_success(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.broker(1, image((2, 3)), (4, 1))
    cluster.broker(2, None, (4, 1))
    arguments = ["cluster", "recover", "--json", "--registry", str(cluster.registry), "--data-dir", cluster.data_dir(1)]
    arguments += ["--without", "3"]
    without = run_barnabas(*arguments, "--without", "2")
    assert (without.returncode, json.loads(without.stdout)["out_of_isr"]) == (1, ["t-0"])
    assert cluster.registry.exists()
    cluster.registry.unlink()
    whole = run_barnabas(*arguments, "--data-dir", cluster.data_dir(2))
    assert (whole.returncode, json.loads(whole.stdout)["out_of_isr"]) == (0, [])


def test_a_topic_without_any_log_is_no_success(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.broker(1, image((1,), partitions=2), (4, 1))
    done = run_barnabas(
        "cluster",
        "recover",
        "--registry",
        str(cluster.registry),
        "--data-dir",
        cluster.data_dir(1),
        *("--without", "1", "--without", "2", "--without", "3"),
    )
    assert done.returncode == 1
    assert "no data directory has a replica of: t-1" in done.stdout
