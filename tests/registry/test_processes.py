"""The certain evidence that a broker is dead: real processes, and a /proc that the test writes."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.log.directories.data_directory import read_boot_id
from barnabas.registry import processes
from barnabas.registry.processes import (
    begin_process,
    describe_process,
    end_process,
    is_of_another_boot,
    is_running,
    is_visible,
    on_end,
    parse_process,
)
from registry.other_process import Child, other_process
from registry.other_process import child as child


def changed(process: str, index: int, value: str) -> str:
    parts = process.split("|")
    parts[index] = value
    return "|".join(parts)


BOOT, NAMESPACE, PID, STARTED = range(4)


# --- brokers of this process -----------------------------------------------------------------------------------------


def test_brokers_of_one_process_end_one_by_one() -> None:
    one, two = begin_process(), begin_process()
    assert one != two
    assert is_running(one)
    assert is_running(two)
    end_process(one)
    assert not is_running(one)
    assert is_running(two)
    end_process(one)
    end_process(two)
    assert not is_running(two)
    assert parse_process(two) is None, "this process is not watched from outside"


def test_the_end_of_a_broker_of_this_process_is_told_once() -> None:
    process, calls = begin_process(), list[int]()
    assert on_end(process, lambda: calls.append(1))
    assert on_end(process, lambda: calls.append(2))
    assert calls == []
    end_process(process)
    assert calls == [1, 2]
    end_process(process)
    assert calls == [1, 2]
    assert not on_end(process, lambda: calls.append(3))


# --- other processes -------------------------------------------------------------------------------------------------


def test_another_process_runs_until_it_is_killed(child: Child) -> None:
    process, text = child
    assert is_running(text)
    assert parse_process(text) == process.pid
    assert not on_end(text, lambda: None)
    os.kill(process.pid, signal.SIGSTOP)
    assert is_running(text), "a stopped process may go on"
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{process.pid}").exists(), "its parent has not taken notice: a zombie"
    assert not is_running(text)
    process.wait()
    assert not is_running(text)


def test_a_process_id_that_is_used_again_is_another_process(child: Child) -> None:
    _, text = child
    assert not is_running(changed(text, STARTED, "1"))
    own = begin_process()
    assert not is_running(changed(own, STARTED, "1")), "even if it is this one"
    end_process(own)


def test_of_another_boot_nothing_is_known(child: Child) -> None:
    """It may be that of a container, which is told another one, or of another machine."""
    process, text = child
    assert (is_visible(text), is_of_another_boot(text)) == (True, False)
    other = changed(text, BOOT, "0c1bd0b2-0000-4000-8000-000000000000")
    process.kill()
    process.wait()
    assert is_running(other)
    assert parse_process(other) is None
    assert (is_visible(other), is_of_another_boot(other)) == (False, True)
    assert not is_of_another_boot(f"{other}|several")


def test_a_process_is_described_to_those_who_look_for_it(child: Child) -> None:
    process, text = child
    found = re.fullmatch(rf"process {process.pid}, which runs since (.{{19}})", describe_process(text))
    assert found is not None
    assert abs(time.mktime(time.strptime(found[1], "%Y-%m-%d %H:%M:%S")) - time.time()) < 3600
    assert (
        describe_process(changed(text, NAMESPACE, "pid:[1]")) == f"process {process.pid} of another container (pid:[1])"
    )
    assert describe_process(changed(text, BOOT, "b")) == f"process {process.pid} of another machine or boot (b)"
    assert describe_process("") == "an unknown process"


def test_a_broker_may_seem_to_be_on_another_machine() -> None:
    process = begin_process(several_machines=True, boot="another")
    end_process(process)
    assert is_running(process), "nothing is known of it"
    assert parse_process(process) is None


def test_without_boot_ids_nothing_is_certain(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = child
    assert is_running(changed(text, BOOT, ""))
    monkeypatch.setattr(processes, "read_boot_id", lambda: "")
    monkeypatch.setattr(processes, "_cached", None)
    assert is_running(text)
    assert parse_process(text) is None


def test_a_process_of_another_namespace_cannot_be_seen(child: Child) -> None:
    """A container has process ids of its own: the same number means another process there."""
    process, text = child
    elsewhere = changed(text, NAMESPACE, "pid:[4026530000]")
    process.kill()
    process.wait()
    assert not is_running(text)
    assert is_running(elsewhere)
    assert parse_process(elsewhere) is None


def test_a_fork_is_a_process_of_its_own() -> None:
    own = begin_process()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, begin_process().encode())
        os._exit(0)
    os.close(write)
    text = os.read(read, 1000).decode()
    os.close(read)
    os.waitpid(pid, 0)
    assert int(text.split("|")[PID]) == pid
    assert not is_running(text)
    assert is_running(own)
    end_process(own)


def test_a_name_of_a_process_may_contain_anything() -> None:
    with other_process("open('/proc/self/comm', 'w').write(') Z 1 (')") as (process, text):
        assert ") Z 1 (" in Path(f"/proc/{process.pid}/stat").read_text()
        assert is_running(text)


def test_no_text_is_of_no_process() -> None:
    assert not is_running("")
    assert parse_process("") is None
    assert not on_end("", lambda: None)


@given(
    st.text(min_size=1)
    | st.lists(st.sampled_from(["", "x", "-1", "9" * 30, "1|", read_boot_id()]), min_size=4, max_size=6).map("|".join)
)
def test_a_text_that_this_release_does_not_know_is_not_taken_for_the_end(text: str) -> None:
    assert parse_process(text) is None
    assert is_running(text)


def test_without_a_file_system_of_processes_signals_tell(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    process, text = child
    monkeypatch.setattr(processes, "Path", lambda path: Path(f"/none{path}"))
    assert is_running(text)
    process.kill()
    process.wait()
    assert not is_running(text)


@contextmanager
def without_descriptors() -> Iterator[None]:
    """Leaves this process no descriptor for a while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_cannot_be_read_for_want_of_descriptors_is_no_evidence(child: Child) -> None:
    process, text = child
    with without_descriptors(), pytest.raises(OSError, match="Too many open files"):
        open("/dev/null").close()
    with without_descriptors():
        assert is_running(text)
    process.kill()
    process.wait()
    with without_descriptors():
        assert not is_running(text)


def test_a_broker_that_cannot_read_since_when_its_process_runs_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would take it for an earlier process of that id."""
    monkeypatch.setattr(processes, "_cached", None)
    with without_descriptors(), pytest.raises(OSError, match="Too many open files"):
        begin_process()
    own = begin_process()
    assert is_running(own)
    end_process(own)


UNSEEN = """
mount -t proc -o hidepid=invisible,gid=65533 proc /proc || exit 77
exec setpriv --inh-caps=-all --bounding-set=-all "$@"
"""
LOOK = """
import sys
from pathlib import Path
from barnabas.registry.processes import is_running
print(Path(f"/proc/{sys.argv[1].split('|')[2]}").exists(), is_running(sys.argv[1]))
"""


def test_a_process_that_may_not_be_seen_runs_until_it_is_gone() -> None:
    """As another broker of this machine, which runs as another user, sees it under systemd's ProtectProc."""

    def seen(text: str) -> str:
        look = [sys.executable, "-c", LOOK, text]
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", UNSEEN, "sh", *look], capture_output=True, text=True, check=False
        )
        if done.returncode == 77 or done.stderr.startswith("unshare: "):
            pytest.skip(f"processes cannot be hidden here: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("hiding processes needs unshare and root")
    to_another_user = (
        "import os\nfrom barnabas.registry import processes\n"
        "processes.begin_process()\n"  # what it imports may be hidden from the other user, too
        "os.setuid(65534)\n"
    )
    with other_process(to_another_user) as (process, text):
        assert seen(text) == "False True"
        process.kill()
        process.wait()
        assert seen(text) == "False False"


def test_the_boot_has_an_id() -> None:
    assert read_boot_id() == read_boot_id() != ""
