"""Small disks of a test, each of which can be filled."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.attached import attached

__all__ = ["fill", "make_room", "small_disks"]

_MOUNTED = "mounted"
_FILLER = "filler"


@contextmanager
def small_disks(directory: Path, names: Sequence[str], *, megabytes: int) -> Iterator[Path | None]:
    """Yields a directory in which each of these names is a disk of its own; None where mounts are not permitted. Only
    one process has them mounted, by whose root all others reach them: nothing is left of them when it ends."""
    script = f'for name; do mkdir "$name" && mount -t tmpfs -o size={megabytes}m tmpfs "$name" || exit; done\n'
    script += f"echo {_MOUNTED}; exec sleep infinity"
    command = attached(["unshare", "--mount", "sh", "-c", script, "sh", *names])
    with subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as owner:
        assert owner.stdout is not None
        try:
            is_mounted = owner.stdout.readline().strip() == _MOUNTED
            yield Path(f"/proc/{owner.pid}/root{directory}") if is_mounted else None
        finally:
            owner.kill()


def fill(disk: Path) -> None:
    """Takes all the room that a disk has left."""
    with (disk / _FILLER).open("ab", buffering=0) as filler:
        for size in (1 << 20, 1 << 12):
            with suppress(OSError):
                while True:
                    filler.write(bytes(size))


def make_room(disk: Path) -> None:
    (disk / _FILLER).unlink(missing_ok=True)
