"""docs/operations.md from top to bottom: its commands, as they stand there, in one shell, while clients work."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import barnabas
from code_blocks import blocks_of, environment_in
from steady_clients import steady_clients

PORTS = 4
FIRST_PORT = 9092
COMMAND_TIMEOUT_S = 180
END = "---- exit code"


def free_ports() -> int:
    """Returns the first of several free ports in a row, which the system gives nobody else meanwhile."""
    for port in range(25_000 + os.getpid() % 1500 * PORTS, 32_000, PORTS):
        with ExitStack() as taken, contextlib.suppress(OSError):
            for each in range(port, port + PORTS):
                taken.enter_context(socket.create_server(("127.0.0.1", each)))
            return port
    raise AssertionError("no ports in a row are free")


class Shell:
    """A shell at a terminal, more or less: it takes one command after the other."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, command: str) -> str:
        """Returns the output of a command that ends with exit code 0."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{command}\ncode=$?; echo; echo {END} $code\n")
        stdin.flush()
        late = threading.Timer(COMMAND_TIMEOUT_S, self.kill)
        late.start()
        output = ""
        while not (end := re.search(rf"\n?{END} (\d+)\n$", output)):
            line = stdout.readline()
            assert line, f"{command} did not end:\n{output}"
            output += line
        late.cancel()
        output = output[: end.start()]
        assert end[1] == "0", f"{command} ended with exit code {end[1]}:\n{output}"
        return output

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


@contextmanager
def shell_in(directory: Path, servers: str) -> Iterator[Shell]:
    with subprocess.Popen(
        ["bash"],
        cwd=directory,
        env=environment_in(directory, servers),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        shell = Shell(process)
        try:
            yield shell
        finally:
            shell.kill()


@pytest.mark.timeout(900)
def test_the_page_runs_from_top_to_bottom_and_clients_go_on(tmp_path: Path) -> None:
    port = free_ports()
    servers = [f"127.0.0.1:{port + number}" for number in range(PORTS)]
    blocks = blocks_of("docs/operations.md")
    assert {block.language for block in blocks} == {"console"}
    shown: dict[str, str] = {}
    with shell_in(tmp_path, ",".join(servers[:3])) as shell, ExitStack() as work:
        for number, block in enumerate(blocks):
            if number == 1:
                with barnabas.Admin(bootstrap_servers=servers[0]) as admin:
                    admin.create_topics(barnabas.NewTopic("steady", 3))
                work.enter_context(steady_clients(",".join(servers), "steady"))
            if number == len(blocks) - 1:
                work.close()
            for command in block.commands:
                own = re.sub(r"127\.0\.0\.1:(\d+)", lambda found: servers[int(found[1]) - FIRST_PORT], command)
                shown[f"{block.section}: {command}"] = shell.run(own)
    assert "has one replica: groups" in shown["From one broker to three: barnabas cluster doctor || true"]
    assert "nothing has failed" in shown["From one broker to three: barnabas cluster doctor"]
    assert shown["A rolling restart: barnabas cluster roll --data-dir data"].endswith("restarted 3 brokers\n")
    assert "PLAN" in shown["Adding a broker: barnabas cluster balance"]
    assert "moved " in shown["Adding a broker: barnabas cluster balance --execute --throttle 50000000"]
    assert "moved " in shown["Removing a broker: barnabas cluster drain 4 --execute --throttle 50000000"]
    assert shown["Removing a broker: barnabas cluster drain 4"].endswith("broker 4 has no replicas\n")
    assert (
        "broker        broker 1,2,3: live"
        in shown["The registry is lost: until barnabas cluster doctor; do sleep 1; done"]
    )
