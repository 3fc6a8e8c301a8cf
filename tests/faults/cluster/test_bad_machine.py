"""The machine with bad disks does to a process what it says, in front of Python and SQLite alike."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.bad_machine import BadMachine, Calls, build

WRITE = "import os; fd = os.open('{0}/log', os.O_RDWR | os.O_CREAT); os.pwritev(fd, [b'x'], 0); print('written')"
SYNC = f"{WRITE}; os.fdatasync(fd); print('synced')"
QUERY = "import sqlite3; sqlite3.connect('{0}/log').execute('CREATE TABLE t (x)').connection.commit(); print('kept')"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[BadMachine]:
    build(tmp_path / "library.so")
    made = BadMachine(tmp_path / "library.so", tmp_path / "control")
    yield made
    made.close()


def start(machine: BadMachine, code: str, directory: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", code.format(directory)]
    return subprocess.Popen(
        command,
        env=machine.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def told(machine: BadMachine, code: str, directory: Path) -> list[str]:
    return start(machine, code, directory).communicate()[0].split()


@pytest.mark.parametrize(
    ("calls", "code", "expected"),
    [
        (Calls.WRITES, WRITE, []),
        (Calls.READS, WRITE, ["written"]),
        (Calls.SYNCS, SYNC, ["written"]),
        (Calls.WRITES, QUERY, []),
        (Calls.SYNCS, QUERY, []),
        (Calls.NAMES, QUERY, []),
    ],
)
def test_calls_fail_until_the_disk_is_good_again(
    machine: BadMachine, tmp_path: Path, calls: Calls, code: str, expected: list[str]
) -> None:
    machine.fail(f"{tmp_path}/log", calls)
    assert told(machine, code, tmp_path) == expected
    machine.heal()
    (tmp_path / "log").unlink(missing_ok=True)
    assert told(machine, code, tmp_path) == [
        *(["written"] if "written" in code else ["kept"]),
        *["synced"] * (code == SYNC),
    ]


@pytest.mark.parametrize(
    ("calls", "call"),
    [
        (Calls.READS, "os.pread(fd, 1, 0)"),
        (Calls.READS, "os.preadv(fd, [bytearray(1)], 0)"),
        (Calls.READS, "os.sendfile(2, fd, 0, 1)"),
        (Calls.WRITES, "os.write(fd, b'x')"),
        (Calls.WRITES, "os.pwrite(fd, b'x', 0)"),
        (Calls.WRITES, "os.pwritev(fd, [b'x'], 0)"),
        (Calls.WRITES, "os.ftruncate(fd, 0)"),
        (Calls.WRITES, "os.posix_fallocate(fd, 0, 2)"),
        (Calls.SYNCS, "os.fsync(fd)"),
        (Calls.SYNCS, "os.fdatasync(fd)"),
    ],
)
def test_each_call_of_a_log_is_met_on_a_file_that_is_open(
    machine: BadMachine, tmp_path: Path, calls: Calls, call: str
) -> None:
    (tmp_path / "log").write_text("x")
    code = f"import os; fd = os.open('{{0}}/log', os.O_RDWR); print('open', flush=True); input(); {call}; print('done')"
    for kind, expected in ((Calls.ALL & ~calls, ["done"]), (calls, [])):
        with start(machine, code, tmp_path) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "open\n"
            machine.fail(f"{tmp_path}/log", kind)
            assert process.communicate("\n")[0].split()[-1:] == expected
        machine.heal()


NAMES = [
    *(
        f"os.{call}({of}, {to})"
        for call in ("rename", "replace", "link")
        for of, to in (
            ("'{0}/disk/log'", "'{0}/new'"),
            ("'{0}/other'", "'{0}/disk/new'"),
            ("'log'", "'new'"),
            ("'../other'", "'.//../disk/./new'"),
            ("'log'", "'{0}/new', src_dir_fd=disk"),
            ("'{0}/other'", "'new', dst_dir_fd=disk"),
        )
    ),
    *(
        f"os.{call}({path})"
        for call, name in (("unlink", "log"), ("remove", "log"), ("rmdir", "empty"), ("mkdir", "new"))
        for path in (f"'{{0}}/disk/{name}'", f"'{name}'", *([f"'{name}', dir_fd=disk"] * (call != "remove")))
    ),
    *(f"os.symlink('x', {path})" for path in ("'{0}/disk/new'", "'new'", "'new', dir_fd=disk")),
]


@pytest.mark.parametrize(
    ("calls", "call"),
    [
        *((Calls.NAMES, call) for call in NAMES),
        *((Calls.WRITES, f"os.truncate({path}, 0)") for path in ("'{0}/disk/log'", "'log'")),
        (Calls.WRITES, "os.open('new', os.O_CREAT, dir_fd=disk)"),
        (Calls.READS, "os.open('log', os.O_RDONLY, dir_fd=disk)"),
        *(
            (Calls.READS, f"os.{call}({of})")
            for call in ("scandir", "listdir")
            for of in ("'{0}/disk'", "'.'", "'empty'", "disk")
        ),
        *((Calls.READS, f"os.{call}('log')") for call in ("stat", "lstat", "statvfs")),
        (Calls.READS, "os.stat('log', dir_fd=disk)"),
    ],
)
def test_each_call_with_a_path_is_met_wherever_it_begins(
    machine: BadMachine, tmp_path: Path, calls: Calls, call: str
) -> None:
    (tmp_path / "disk/empty").mkdir(parents=True)
    for name in ("other", "disk/log"):
        (tmp_path / name).write_text("x")
    before = sorted(tmp_path.glob("**/*"))
    begin = "import os; os.chdir('{0}/disk'); disk = os.open('{0}/disk', os.O_RDONLY)"
    code = f"{begin}; print('open', flush=True); input(); {call}; print('done')"
    for kind, expected in ((calls, []), (Calls.ALL & ~calls, ["done"])):
        with start(machine, code, tmp_path) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "open\n"
            machine.fail(f"{tmp_path}/disk/", kind)
            assert process.communicate("\n")[0].split() == expected
        machine.heal()
        assert expected or sorted(tmp_path.glob("**/*")) == before


def test_a_directory_is_not_removed_with_its_files(machine: BadMachine, tmp_path: Path) -> None:
    """By names within a directory that is open."""
    (tmp_path / "disk/full").mkdir(parents=True)
    (tmp_path / "disk/full/log").touch()
    remove = "import shutil; shutil.rmtree('{0}/disk/full', ignore_errors=True); print('done')"
    for calls in (Calls.NAMES, Calls.READS):
        machine.fail(f"{tmp_path}/disk/", calls)
        assert told(machine, remove, tmp_path) == ["done"]
        assert (tmp_path / "disk/full/log").exists()
    machine.heal()
    assert told(machine, remove, tmp_path) == ["done"]
    assert not (tmp_path / "disk/full").exists()


def test_calls_elsewhere_are_not_met(machine: BadMachine, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "other").write_text("x")
    machine.fail(f"{tmp_path}/disk/", Calls.ALL)
    moves = "import os; os.rename('{0}/other', '{0}/disk2'); os.chdir('{0}'); os.rename('disk/../disk2', 'other')"
    assert told(machine, f"{moves}; print('done')", tmp_path) == ["done"]


def test_calls_wait_until_the_disk_goes_on(machine: BadMachine, tmp_path: Path) -> None:
    machine.hang(f"{tmp_path}/log", Calls.SYNCS)
    with start(machine, SYNC.replace("written'", "written', flush=True"), tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["written"]
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        machine.heal()
        assert process.stdout.readline().split() == ["synced"]


def test_the_clock_jumps(machine: BadMachine, tmp_path: Path) -> None:
    machine.set_clock(-3600)
    (now,) = told(machine, "import time; print(time.time())", tmp_path)
    assert time.time() - 3700 < float(now) < time.time() - 3500
