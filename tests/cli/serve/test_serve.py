import json
import subprocess
import sys
from pathlib import Path

from barnabas.version import __version__
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
    assert ready["release"] == __version__
    (address,) = ready["addresses"]
    assert address.startswith("127.0.0.1:")
    assert broker.returncode == 0


def test_programs_read_the_settings() -> None:
    settings = {
        setting["name"]: setting for setting in json.loads(run_barnabas("serve", "--help-settings", "--json").stdout)
    }
    assert settings["log.segment.bytes"]["default"] == "1073741824"
    assert settings["log.segment.bytes"]["type"] == "int"


def test_a_configuration_is_checked_without_a_start(tmp_path: Path) -> None:
    settings, data = tmp_path / "server.properties", tmp_path / "data"
    settings.write_text(f"log.dirs={data}\nlog.segment.byte=1\nnum.partitions=many\nnum.io.threads=8\n")
    done = run_barnabas("serve", "--check", "--config", str(settings))
    assert (done.returncode, done.stdout) == (2, "")
    told = [line.removeprefix(f"barnabas: {settings}:")[:1] for line in done.stderr.splitlines()]
    assert told == ["2", "3", "b"], done.stderr
    assert "num.io.threads" in done.stderr.splitlines()[-1]

    settings.write_text(f"log.dirs={data}\nlisteners=PLAINTEXT://127.0.0.1:7000\nnum.io.threads=8\n")
    done = run_barnabas("serve", "--check", "--config", str(settings), "--brokers", "2")
    told = "nothing is wrong with the settings of 2 brokers: PLAINTEXT://127.0.0.1:7000, PLAINTEXT://127.0.0.1:7001\n"
    assert (done.returncode, done.stdout) == (0, told)
    assert "num.io.threads" in done.stderr
    assert not data.exists()


def test_the_ids_of_data_directories_are_checked_without_a_start(tmp_path: Path) -> None:
    there, other = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
    (tmp_path / "meta.properties").write_text(f"version=1\nnode.id=1\ndirectory.id={there}\n")

    def check(*options: str) -> tuple[int, str]:
        done = run_barnabas("serve", "--check", "--data-dir", str(tmp_path), *options)
        return done.returncode, done.stderr

    assert check(f"--accept-old-dir={there}", f"--lost-dir={other}") == (0, "")
    code, told = check(f"--accept-old-dir={other}", f"--lost-dir={there}")
    unknown, lost = told.splitlines()
    assert (code, lost) == (
        2,
        f"barnabas: --lost-dir={there}: it is there, at {tmp_path}; start without the option",
    )
    assert unknown.endswith(f"={other}: must be the directory.id of a data directory in log.dirs: {there} ({tmp_path})")
    assert "--accept-old-dir x: must be a directory.id" in check("--accept-old-dir=x")[1]


def test_programs_read_what_is_wrong_with_a_configuration(tmp_path: Path) -> None:
    done = run_barnabas("serve", "--check", "--json", "--zookeeper", "host:99999", "--data-dir", str(tmp_path))
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr, found["ok"], found["warnings"]) == (2, "", False, [])
    assert found["errors"][0].startswith("zookeeper.connect: 'host:99999' is not of the form")


def test_a_start_without_descriptors_names_the_limit(tmp_path: Path) -> None:
    for limit in (6, 7):
        command = ["sh", "-c", f'ulimit -n {limit}; exec "$0" -m barnabas serve --data-dir data', sys.executable]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in (1, 2, 75), done.stderr
        assert "too many open files" in done.stderr.lower(), done.stderr
        assert "raise the limit on open files (ulimit -n)" in done.stderr
        assert "Traceback" not in done.stderr
