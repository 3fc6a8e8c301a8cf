"""docs/operations.md from top to bottom: its blocks, as they stand there, in one shell, while clients work."""

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import barnabas
from code_blocks import FILE_NAME, blocks_of, environment_in
from steady_clients import steady_clients
from zookeeper_server import ZooKeeperServer

PORTS = 7
FIRST_PORT = 9092
BROKERS = 4
"""The ports from the first on which have brokers of the cluster; the others are for a copy."""
COMMAND_TIMEOUT_S = 180
END = "---- exit code"
SERVICE = "A service for each broker"
LOST = "The registry is lost"
RESTORE = "Restoring"
THE_END = "The end"
WITH_A_FILE = {LOST, "Backup and restore", "A look into a copy", RESTORE}


def free_ports() -> int:
    """Returns the first of several free ports in a row, which the system gives nobody else meanwhile."""
    for port in range(25_000 + os.getpid() % 900 * PORTS, 32_000, PORTS):
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


def install(directory: Path, release: str, source: Path | None = None) -> None:
    """Makes the environment of a release, whose `barnabas` is what lies in `source`, or what is tested here. Each start
    is noted in the file `starts`."""
    command = directory / f"barnabas-{release}" / "bin" / "barnabas"
    command.parent.mkdir(parents=True)
    path = "" if source is None else f"PYTHONPATH={shlex.quote(str(source))} "
    start = f'{path}exec {shlex.quote(sys.executable)} -m barnabas "$@"'
    command.write_text(f"#!/bin/sh\necho {release} >> {shlex.quote(str(directory / 'starts'))}\n{start}\n")
    command.chmod(0o755)


def kill_services(directory: Path) -> None:
    """Kills the brokers that the page's script has left running."""
    for file in directory.glob("machine-*/pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


def run_the_page(directory: Path, *, zookeeper: str = "", before: Path | None = None) -> None:
    """Runs all blocks and looks at what they show. `before`: the release that the page upgrades from, None: this one.
    With a place for the registry in ZooKeeper it moves there as soon as each broker is a service."""
    port = free_ports()
    servers = [f"127.0.0.1:{port + number}" for number in range(BROKERS)]
    blocks = [block for block in blocks_of("docs/operations.md") if not zookeeper or block.section not in WITH_A_FILE]
    shown: dict[str, str] = {}
    install(directory, "0.1", before)
    install(directory, "0.2")
    with shell_in(directory, ",".join(servers[:3])) as shell, ExitStack() as work:
        work.callback(kill_services, directory)
        for number, block in enumerate(blocks):
            if number == 1:
                with barnabas.Admin(bootstrap_servers=servers[0]) as admin:
                    admin.create_topics(barnabas.NewTopic("steady", 3))
                clients = work.enter_context(ExitStack())
                clients.enter_context(steady_clients(",".join(servers), "steady"))
            if block.section in (RESTORE, THE_END):
                clients.close()
            text = re.sub(r"\b909\d\b", lambda found: str(port + int(found[0]) - FIRST_PORT), block.text)
            if zookeeper:
                text = re.sub(r"--registry \S+", f"--zookeeper {zookeeper}", text)
            if name := FILE_NAME.match(text):
                (directory / name[1]).write_text(text)
                continue
            assert block.language == "console", f"line {block.line}: nobody knows how to run {block.language}"
            for command in block._replace(text=text).commands:
                shown[f"{block.section}: {command}"] = shell.run(command)
                if zookeeper and block.section == SERVICE and command == "kill $serve && wait $serve":
                    shell.run(f"barnabas cluster migrate-registry --from data/registry.db --to {zookeeper}")
    assert "has one replica: groups" in shown["From one broker to three: barnabas cluster doctor || true"]
    assert "nothing has failed" in shown["From one broker to three: barnabas cluster doctor"]
    assert shown["A rolling restart: barnabas cluster roll --data-dir data"].endswith("restarted 3 brokers\n")
    rolls = [shown[each].splitlines()[-1] for each in shown if "roll --" in each and "restart {id}" in each]
    assert rolls == ["restarted 3 brokers", "restarted 1 broker", "restarted 1 broker", "restarted 3 brokers"]
    starts = ["0.1"] * 6 + ["0.2", "0.1"] + ["0.2"] * (3 if zookeeper else 12)
    assert (directory / "starts").read_text().split() == starts
    moved = [text for command, text in shown.items() if "reassign status" in command]
    assert "no reassignment is in progress" in moved[-1]
    assert "removed the throttle from 1 topic" in "".join(moved)
    assert "PLAN" in shown["Adding a broker: barnabas cluster balance"]
    assert "moved " in shown["Adding a broker: barnabas cluster balance --execute --throttle 50000000"]
    assert "moved " in shown["Removing a broker: barnabas cluster drain 4 --execute --throttle 50000000"]
    assert shown["Removing a broker: barnabas cluster drain 4"].endswith("broker 4 has no replicas\n")
    if not zookeeper:
        assert "broker        broker 1,2,3: live" in shown[f"{LOST}: until barnabas cluster doctor; do sleep 1; done"]
        counts = [text.split()[-1] for command, text in shown.items() if command.endswith("| wc -l")]
        assert counts == ["1000", "1000"], "in the copy, and when it was restored"


@pytest.mark.timeout(900)
def test_the_page_runs_from_top_to_bottom_and_clients_go_on(tmp_path: Path) -> None:
    run_the_page(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_page_runs_with_zookeeper(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    run_the_page(tmp_path, zookeeper=zookeeper.new_path())
