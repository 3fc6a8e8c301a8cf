"""The commands of the README, as they stand there, one after the other."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from cli.conftest import run_barnabas

README = Path(__file__).parents[2] / "README.md"


def commands() -> list[str]:
    section = README.read_text().partition("## On the laptop")[2].partition("\n## ")[0]
    block = re.search(r"```console\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return [line.removeprefix("$ ") for line in block[1].splitlines()]


def test_the_commands_work(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    door = tmp_path / "bin" / "barnabas"
    door.parent.mkdir()
    door.write_text(f'#!/bin/sh\nexec {sys.executable} -m barnabas "$@"\n')
    door.chmod(0o755)
    environment = {**os.environ, "PATH": f"{door.parent}:{os.environ['PATH']}", "BARNABAS_BOOTSTRAP": address}
    serve, *others = [line.replace("127.0.0.1:9092", address) for line in commands()]
    ready = tmp_path / "ready"
    with subprocess.Popen(
        f"exec {serve} --ready-file {ready}", shell=True, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL
    ) as broker:
        try:
            while not ready.exists():
                assert broker.poll() is None
            shown = {}
            for line in others:
                done = subprocess.run(
                    line,
                    shell=True,
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                assert done.returncode == 0, f"{line}: {done.stderr}"
                shown[line.split()[1] if line.startswith("barnabas") else "produce"] = done.stdout
        finally:
            broker.terminate()
    assert re.fullmatch(r'orders-\d@0 k1 \{"total": 12\}\n', shown["consume"])
    assert "lag 0" in shown["groups"]
    assert "all is well" in shown["doctor"]
    assert run_barnabas("topics", "list", "-b", address).returncode == 1, "the broker has ended"
