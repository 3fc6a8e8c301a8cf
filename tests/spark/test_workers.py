"""What is done to the connections of a worker."""

import contextlib
import gc
import os
import pickle
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec

import pytest

from barnabas.spark import workers
from barnabas.spark.workers import TaskState, prepare_worker, stop_delayed_acknowledgements


class Rules(TaskState):
    def __init__(self) -> None:
        self.word = "kept"


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection by TCP, both ends."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        yield one, other


def is_quick(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


def descriptors_of(connection: socket.socket) -> int:
    """The number of descriptors that refer to it: threads of other tests may open and close theirs meanwhile."""
    inode, found = os.fstat(connection.fileno()).st_ino, 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.stat(f"/proc/self/fd/{name}").st_ino == inode
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system does not list what is open")
def test_a_task_that_is_unpickled_speaks_up(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    pickled = pickle.dumps(Rules())
    assert not is_quick(one)
    assert pickle.loads(pickled).word == "kept"  # noqa: S301 -- our own, as Spark does it
    assert is_quick(one)
    assert is_quick(other)
    assert descriptors_of(one) == descriptors_of(other) == 1
    one.sendall(b"still open")
    assert other.recv(100) == b"still open"


def test_a_python_without_ctypes_settles_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    monkeypatch.setattr(workers, "_calls", 0)
    prepare_worker()
    assert workers._calls == 1


def test_where_nothing_is_listed_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[socket.socket, socket.socket]
) -> None:
    monkeypatch.setattr(workers, "_OPEN_FILES", "/nowhere")
    stop_delayed_acknowledgements()
    assert not is_quick(pair[0])


def test_memory_is_frozen_twice_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_calls", 0)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    for _ in range(4):
        prepare_worker()
    assert len(frozen) == 2


def test_a_process_that_serves_one_query_collects_no_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_calls", 0)
    monkeypatch.setattr(gc, "collect", lambda: pytest.fail("15 ms of each start of a stream"))
    prepare_worker()


FAULTS = """
import resource
from barnabas.spark.workers import prepare_worker
prepare_worker()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = faults()
for _ in range(20):
    pieces = [b"x" * size for size in (4_000_000, 4_100_000, 4_200_000)]
    del pieces
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_large_pieces_of_memory_are_used_again() -> None:
    """All that there are at one time have 3,000 pages."""
    found = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 10_000
