"""Uses an installed barnabas as a stranger does: `python smoke.py compiled` or `python smoke.py plain`.

Needs nothing but that installation: cibuildwheel runs this after each build, and check_wheels.py in empty environments.
"""

import os
import re
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
COMMAND = Path(sysconfig.get_path("scripts"), "barnabas")
LIMIT_S = 120


def barnabas(*arguments: str, given: str = "") -> str:
    done = subprocess.run(
        [COMMAND, *arguments], input=given, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode:
        sys.exit(f"barnabas {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def expect(found: object, expected: object) -> None:
    if found != expected:
        sys.exit(f"expected {expected!r}, found {found!r}")


def wait_for(ready: Path, broker: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + LIMIT_S
    while not ready.exists():
        if broker.poll() is not None or time.monotonic() > end:
            sys.exit(f"the broker is not ready; its exit code is {broker.poll()}")
        time.sleep(0.05)


def run(compiled: bool, home: Path) -> None:
    expect("compiled modules in use" in barnabas("--version"), compiled)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    ready = home / "ready"
    serve = [COMMAND, "serve", "--data-dir", home / "data", "--listen", address, "--ready-file", ready]
    with subprocess.Popen(serve, stdout=subprocess.DEVNULL) as broker:
        try:
            wait_for(ready, broker)
            barnabas("topics", "create", "smoke", "--partitions", "1", "-b", address)
            barnabas("produce", "smoke", "--key-separator", ":", "-b", address, given="k1:one\nk2:two\n")
            consumed = barnabas("consume", "smoke", "-e", "-f", "%o %k %v\\n", "-b", address)
            expect(consumed, "0 k1 one\n1 k2 two\n")
            section = README.read_text(encoding="utf-8").partition("## From Python")[2].partition("\n## ")[0]
            blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
            program = home / "readme.py"
            program.write_text("\n".join(blocks).replace("127.0.0.1:9092", address), encoding="utf-8")
            subprocess.run([sys.executable, program], check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)
        finally:
            broker.terminate()
    expect(broker.returncode, 0)


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as made:
        os.chdir(made)
        run({"compiled": True, "plain": False}[sys.argv[1]], Path(made))
    print("all is well")
