"""The ports of a cluster are its own until it has stopped, and its brokers end for no other reason than they may."""

import resource
import signal
import socket
import sys
from pathlib import Path

import pytest

import cluster.brokers
from cluster.brokers import HOST, ClusterProcesses


def bind(port: int) -> None:
    with socket.socket() as other:
        other.bind((HOST, port))


def test_nobody_else_gets_a_port_of_a_broker_that_is_down(tmp_path: Path) -> None:
    brokers = ClusterProcesses(tmp_path, 3, {}, linked=True)
    ports = {brokers.port(broker) for broker in brokers.ids}
    assert len(ports) == 3
    for port in ports:
        with pytest.raises(OSError, match="in use"):
            bind(port)
    brokers.stop_all()
    for port in ports:
        bind(port)


class Ending(ClusterProcesses):
    """A broker that ends at once, as the code says that it is given."""

    ends_by = ""

    def command(self, *_: object) -> list[str]:
        return [sys.executable, "-c", f"import os; {self.ends_by}"]


FAILED, REFUSED, NOT_YET, ABORTED = "os._exit(1)", "os._exit(2)", "os._exit(75)", "os.abort()"
CRASHED = "os.kill(os.getpid(), 11)"


@pytest.mark.parametrize(
    ("lacks", "ends_by", "is_started_again"),
    [
        ("memory", FAILED, True),
        ("memory", ABORTED, True),
        ("memory", CRASHED, True),
        ("memory", NOT_YET, True),
        ("memory", REFUSED, None),
        ("disk", ABORTED, True),
        ("disk", REFUSED, False),
        ("", FAILED, None),
        ("disk", CRASHED, None),
        ("", ABORTED, None),
        ("", CRASHED, None),
    ],
)
def test_a_broker_may_end_for_what_it_lacks(
    lacks: str, ends_by: str, is_started_again: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None: that is a failure."""
    monkeypatch.setattr(cluster.brokers, "RESTARTED_AFTER_S", 0.0)
    brokers = Ending(tmp_path, 1, {})
    brokers.ends_by = ends_by
    brokers.denied += [1] * (lacks == "memory")
    brokers.failing += [1] if lacks == "disk" else []
    brokers.start(1)
    process = brokers._processes[1]
    process.wait()
    assert not brokers.running(1)
    brokers.start_refused()
    assert (brokers._processes[1] is not process) == bool(is_started_again)
    assert bool(brokers.ended) == (is_started_again is None)
    assert brokers.ends[1] == (is_started_again is not None)
    brokers._processes[1].wait()
    brokers.stop_all()


def test_a_limit_is_taken_back_when_the_last_of_several_faults_ends(tmp_path: Path) -> None:
    brokers = Ending(tmp_path, 1, {})
    brokers.ends_by = "import signal\nsignal.pause()"
    brokers.start(1)
    try:
        pid = brokers._processes[1].pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        first, second = brokers.starve(1, 3), brokers.starve(1, 5)
        second()
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] < before[0]
        third = brokers.starve(1, 5)
        first()
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] < before[0]
        third()
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == before
    finally:
        brokers.stop_all()


@pytest.mark.parametrize("says", ["broker 1 is ready on 127.0.0.1:1", "loading logs"])
def test_a_start_may_fail_for_want_of_descriptors_but_no_broker_that_is_ready(says: str, tmp_path: Path) -> None:
    brokers = Ending(tmp_path, 1, {})
    brokers.ends_by = f"import signal; signal.signal(signal.SIGUSR1, lambda *_: {FAILED}); print({says!r}, flush=True)"
    brokers.ends_by += "\nwhile True: signal.pause()"
    brokers.start(1)
    process = brokers._processes[1]
    try:
        while says not in brokers.output(1):
            assert process.poll() is None
        brokers.starve(1, 3)
        process.send_signal(signal.SIGUSR1)
        process.wait()
        assert not brokers.running(1)
        assert bool(brokers.ended) == ("ready" in says)
    finally:
        brokers.stop_all()
