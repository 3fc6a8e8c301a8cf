"""`barnabas log-dirs`."""

import json

from cli.conftest import Run


def test_log_directories(in_process: Run, topic: str) -> None:
    (directory,) = json.loads(in_process("log-dirs", "--topic", topic, "--json").stdout)
    assert [(r["topic"], r["partition"]) for r in directory["replicas"]] == [(topic, 0), (topic, 1)]
    assert directory["size_bytes"] == directory["replicas"][0]["size_bytes"] > 0
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
    assert directory["path"] in in_process("log-dir", "--replicas").stdout
    missing = in_process("log-dirs", "--broker", "99")
    assert missing.returncode == 1
    assert "broker 99 is not in the cluster; its brokers are " in missing.stderr
