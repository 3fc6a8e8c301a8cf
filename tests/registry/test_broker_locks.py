"""The locks by which brokers in containers tell whether others are alive."""

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.registry import broker_locks
from barnabas.registry.broker_locks import BrokerLocks
from barnabas.registry.processes import begin_process, end_process
from barnabas.registry.registry import Evidence

HOLD = """
import subprocess, sys
from pathlib import Path
from barnabas.registry.broker_locks import BrokerLocks
locks = BrokerLocks(Path(sys.argv[1]))
assert locks.hold(1) and locks.holds(1)
child = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
sys.stdin.read()
"""
ELSEWHERE = "another boot|pid:[1]|7|8|9"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry.db"


def test_the_lock_of_a_killed_process_is_free_whatever_it_has_started(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        child = process.stdout.readline()
        locks = BrokerLocks(path)
        assert locks.evidence(1, ELSEWHERE, True) is Evidence.RUNS
        assert locks.others_are_held()
        process.kill()
        process.wait()
        assert Path(f"/proc/{int(child)}").exists()
        assert locks.evidence(1, ELSEWHERE, True) is Evidence.ENDED
        assert not locks.others_are_held()
        subprocess.run(["kill", child.strip()], check=True)


def test_a_broker_has_its_lock_until_it_lets_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_locks, "_WAIT_MAX_S", 0.0)
    one, two = BrokerLocks(path), BrokerLocks(path)
    assert one.hold(1)
    assert one.hold(1), "that it has already"
    assert (one.holds(1), two.holds(1)) == (True, False)
    assert not two.hold(1)
    assert two.hold(2)
    assert one.others_are_held()
    two.release()
    assert not one.others_are_held(), "its own does not count"
    one.release()
    one.release()
    assert two.hold(1)
    assert [each.stat().st_mode & 0o777 for each in sorted(path.parent.iterdir())] == [0o600, 0o600]


def test_a_lock_that_others_look_at_for_a_moment_is_taken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = BrokerLocks(path), BrokerLocks(path)
    assert one.hold(1)
    monkeypatch.setattr(broker_locks.time, "sleep", lambda _: one.release())
    assert two.hold(1)


def test_what_is_certain_without_a_lock(path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    locks = BrokerLocks(path)
    own = begin_process()
    assert locks.evidence(1, own, False) is Evidence.RUNS
    end_process(own)
    assert locks.evidence(1, own, True) is Evidence.ENDED
    boot = own.partition("|")[0]
    assert locks.evidence(1, ELSEWHERE, False) is Evidence.ENDED, "of the boot before, and of an older release"
    assert locks.evidence(1, f"{boot}|pid:[1]|7|8|9", False) is Evidence.UNSEEN
    assert locks.evidence(1, ELSEWHERE, True) is Evidence.UNSEEN, "somebody has removed the file"
    assert BrokerLocks(tmp_path / "nowhere" / "registry.db").hold(1), "the registry itself says what is wrong"
    assert "cannot be locked: No such file or directory" in caplog.text
