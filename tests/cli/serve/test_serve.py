import json
import subprocess
import sys
from pathlib import Path

from cli.conftest import run_barnabas


def test_programs_read_that_a_broker_is_ready(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "barnabas", "serve", "--json", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as broker:
        assert broker.stdout is not None
        ready = json.loads(broker.stdout.readline())
        broker.terminate()
    assert (ready["event"], ready["node_id"], ready["data_dirs"]) == ("ready", 1, [str(tmp_path)])
    (address,) = ready["addresses"]
    assert address.startswith("127.0.0.1:")
    assert broker.returncode == 0


def test_programs_read_the_settings() -> None:
    settings = {
        setting["name"]: setting for setting in json.loads(run_barnabas("serve", "--help-settings", "--json").stdout)
    }
    assert settings["log.segment.bytes"]["default"] == "1073741824"
    assert settings["log.segment.bytes"]["type"] == "int"
