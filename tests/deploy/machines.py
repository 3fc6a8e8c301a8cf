"""Runs the containers of deploy/ without a container engine, on machines of their own.

A machine has a network, process ids, a host name and mounts of its own: its names in /etc/hosts, a volume, and nothing
else that can be written. Its processes have no capabilities. What a container has beyond that, its image and its user,
is not there: `barnabas` is the one that is tested.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.attached import attached
from deploy.deployed import Container
from network_namespaces import Network

SOON_S = 60.0
SET_UP = """
set -e
hosts=$1 volume=$2 name=$3; shift 3
mount --bind "$hosts" /etc/hosts
mount -t tmpfs tmpfs /var/lib
mkdir /var/lib/barnabas
mount --bind "$volume" /var/lib/barnabas
mount -t tmpfs tmpfs /tmp
mount -o remount,bind,ro /
hostname "$name"
exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all "$@"
"""


class Machine:
    """A machine with a container, which can be stopped and started again as another machine with the same volume."""

    def __init__(self, network: Network, number: int, container: Container, directory: Path) -> None:
        network.add(number)
        self.container = container
        self.address = network.host(number)
        self._command = network.command(number)
        self._hosts = directory / f"hosts-{number}"
        self._hosts.touch()
        self._volume = directory / container.name
        self._volume.mkdir(exist_ok=True)
        self._log = directory / f"{container.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        tools = Path(sys.executable).parent  # where the image has /opt/barnabas/bin
        self._environment = {
            **container.environment,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path.endswith("src")),
        }

    def know(self, names: Mapping[str, str]) -> None:
        """Sets the names in /etc/hosts, of a machine that runs as well."""
        self._hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{ip} {name}\n" for name, ip in names.items()))

    def start(self) -> None:
        argv = [
            *(*self._command, "unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"),
            *("sh", "-c", SET_UP, "sh", str(self._hosts), str(self._volume), self.container.name),
            *self.container.command,
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(attached(argv), stdout=log, stderr=log, env=self._environment)

    def _first_process(self) -> int:
        """Returns the id, on this machine, of the process that has id 1 there."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        wait_for(children.read_text, f"the start of {self.container.name}")
        return int(children.read_text())

    def run(self, *command: str, timeout_s: float = SOON_S) -> "subprocess.CompletedProcess[str]":
        """Runs a command inside, as a probe is."""
        inside = ["nsenter", f"--target={self._first_process()}", "--mount", "--pid", "--net", "--uts", "--wd=/"]
        return subprocess.run(
            [*inside, "setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", *command],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def serves(self) -> bool:
        """Runs the probe."""
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        return self.run(*self.container.probe).returncode == 0

    def takes_connections(self, port: int) -> bool:
        try:
            socket.create_connection((self.address, port), 5).close()
        except OSError:
            return False
        return True

    def signal(self, number: int) -> None:
        os.kill(self._first_process(), number)

    def stop(self) -> int:
        """Stops the container in order, and returns its exit code."""
        assert self._process is not None
        self.signal(signal.SIGTERM)
        return self._process.wait(self.container.stop_s)

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait(SOON_S)

    def log(self) -> str:
        return self._log.read_text()[-3000:]


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def wait_until_all_serve(machines: Sequence[Machine]) -> None:
    for machine in machines:
        wait_for(machine.serves, f"{machine.container.name} is not live: {machine.log()}")


@contextmanager
def published(ports: Mapping[int, tuple[str, int]]) -> Iterator[None]:
    """Forwards connections to ports of this machine's loopback interface to others, as a container engine does for
    published ports."""
    listeners = {socket.create_server(("127.0.0.1", port)): target for port, target in ports.items()}
    open_sockets: list[socket.socket] = list(listeners)

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def accept(listener: socket.socket, target: tuple[str, int]) -> None:
        with suppress(OSError):
            while True:
                here, _ = listener.accept()
                there = socket.create_connection(target)
                open_sockets.extend((here, there))
                for ends in ((here, there), (there, here)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    threads = [threading.Thread(target=accept, args=each) for each in listeners.items()]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for each in open_sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in threads:
            thread.join(SOON_S)
