"""A supervisor and its processes: starts, restarts, signals, output, and ends of all kinds."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.supervisor.line_writer import Lines
from barnabas.broker.supervisor.supervisor import LogStream
from broker.supervisor import fake_brokers


class Supervised:
    """A supervisor in a process and process group of its own."""

    def __init__(self, directory: Path, behaviours: tuple[str, ...], options: dict[str, Any]) -> None:
        self.directory = directory
        given = json.dumps({"directory": str(directory), "stop_timeout_s": 60.0, **options})
        self.process = subprocess.Popen(
            [sys.executable, fake_brokers.__file__, given, *behaviours],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdout, self.stderr = self.process.stdout, self.process.stderr

    def ready(self) -> list[int]:
        """Returns the pids of the brokers that the ready line names."""
        for line in self.stdout:
            if line.startswith("["):
                return [facts["pid"] for facts in json.loads(line)]
        raise AssertionError(self.stderr.read())

    def log_until(self, pattern: str) -> "re.Match[str]":
        """Returns the next line of the log that contains the pattern."""
        seen = []
        for line in self.stderr:
            seen.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError("".join(seen))

    def pids(self, number: int) -> list[int]:
        """Returns the pids of all processes that the broker has had."""
        path = self.directory / f"starts-{number}"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def end(self, *numbers: int) -> tuple[int, str, str]:
        """Sends the signals, and returns the exit code and the rest of the output."""
        for number in numbers:
            self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=60)
        return self.process.returncode, out, errors


Supervise = Callable[..., Supervised]


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Supervise]:
    running: list[Supervised] = []

    def start(*behaviours: str, **options: Any) -> Supervised:
        running.append(Supervised(tmp_path, behaviours, options))
        return running[-1]

    yield start
    for each in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.process.pid, signal.SIGKILL)
        each.process.communicate()


def wait_for_end(pid: int) -> None:
    """Waits until a process that is no child of this one has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 60)[0], f"{pid} is still there"
    finally:
        os.close(descriptor)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_all_processes(supervise: Supervise, number: signal.Signals) -> None:
    supervisor = supervise("serves", "serves", "serves")
    pids = supervisor.ready()
    assert len(set(pids)) == 3
    code, out, errors = supervisor.end(number)
    assert (code, out) == (0, "")
    assert f"{number.name}: stopping broker 1, broker 2, broker 3" in errors
    assert "again" not in errors
    assert not any(map(is_running, pids))


def test_ctrl_c_in_a_terminal_reaches_all_and_starts_none_again(supervise: Supervise) -> None:
    supervisor = supervise("serves", "serves", "starts")
    assert supervisor.stdout.readline() == "broker 3 | starting\n"
    for _ in range(2):
        supervisor.log_until("is ready")
    os.killpg(supervisor.process.pid, signal.SIGINT)
    code, _, errors = supervisor.end()
    assert (code, "again" in errors) == (0, False), errors


def test_an_end_from_a_ctrl_c_that_was_not_seen_yet_is_no_death(supervise: Supervise) -> None:
    supervisor = supervise("serves", "serves", late_interrupt=True)
    pid, _ = supervisor.ready()
    os.kill(pid, signal.SIGINT)
    code, _, errors = supervisor.end()
    assert (code, "again" in errors) == (0, False), errors


def test_what_was_ready_and_died_is_not(supervise: Supervise) -> None:
    supervisor = supervise("serves", "waits")
    assert supervisor.stdout.readline() == "broker 2 | waiting\n"
    first = int(supervisor.log_until(r"broker 1 \(pid (\d+)\) is ready")[1])
    os.kill(first, signal.SIGKILL)
    supervisor.log_until("broker 1 .* died")
    os.kill(supervisor.pids(2)[0], signal.SIGUSR1)
    assert supervisor.ready() == [supervisor.pids(1)[1], supervisor.pids(2)[0]]


def test_ready_is_told_once_and_not_before_all_are(supervise: Supervise) -> None:
    supervisor = supervise("serves", "fails:3")
    assert len(supervisor.pids(1)) <= 1
    first, second = supervisor.ready()
    assert supervisor.pids(2)[-1] == second != supervisor.pids(2)[0]
    os.kill(first, signal.SIGKILL)
    supervisor.log_until("broker 1 .* died")
    supervisor.log_until("broker 1 .* is ready")
    assert supervisor.end(signal.SIGTERM)[:2] == (0, "")


def test_what_dies_is_started_again_after_a_pause_that_grows(supervise: Supervise) -> None:
    supervisor = supervise("serves", "serves")
    _, pid = supervisor.ready()
    for pause in ("0.1", "0.2"):
        os.kill(pid, signal.SIGKILL)
        supervisor.log_until(rf"^broker 2 \(pid {pid}\) died with signal 9: starting it again in {pause} s$")
        pid = int(supervisor.log_until(r"broker 2 \(pid (\d+)\) is ready")[1])
    assert len(supervisor.pids(1)) == 1
    os.kill(pid, signal.SIGTERM)  # a good end is not asked for either
    supervisor.log_until(rf"broker 2 \(pid {pid}\) ended with exit code 0: starting it again in 0.4 s")
    supervisor.log_until(r"broker 2 .* is ready")
    assert supervisor.end(signal.SIGTERM)[0] == 0


@pytest.mark.parametrize(("behaviour", "ending"), [("fails:7", "ended with exit code 7"), ("raises", "exit code 1")])
def test_a_failed_start_is_tried_again(supervise: Supervise, behaviour: str, ending: str) -> None:
    supervisor = supervise(behaviour)
    supervisor.log_until(f"broker 1 .* {ending}: starting it again in 0.1 s")
    assert len(supervisor.ready()) == 1
    assert supervisor.end(signal.SIGTERM)[0] == 0


def test_the_log_has_the_traceback_of_a_defect(supervise: Supervise) -> None:
    supervisor = supervise("raises")
    supervisor.log_until(r"^broker 1 \| RuntimeError: a defect$")


def test_the_operator_is_told_at_once_what_only_he_can_mend(supervise: Supervise) -> None:
    supervisor = supervise("serves", "refuses", "starts")
    code, out, errors = supervisor.end()
    assert (code, out.replace("broker 3 | starting\n", "")) == (2, "")
    assert errors.splitlines()[-1] == "usage: broker 2: port 1 is taken; choose another"
    assert not any(is_running(pid) for number in (1, 2, 3) for pid in supervisor.pids(number))


def test_a_broker_without_its_disk_keeps_no_other_from_starting(supervise: Supervise) -> None:
    supervisor = supervise("serves", "has_no_disk:always", "serves")
    first, third = supervisor.ready()
    assert [first, third] == [supervisor.pids(1)[0], supervisor.pids(3)[0]]
    for pause in ("0.2", "0.4"):
        supervisor.log_until(rf"^broker 2 .* exit code 2: /disk cannot be used: starting it again in {pause} s$")
    assert supervisor.end(signal.SIGTERM)[0] == 0


def test_a_broker_whose_disk_comes_back_is_started(supervise: Supervise) -> None:
    supervisor = supervise("serves", "has_no_disk")
    supervisor.log_until("^broker 2 .* /disk cannot be used: starting it again in 0.1 s$")
    supervisor.log_until("broker 2 .* is ready")
    assert supervisor.end(signal.SIGTERM)[0] == 0


def test_when_no_broker_has_a_disk_the_operator_is_told_at_once(supervise: Supervise) -> None:
    code, out, errors = supervise("has_no_disk:always", "has_no_disk:always").end()
    assert (code, out) == (2, "")
    assert re.fullmatch("usage: broker [12]: /disk cannot be used", errors.splitlines()[-1])


def test_who_comes_too_early_is_started_again(supervise: Supervise) -> None:
    supervisor = supervise("serves", "comes_too_early")
    supervisor.log_until("^broker 2 .* 75: the others are not there: starting it again in 0.1 s$")
    assert len(supervisor.ready()) == 2
    assert supervisor.end(signal.SIGTERM)[0] == 0


def test_who_waits_still_when_the_others_are_ready_keeps_nobody_waiting(supervise: Supervise) -> None:
    supervisor = supervise("serves", "comes_too_early:always", "serves")
    first, third = supervisor.ready()
    assert [first, third] == [supervisor.pids(1)[0], supervisor.pids(3)[0]]
    assert supervisor.end(signal.SIGTERM)[0] == 0


def test_a_later_start_that_is_refused_is_tried_again(supervise: Supervise) -> None:
    supervisor = supervise("refuses_later")
    (pid,) = supervisor.ready()
    os.kill(pid, signal.SIGKILL)
    supervisor.log_until("exit code 2: port 1 is taken; choose another: starting it again in 0.2 s")
    pid = int(supervisor.log_until(r"broker 1 \(pid (\d+)\) is ready")[1])
    os.kill(pid, signal.SIGKILL)
    supervisor.log_until("broker 1 .* died with signal 9: starting it again")
    assert supervisor.end(signal.SIGTERM)[0] == 0


def test_a_process_that_does_not_end_is_killed(supervise: Supervise) -> None:
    supervisor = supervise("stays", "serves", stop_timeout_s=5.0)  # broker 2 may take its time
    pid, _ = supervisor.ready()
    code, _, errors = supervisor.end(signal.SIGTERM)
    assert code == 1
    assert f"broker 1 (pid {pid}) has not ended within 5 s: killing it" in errors
    assert "broker 2 (pid" not in errors.split("stopping")[1]


def test_the_second_ctrl_c_kills(supervise: Supervise) -> None:
    supervisor = supervise("stays", "serves")
    supervisor.ready()
    supervisor.process.send_signal(signal.SIGTERM)
    supervisor.log_until("SIGTERM: stopping")
    while supervisor.process.poll() is None:
        supervisor.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            supervisor.process.wait(0.1)
    code, _, errors = supervisor.end()
    assert code == 1
    assert re.search(r"broker 1 \(pid \d+\) has not ended before the second Ctrl-C: killing it", errors)


def test_one_ctrl_c_may_arrive_several_times(supervise: Supervise) -> None:
    supervisor = supervise("lingers", time_stands=True)
    (pid,) = supervisor.ready()
    for _ in range(3):
        supervisor.process.send_signal(signal.SIGINT)
    supervisor.log_until("SIGINT: stopping")
    supervisor.process.send_signal(signal.SIGINT)
    os.kill(pid, signal.SIGUSR1)
    code, _, errors = supervisor.end()
    assert (code, errors) == (0, "")


def test_a_failed_fork_is_tried_again(supervise: Supervise) -> None:
    supervisor = supervise("serves", "serves", forks_fail=1)
    supervisor.log_until("^broker 2 cannot be started .*: starting it again in 0.1 s$")
    assert len(supervisor.ready()) == 2
    assert len(os.listdir(f"/proc/{supervisor.process.pid}/fd")) == 3 + 2 + 2 + 2 * 2
    assert supervisor.end(signal.SIGTERM)[0] == 0


def test_a_signal_between_two_starts_ends_the_supervisor(supervise: Supervise) -> None:
    supervisor = supervise("always_fails:1")
    for _ in range(6):  # the pauses are long enough then
        supervisor.log_until("starting it again")
    assert supervisor.end(signal.SIGTERM)[0] == 0


@pytest.mark.parametrize("behaviour", ["serves", "starts"])
def test_a_killed_supervisor_takes_its_processes_along(supervise: Supervise, behaviour: str) -> None:
    supervisor = supervise("starts", behaviour, behaviour)
    assert supervisor.stdout.readline().endswith("| starting\n")
    for _ in range(2):
        if behaviour == "serves":
            supervisor.log_until("is ready")
        else:
            assert supervisor.stdout.readline().endswith("| starting\n")
    pids = [pid for number in (1, 2, 3) for pid in supervisor.pids(number)]
    assert len(pids) == 3
    supervisor.process.kill()
    for pid in pids:
        wait_for_end(pid)


def test_a_stopped_process_goes_on_and_ends_with_the_supervisor(supervise: Supervise) -> None:
    supervisor = supervise("serves")
    (pid,) = supervisor.ready()
    os.kill(pid, signal.SIGSTOP)
    supervisor.process.kill()
    if sys.platform != "linux":
        os.kill(pid, signal.SIGCONT)
    wait_for_end(pid)


def test_lines_have_the_name_of_their_process(supervise: Supervise) -> None:
    supervisor = supervise("serves", "speaks")
    supervisor.log_until(r"^broker 2 \| to stderr$")
    written = {supervisor.stdout.readline() for _ in range(3)}
    assert written > {"broker 2 | to stdout\n", "broker 2 | {no event}\n"}
    code, out, _ = supervisor.end(signal.SIGTERM)
    assert (code, out) == (0, "broker 2 | last words\n")


def test_output_that_nobody_reads_stops_no_restart_and_is_not_lost(supervise: Supervise) -> None:
    supervisor = supervise("floods:20000", "serves")
    second = int(supervisor.log_until(r"broker 2 \(pid (\d+)\) is ready")[1])
    os.kill(second, signal.SIGKILL)
    supervisor.log_until("broker 2 .* died")
    supervisor.log_until("broker 2 .* is ready")
    assert not (supervisor.directory / "flooded").exists()  # what waits for the reader is bounded
    numbers = []
    while len(numbers) < 20000:
        line = supervisor.stdout.readline()
        if line.startswith("broker 1 | line "):
            numbers.append(int(line.split()[4]))
    assert numbers == list(range(20000))


def test_brokers_are_forked_from_a_process_without_threads(supervise: Supervise) -> None:
    supervisor = supervise("serves")
    (pid,) = supervisor.ready()
    os.kill(pid, signal.SIGKILL)
    supervisor.log_until("is ready")
    supervisor.log_until("is ready")
    assert os.listdir(f"/proc/{supervisor.process.pid}/task") == [str(supervisor.process.pid)]


def test_a_process_has_no_descriptor_of_the_others(supervise: Supervise) -> None:
    supervisor = supervise("serves", "serves", "serves")
    pids = supervisor.ready()
    os.kill(pids[0], signal.SIGKILL)
    pids[0] = int(supervisor.log_until(rf"broker 1 \(pid (?!{pids[0]})(\d+)\) is ready")[1])
    pipes = [_pipes(pid) for pid in pids]
    for index, each in enumerate(pipes):
        assert each.keys() == {1, 2, _lifeline(each)}
        for other in pipes[index + 1 :]:
            assert set(each.values()) & set(other.values()) == {each[_lifeline(each)]}


def _pipes(pid: int) -> dict[int, str]:
    directory = f"/proc/{pid}/fd"
    found = {int(name): os.readlink(f"{directory}/{name}") for name in os.listdir(directory)}
    return {descriptor: target for descriptor, target in found.items() if target.startswith("pipe:")}


def _lifeline(pipes: dict[int, Any]) -> int:
    return next(descriptor for descriptor in pipes if descriptor > 2)


def test_the_log_of_the_supervisor_is_bounded() -> None:
    lines = Lines("")
    stream = LogStream(lines)
    for _ in range(1000):
        assert stream.write("x" * 999 + "\n") == 1000
    assert len(lines.take()) <= 4096
    kept = 0
    while data := lines.take():
        kept += len(data)
    assert 32 * 1024 < kept < 128 * 1024
