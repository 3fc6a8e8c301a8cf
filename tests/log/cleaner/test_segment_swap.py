"""Killed at any step of a cleaning: the next start finds every record that stands, whole and readable."""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.log.cleaner.file_names import cleaned_path
from barnabas.log.cleaner.segment_swap import cleaned_files, finish_swaps
from barnabas.log.directories.disk import Disk
from log.cleaner.cleaner_rig import TP, CleanerRig, MakeRig, Seen, latest
from log.log_files import no_descriptors

CALLS = ("open", "write", "writev", "fsync", "rename", "utime", "unlink", "replace")
"""The calls that change files; a kill comes before one of them."""


def fill(rig: CleanerRig) -> None:
    """Several groups, with transactions and tombstones in them."""
    for number in range(40):
        rig.put((f"k{number % 9}", f"{number}" + "x" * 60), (f"once{number}", "y"))
        if number % 10 == 3:
            options = {"producer_id": 11, "producer_epoch": 0, "transactional": True}
            rig.put(("k1", "aborted"), base_sequence=number // 10 * 2, **options)
            rig.marker(11, commit=False)
            rig.put((f"t{number}", "committed"), base_sequence=number // 10 * 2 + 1, **options)
            rig.marker(11, commit=True)
        if number % 10 == 7:
            rig.put((f"once{number}", None))
    rig.roll()


def clean_until_killed(rig: CleanerRig, kill_at: int) -> None:
    """In the child: the calls that change files are counted, and before one of them the process dies."""
    left = kill_at

    def counted(name: str) -> Callable[..., Any]:
        call = getattr(os, name)

        def function(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return function

    for name in CALLS:
        setattr(os, name, counted(name))
    rig.clean()


def run_child(rig: CleanerRig, kill_at: int) -> bool:
    """Whether the child came to its end."""
    child = os.fork()
    if not child:
        code = 1
        try:
            clean_until_killed(rig, kill_at)
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, f"the cleaning failed by itself ({kill_at})"
        return True
    return False


def names(rig: CleanerRig) -> set[str]:
    return {path.suffix for path in Path(rig.log.directory).iterdir()}


def check(rig: CleanerRig, written: list[Seen], kill_at: int) -> None:
    seen = rig.read()
    assert set(seen) <= set(written), kill_at
    assert [record.offset for record in seen] == sorted({record.offset for record in seen})
    stands = latest(written)
    assert {key: latest(seen).get(key) for key in stands} == stands, kill_at
    assert not names(rig) & {".cleaned", ".swap", ".deleted"}
    for record in seen[::5]:
        assert rig.read(start=record.offset)[0] == record


@pytest.mark.parametrize("boot", ["same", "other"])
def test_killed_at_every_step(tmp_path: Path, boot: str) -> None:
    kill_at, done = 0, False
    seen_states: set[str] = set()
    while not done:
        root = tmp_path / str(kill_at)
        rig = CleanerRig(root, segment_bytes=2500)
        fill(rig)
        written = rig.read()
        end, entries = rig.log.log_end_offset, rig.log.leader_epochs.entries
        done = run_child(rig, kill_at)
        seen_states |= names(rig)
        rig.release()
        if boot == "other":
            (root / "barnabas-running").unlink()  # the machine went down: everything is read
        rig.start()
        assert (rig.log.log_end_offset, rig.log.leader_epochs.entries) == (end, entries)
        check(rig, written, kill_at)
        rig.clean()
        rig.manager.remove_deleted(rig.clock.now_ms)
        check(rig, written, kill_at)
        stands = latest(written)
        assert rig.read() == sorted(stands.values())
        assert rig.log.cleaned_offset == rig.log.log_end_offset
        rig.release()
        kill_at += 1 if boot == "same" else 3
    assert kill_at > 40
    assert seen_states >= {".cleaned", ".swap", ".deleted"}, "every phase was met"


# -- what a start makes of the names ----------------------------------------------------------------------------------


def stopped(make_rig: MakeRig) -> tuple[CleanerRig, list[Seen], Path]:
    """A log of three sealed segments, [0] [1] [2], whose cleaned form is at hand in the memory of the disk."""
    rig = make_rig(segment_bytes=100_000)
    for value in ("1", "2", "3"):
        rig.put(("a", value), (f"k{value}", value))
        rig.roll()
    written = rig.read()
    rig.release()
    return rig, written, Path(rig.log.directory)


def cleaned_form(rig: CleanerRig, directory: Path) -> dict[str, bytes]:
    """The files that a cleaning of all three makes, by suffix."""
    made: dict[str, bytes] = {}

    def keep(event: dict[str, Any]) -> None:
        if event["event"] == "cleaned":
            for path in map(Path, directory.iterdir()):
                if path.suffix == ".cleaned":
                    made["." + path.name.split(".")[1]] = path.read_bytes()
            rig.worker.kill()

    rig.start()
    rig.worker.before_event = keep
    rig.cleaner.run()
    rig.manager.remove_deleted(rig.clock.now_ms)
    rig.release()
    assert set(made) == {".log", ".index", ".timeindex"}
    return made


def put_files(directory: Path, made: dict[str, bytes], suffixes: dict[str, str]) -> None:
    for kind, ending in suffixes.items():
        (directory / f"{0:020d}{kind}{ending}").write_bytes(made[kind])


FIRST_STEP = {
    "Kafka, .log renamed": {".log": ".swap", ".index": ".cleaned", ".timeindex": ".cleaned"},
    "Kafka, .log and .index renamed": {".log": ".swap", ".index": ".swap", ".timeindex": ".cleaned"},
    "Kafka, nothing renamed": {".log": ".cleaned", ".index": ".cleaned", ".timeindex": ".cleaned"},
    "ours, .index renamed": {".log": ".0a0b.cleaned", ".index": ".swap", ".timeindex": ".0a0b.cleaned"},
    "ours, .log left": {".log": ".0a0b.cleaned", ".index": ".swap", ".timeindex": ".swap"},
}


@pytest.mark.parametrize("suffixes", FIRST_STEP.values(), ids=FIRST_STEP)
def test_a_cleaning_in_its_first_step_has_not_happened(make_rig: MakeRig, suffixes: dict[str, str]) -> None:
    rig, written, directory = stopped(make_rig)
    put_files(directory, cleaned_form(rig, directory), suffixes)
    rig.start()
    assert rig.read() == written
    assert not rig.files(".swap", ".cleaned")
    assert [segment.base_offset for segment in rig.log.segments] == [0, 2, 4, 6]


@pytest.mark.parametrize("orphan", [False, True])
@pytest.mark.parametrize("deleted", range(4))
def test_a_complete_swap_file_takes_its_place(make_rig: MakeRig, deleted: int, orphan: bool) -> None:
    """Kafka's names and ours are the same by then; some of the old segments may be gone already. What another process
    of ours left behind, still `.cleaned`, says nothing about it."""
    rig, written, directory = stopped(make_rig)
    made = cleaned_form(rig, directory)
    put_files(directory, made, dict.fromkeys(made, ".swap"))
    for base in (0, 2, 4)[:deleted]:
        for suffix in made:
            path = directory / f"{base:020d}{suffix}"
            path.rename(f"{path}.deleted")
    if orphan:
        (directory / f"{0:020d}.log.0a0b.cleaned").write_bytes(b"half")
    rig.start()
    assert [record.offset for record in rig.read()] == [1, 3, 4, 5]
    assert latest(rig.read()) == latest(written)
    assert [segment.base_offset for segment in rig.log.segments] == [0, 6]
    assert not rig.files(".swap", ".cleaned", ".deleted")


@pytest.mark.parametrize("left", [(".index", ".timeindex"), (".timeindex",), (".index",)])
def test_names_that_are_missing_are_given(make_rig: MakeRig, left: tuple[str, ...]) -> None:
    rig, written, directory = stopped(make_rig)
    made = cleaned_form(rig, directory)
    for base in (0, 2, 4):
        for suffix in made:
            (directory / f"{base:020d}{suffix}").unlink()
    put_files(directory, made, {kind: ".swap" if kind in left else "" for kind in made})
    rig.start()
    assert latest(rig.read()) == latest(written)
    assert not rig.files(".swap")
    rig.restart()
    assert {Path(rig.log.segments[0].path(kind)).read_bytes() for kind in made} == set(made.values())


def test_parts_of_a_split_that_kafka_did_not_complete_go(tmp_path: Path) -> None:
    for name in (f"{5:020d}.log.cleaned", f"{7:020d}.log.swap", f"{9:020d}.log.swap", f"{5:020d}.log", f"{3:020d}.log"):
        (tmp_path / name).touch()
    finish_swaps(str(tmp_path), Disk())
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{3:020d}.log", f"{5:020d}.log"]


def test_snapshots_and_other_files_stay(make_rig: MakeRig) -> None:
    rig, _, directory = stopped(make_rig)
    made = cleaned_form(rig, directory)
    put_files(directory, made, dict.fromkeys(made, ".swap"))
    before = {path.name for path in directory.iterdir() if path.suffix == ".snapshot"}
    assert len(before) > 2
    rig.start()
    assert before <= {path.name for path in directory.iterdir()}
    assert (directory / "leader-epoch-checkpoint").exists()


# -- when the file system refuses -------------------------------------------------------------------------------------


def test_a_rename_that_fails_at_first_changes_nothing(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig()
    rig.put(("a", "1"))
    rig.put(("a", "2"))
    rig.roll()
    rename = os.rename

    def failing(source: str, target: str) -> None:
        if target.endswith(".log.swap"):
            raise OSError(5, "Input/output error", source)
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    assert rig.cleaner.run()
    assert [record.offset for record in rig.read()] == [0, 1]
    rig.manager.remove_deleted(rig.clock.now_ms)
    assert not rig.files(".swap", ".cleaned")
    monkeypatch.undo()
    assert "Input/output error" in rig.cleaner.state(TP).failure
    assert not rig.cleaner.run(), "not at once"
    rig.clock.now_ms += 1000
    rig.clean()
    assert [record.offset for record in rig.read()] == [1]


def test_a_swap_without_descriptors_changes_nothing(rig: CleanerRig) -> None:
    rig.put(("a", "1"))
    rig.put(("a", "2"))
    rig.roll()
    before = rig.values()
    with contextlib.ExitStack() as stack:

        def take_descriptors(event: dict[str, Any]) -> None:
            if event["event"] == "cleaned":
                stack.enter_context(no_descriptors())

        rig.worker.before_event = take_descriptors
        assert rig.cleaner.run()
    state = rig.cleaner.state(TP)
    assert "Too many open files" in state.failure
    assert (rig.log.offline_reason, rig.files(".swap"), rig.values()) == (None, [], before)
    rig.worker.before_event, rig.clock.now_ms = lambda event: None, state.retry_ms
    rig.clean()
    assert [value for _, _, value in rig.values()] == ["2"]


def test_a_rename_that_fails_later_stops_the_writing_until_a_restart(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    rig.put(("a", "1"))
    rig.put(("a", "2"))
    rig.roll()
    rename = os.rename

    def failing(source: str, target: str) -> None:
        if source.endswith(".log.swap"):
            raise OSError(5, "Input/output error", source)
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    assert rig.cleaner.run()
    assert rig.log.offline_reason is not None
    with pytest.raises(Exception, match="takes no more writes"):
        rig.put(("b", "1"))
    assert rig.clean() == 0
    monkeypatch.undo()
    rig.restart(crash=True)
    rig.put(("b", "1"))
    assert [record.offset for record in rig.read()] == [1, 2]


def test_what_a_dead_process_left_is_removed(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.put(("a", "1"))
    rig.put(("a", "2"))
    rig.roll()
    rig.worker.before_event = lambda event: rig.worker.kill() if event["event"] == "cleaned" else None
    assert rig.cleaner.run()
    token = Path(rig.files(".cleaned")[0]).name.split(".")[2]
    assert cleaned_path(rig.log.directory, 0, ".log", token) in cleaned_files(rig.log.directory, token)
    rig.manager.remove_deleted(rig.clock.now_ms)
    assert not rig.files(".cleaned")
    assert [record.offset for record in rig.read()] == [0, 1]
