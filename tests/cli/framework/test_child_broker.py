"""A broker in a child process of a command: its errors and its end."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barnabas import Admin
from barnabas.cli.framework.child_broker import ChildBroker
from barnabas.cli.framework.output import CommandFailed


def test_a_child_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(CommandFailed, match=r"log\.segment\.bytes"),
        ChildBroker(tmp_path, "127.0.0.1:0", {"log.segment.bytes": "x"}),
    ):
        pass


def test_a_child_ends_with_its_block(tmp_path: Path) -> None:
    with ChildBroker(tmp_path, "127.0.0.1:0") as child:
        address = child.address
        with Admin(bootstrap_servers=address) as admin:
            assert len(admin.describe_cluster().brokers) == 1
    with ChildBroker(tmp_path, address):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_no_broker_is_left_behind(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import sys, time; from pathlib import Path; from barnabas.cli.framework.child_broker import ChildBroker\n"
        "with ChildBroker(Path(sys.argv[1]), '127.0.0.1:0') as child: print(child.address, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        host, port = process.stdout.readline().strip().split(":")
        process.send_signal(number)
        process.wait(60)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), 30).close()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            pass  # it was closing its listener just then: look again
        time.sleep(0.02)
    pytest.fail("the broker is still there")
