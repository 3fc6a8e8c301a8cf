"""`barnabas log-dirs`."""

import json
import subprocess
from pathlib import Path

from barnabas.cli.cluster import log_dirs
from barnabas.client.admin.log_dirs import LogDir
from barnabas.testing import Broker
from barnabas.types import BrokerId
from cli.conftest import Run, run_barnabas


def test_log_directories(in_process: Run, topic: str) -> None:
    (directory,) = json.loads(in_process("log-dirs", "--topic", topic, "--json").stdout)
    assert [(r["topic"], r["partition"]) for r in directory["replicas"]] == [(topic, 0), (topic, 1)]
    assert directory["size_bytes"] == directory["replicas"][0]["size_bytes"] > 0
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
    assert directory["path"] in in_process("log-dir", "--replicas").stdout
    missing = in_process("log-dirs", "--broker", "99")
    assert missing.returncode == 1
    assert "broker 99 is not in the cluster; its brokers are " in missing.stderr


def test_a_full_disk_is_called_full() -> None:
    row = log_dirs._row(LogDir(BrokerId(1), "/d", 0, 10**9, 4096, ()))
    assert log_dirs._text([row], with_replicas=False).endswith("the disk is full")


def test_a_replica_moves_to_another_directory(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with Broker(data_dir=f"{one},{two}") as broker:

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            return run_barnabas(*arguments, environment={"BARNABAS_BOOTSTRAP": broker.bootstrap_servers})

        assert run("topics", "create", "flights", "--partitions", "2").returncode == 0
        moved = run("log-dirs", "move", "flights", "--to", str(two), "--wait")
        assert moved.returncode == 0, moved.stderr
        assert moved.stdout.count("moved") == 2
        found = {each["path"]: each["replicas"] for each in json.loads(run("log-dirs", "--json").stdout)}
        assert found[str(one)] == []
        assert [(r["topic"], r["partition"], r["is_future"]) for r in found[str(two)]] == [
            ("flights", 0, False),
            ("flights", 1, False),
        ]
        refused = run("log-dirs", "move", "flights:0", "--to", str(tmp_path / "three"))
        assert refused.returncode == 1
        assert refused.stderr == (
            f"barnabas: broker 1 has no log directory {tmp_path / 'three'}; it has {one}, {two} (LOG_DIR_NOT_FOUND)\n"
        )
