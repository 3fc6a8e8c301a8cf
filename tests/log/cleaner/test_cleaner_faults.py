"""Every call of a cleaning to the file system fails, in each way in which it can: no record that stands is lost, and
none that was aborted takes its place."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.log.cleaner.log_cleaner_manager import RETRY_MAX_MS
from faulty_filesystem import FaultyFileSystem, directory_in_memory, faults_at
from log.cleaner.cleaner_rig import CleanerRig, Seen, latest

TRANSACTIONAL = {"producer_id": 11, "producer_epoch": 0, "transactional": True}


@pytest.fixture
def root() -> Iterator[Path]:
    with directory_in_memory() as path:
        yield path


class Rig:
    """A log with committed values of keys that were aborted later, and a broker that cleans it while calls fail."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fs = FaultyFileSystem(str(root))
        with self.fs.watch():
            self.rig = CleanerRig(root, segment_bytes=1000)
            self.fill()
            self.rig.log.flush()
            self.rig.manager.checkpoint_recovery_points()
        self.written = self.rig.read()
        self.fs.calls.clear()

    def fill(self) -> None:
        rig = self.rig
        for number in range(6):
            rig.put((f"k{number % 3}", f"{number}" + "x" * 60), (f"once{number}", "y"))
            if number % 3 == 1:
                rig.put(("k1", "aborted"), base_sequence=number // 3 * 2, **TRANSACTIONAL)
                rig.marker(11, commit=False)
                rig.put((f"t{number}", "committed"), base_sequence=number // 3 * 2 + 1, **TRANSACTIONAL)
                rig.marker(11, commit=True)
        rig.put(("once1", None))
        rig.roll()

    def run(self) -> None:
        rig = self.rig
        with contextlib.suppress(KafkaStorageError):
            rig.clean()
        with contextlib.suppress(OSError):
            rig.cleaner.persist()
        with contextlib.suppress(KafkaStorageError):
            rig.manager.flush_dirty_logs(rig.clock.now_ms)

    def check(self) -> None:
        rig = self.rig
        seen = rig.read()
        assert set(seen) <= set(self.written)
        assert [record.offset for record in seen] == sorted({record.offset for record in seen})
        stands = latest(self.written)
        assert {key: latest(seen).get(key) for key in stands if stands[key].value is not None} == {
            key: seen for key, seen in stands.items() if seen.value is not None
        }

    def end(self, ending: str) -> None:
        """After the start that follows all is well, and the log can be cleaned to its end."""
        rig = self.rig
        self.fs.fault = None
        rig.release()
        if ending != "killed":
            self.fs.lose_power(names_last=ending.endswith("last"))
            (self.root / "barnabas-running").unlink(missing_ok=True)
        rig.start()
        rig.log.update_high_watermark(rig.log.log_end_offset)
        self.check()
        rig.clock.now_ms += RETRY_MAX_MS
        rig.clean()
        assert not rig.cleaner.state(rig.log.topic_partition).uncleanable
        self.check()
        stands: list[Seen] = sorted(latest(self.written).values())
        assert [record for record in rig.read() if record.value is not None] == [
            record for record in stands if record.value is not None
        ]
        rig.release()


@contextlib.contextmanager
def made(root: Path) -> Iterator[Rig]:
    rig = Rig(root)
    with rig.fs.watch():
        yield rig
    rig.fs.close()
    shutil.rmtree(root)


@pytest.mark.parametrize(("kind", "lasts"), [("EIO", False), ("EIO", True), ("ENOSPC", True), ("EMFILE", True)])
def test_every_call_of_a_cleaning_may_fail(root: Path, kind: str, lasts: bool) -> None:
    with made(root / "without") as rig:
        rig.run()
        calls = list(rig.fs.calls)
        rig.end("killed")
    assert {"rename", "writev", "fsync"} <= {call.name for call in calls}
    for number, (fault, ending) in enumerate(faults_at(calls, kind, lasts=lasts)):
        with made(root / f"{number}") as rig:
            rig.fs.fault = fault
            try:
                rig.run()
                rig.end(ending)
            except BaseException as error:
                error.add_note(f"{fault} ({calls[fault.number]}), {ending}")
                raise
            assert rig.fs.struck
