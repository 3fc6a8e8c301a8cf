"""`barnabas serve --zookeeper`: brokers that find each other there, with clients."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin, NewTopic, Producer, TopicPartition
from barnabas.config.broker import BrokerConfig
from barnabas.errors import UsageError
from broker.cluster.clusters import wait_for
from cli.conftest import run_barnabas
from zookeeper_server import ZooKeeperServer, another_program

Serve = Callable[..., "subprocess.Popen[str]"]
AS_ON_ANOTHER_MACHINE = """
import sys
from barnabas.broker import server
from barnabas.cli.main import run
boot = sys.argv.pop(1)
made = server.Broker.__init__
server.Broker.__init__ = lambda self, *args, **named: made(self, *args, **named, boot=boot)
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture
def serve(zookeeper: ZooKeeperServer) -> Iterator[Serve]:
    connect = zookeeper.new_path()
    running: list[subprocess.Popen[str]] = []

    def start(
        directory: Path, *arguments: str, machine: str = "", stderr: int = subprocess.DEVNULL
    ) -> "subprocess.Popen[str]":
        """`machine` is the name of another one on which the broker seems to run."""
        command = [sys.executable, "-m", "barnabas", "serve", "--zookeeper", connect, "--data-dir", str(directory)]
        if machine:
            command[1:3] = ["-c", AS_ON_ANOTHER_MACHINE, machine]
        environment = {name: text for name, text in os.environ.items() if not name.startswith("BARNABAS_")}
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", "--set", "broker.session.timeout.ms=3000", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment,
        )
        running.append(process)
        return process

    yield start
    for each in running:
        with contextlib.suppress(ProcessLookupError):
            each.kill()
        each.communicate()


def ready(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Returns the node id and the address of a broker."""
    assert process.stdout is not None
    words = process.stdout.readline().split()
    assert words[:2] == ["barnabas", "broker"], words
    return int(words[2]), words[6]


def test_three_brokers_with_ids_from_zookeeper(serve: Serve, tmp_path: Path) -> None:
    directories = [tmp_path / name for name in "abc"]
    processes = [serve(directory) for directory in directories]
    started = [ready(process) for process in processes]
    by_id = {node_id: (process, directory) for (node_id, _), process, directory in zip(started, processes, directories)}
    assert sorted(by_id) == [1001, 1002, 1003]
    servers = ",".join(address for _, address in started)
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        wait_for(lambda: sorted(admin.describe_cluster().brokers) == [1001, 1002, 1003], "word of all brokers")
        admin.create_topics(NewTopic("t", 1, 3, {"min.insync.replicas": "2"}))
        producer.send("t", b"one").result(timeout=60)
        victim = admin.describe_cluster().controller_id
        process, directory = by_id[victim]
        process.send_signal(signal.SIGKILL)
        producer.send("t", b"two").result(timeout=60)
        wait_for(lambda: admin.describe_cluster().controller_id != victim, "another controller")
        assert ready(serve(directory))[0] == victim, "the id of before"
        assert admin.list_offsets({TopicPartition("t", 0): "latest"})[TopicPartition("t", 0)].offset == 2


def test_a_broker_ends_when_another_process_has_taken_its_place(serve: Serve, tmp_path: Path) -> None:
    """It stood still on another machine until its session was over, and would use the registration of the other one."""
    session = "--set", "zookeeper.session.timeout.ms=4000"
    ready(serve(tmp_path / "1", "--node-id", "1"))
    old = serve(tmp_path / "2", "--node-id", "2", *session, machine="another")
    ready(old)
    old.send_signal(signal.SIGSTOP)

    def is_replaced() -> bool:
        stdout = serve(tmp_path / "new 2", "--node-id", "2", *session).stdout
        return stdout is not None and "is ready" in stdout.readline()

    wait_for(is_replaced, "the end of the session")
    old.send_signal(signal.SIGCONT)
    assert old.wait(60) == 1


def test_a_copy_of_a_broker_never_takes_its_place(serve: Serve, tmp_path: Path) -> None:
    """On the machine of the broker, whatever its session, and from another one as long as that lasts. Each copy is
    named by the doctor of the cluster that runs."""
    session = "--node-id", "1", "--set", "zookeeper.session.timeout.ms=2000"
    live = serve(tmp_path / "1", *session)
    _, address = ready(live)
    for machine, code, told in (
        ("", 2, f"node.id 1 is in use by another running broker of this cluster, process {live.pid}, which runs"),
        ("another", 75, f"that cannot be seen from here, process {live.pid}"),
    ):
        shutil.copytree(tmp_path / "1", tmp_path / f"copy{machine}")
        copy = serve(tmp_path / f"copy{machine}", *session, machine=machine, stderr=subprocess.PIPE)
        assert copy.wait(60) == code
        assert copy.stderr is not None
        *_, line = copy.stderr
        assert told in line
    assert live.poll() is None
    doctor = run_barnabas("cluster", "doctor", "-b", address)
    assert doctor.stdout.count("broker 1: has refused broker 1 from 127.0.0.1 (machine ") == 2
    for name in ("copy", "copyanother"):
        assert f"data in {tmp_path / name}), last at " in doctor.stdout


@contextlib.contextmanager
def copied_tree(zookeeper: ZooKeeperServer, root: str, _: Path) -> Iterator[str]:
    """The context in which all of the registry is at another place in ZooKeeper."""
    with another_program(zookeeper.address) as program:
        for path in [f"/{root}", *below(program, f"/{root}")]:
            content, status = program.get(path)
            if not status.ephemeralOwner:
                program.create(path.replace(root, f"{root}-copy", 1), content)
    yield f"{zookeeper.address}/{root}-copy"


@contextlib.contextmanager
def copied_disk(zookeeper: ZooKeeperServer, root: str, directory: Path) -> Iterator[str]:
    """The context in which there is another ZooKeeper with a copy of all files."""
    directory.mkdir()
    clone = zookeeper.cloned(directory)
    clone.start()
    try:
        yield f"{clone.address}/{root}"
    finally:
        clone.kill()


@pytest.mark.parametrize(
    ("copied", "reason"),
    [(copied_tree, "do not share a registry"), (copied_disk, "is the controller in epoch 2 of another registry")],
)
def test_a_copy_with_its_zookeeper_is_another_registry(
    serve: Serve,
    zookeeper: ZooKeeperServer,
    tmp_path: Path,
    copied: Callable[..., contextlib.AbstractContextManager[str]],
    reason: str,
) -> None:
    """A broker of a cluster that was copied with its registry to other machines becomes the controller there, and knows
    the addresses of the original. The brokers of that refuse it, go on, and their doctor names it."""
    started = {str(n): serve(tmp_path / str(n), "--node-id", str(n), machine="original") for n in (1, 2)}
    servers = ",".join(ready(process)[1] for process in started.values())
    connect = started["1"].args[started["1"].args.index("--zookeeper") + 1]  # type: ignore[index, union-attr]
    root = connect.partition("/")[2]
    with contextlib.ExitStack() as stack, Admin(bootstrap_servers=servers) as admin:
        wait_for(lambda: sorted(admin.describe_cluster().brokers) == [1, 2], "word of all brokers")
        before = admin.describe_cluster()
        shutil.copytree(tmp_path / "1", tmp_path / "copy")
        copy = stack.enter_context(copied(zookeeper, root, tmp_path / "zookeeper"))
        ready(serve(tmp_path / "copy", "--zookeeper", copy, "--node-id", "1", machine="another"))

        def told() -> list[str]:
            found = run_barnabas("cluster", "doctor", "-b", servers).stdout.splitlines()
            return [line for line in found if line.startswith("warn  refused")]

        (line,) = wait_for(told, "a broker that has refused the copy")
        assert f"broker 2: has refused broker 1 from 127.0.0.1 (machine {socket.gethostname()}, data in " in line
        assert reason in line
        admin.create_topics(NewTopic("t", 1, 2, {"min.insync.replicas": "2"}))
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"one").result(timeout=60)
        assert admin.describe_cluster() == before


def below(program: Any, path: str) -> Iterator[str]:
    """Yields the paths of the nodes below this one, parents first."""
    for name in program.get_children(path):
        yield (child := f"{path}/{name}")
        yield from below(program, child)


def test_a_broker_whose_machine_was_started_anew_waits_for_the_end_of_its_session(serve: Serve, tmp_path: Path) -> None:
    session = "--node-id", "1", "--set", "zookeeper.session.timeout.ms=6000"
    before = serve(tmp_path / "1", *session, machine="before")
    ready(before)
    shutil.copytree(tmp_path / "1", tmp_path / "mounted again")
    again = serve(tmp_path / "mounted again", *session, stderr=subprocess.PIPE)
    assert again.stderr is not None
    assert any("waiting until its session with ZooKeeper ends" in line for line in again.stderr)
    before.kill()
    assert ready(again)[0] == 1


@contextlib.contextmanager
def losing_connections(address: str, answers: Sequence[int]) -> Iterator[str]:
    """The context in which ZooKeeper is reached at another address, by connections that end after so many answers, one
    after the other; those after them last."""
    host, _, port = address.partition(":")

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for allowed in chain(answers, repeat(None)):
                client, real = listener.accept()[0], socket.create_connection((host, int(port)))
                threading.Thread(target=copy, args=(client, real, None), daemon=True).start()
                threading.Thread(target=copy, args=(real, client, allowed), daemon=True).start()

    def copy(source: socket.socket, target: socket.socket, allowed: int | None) -> None:
        with contextlib.suppress(OSError):
            while (allowed is None or allowed > 0) and (data := source.recv(65536)):
                allowed = None if allowed is None else allowed - 1
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_start_that_loses_its_connection_begins_anew(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    root = zookeeper.new_path().partition("/")[2]
    with losing_connections(zookeeper.address, range(2, 12)) as address:
        command = [sys.executable, "-m", "barnabas", "serve", "--zookeeper", f"{address}/{root}"]
        command += ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert ready(process)[0] >= 1001  # the answer with a number may have been lost
        finally:
            process.kill()
            _, errors = process.communicate()
    assert "the start begins anew" in errors


def test_a_start_without_zookeeper_ends(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    root = zookeeper.new_path().partition("/")[2]
    with losing_connections(zookeeper.address, [2] * 10_000) as address:
        done = run_barnabas(
            *("serve", "--zookeeper", f"{address}/{root}", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)),
            *("--set", "zookeeper.connection.timeout.ms=8000"),
        )
    assert done.returncode == 75
    assert "zookeeper.connect: " in done.stderr
    assert "start again when it is there" in done.stderr


def test_a_start_that_begins_anew_can_be_ended(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    root = zookeeper.new_path().partition("/")[2]
    with losing_connections(zookeeper.address, [2] * 10_000) as address:
        command = [sys.executable, "-m", "barnabas", "serve", "--zookeeper", f"{address}/{root}", "--node-id", "1"]
        command += ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            assert any("the start begins anew" in line for line in process.stderr)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) in (0, 128 + signal.SIGTERM)
        finally:
            process.kill()
            process.communicate()


def test_a_node_id_of_an_unused_broker_is_as_given(serve: Serve, tmp_path: Path) -> None:
    assert ready(serve(tmp_path, "--node-id", "7"))[0] == 7


def test_a_cluster_has_one_registry() -> None:
    with pytest.raises(UsageError, match="a cluster has one registry; leave one of them out"):
        BrokerConfig.of({"registry.file": "x", "zookeeper.connect": "localhost:2181"})


@pytest.mark.parametrize("text", ["", "a:1,,b:1", "a:1/b//c", "a:1//b"])
def test_what_is_no_address_is_said(tmp_path: Path, text: str) -> None:
    done = run_barnabas("serve", "--data-dir", str(tmp_path), "--zookeeper", text)
    assert done.returncode == 2
    assert "is not of the form host:2181,host:2181/path" in done.stderr


def test_brokers_of_one_supervisor_share_a_file(tmp_path: Path) -> None:
    done = run_barnabas("serve", "--brokers", "3", "--data-dir", str(tmp_path), "--zookeeper", "localhost:2181")
    assert done.returncode == 2
    assert "start each broker by `barnabas serve --zookeeper`" in done.stderr
