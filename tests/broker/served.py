"""A broker as a process of its own, and file systems and limits to put it under."""

import contextlib
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

__all__ = ["Served", "small_file_system"]


@contextlib.contextmanager
def small_file_system(path: Path, size: str) -> Iterator[None]:
    path.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip("mounting needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False)


class Served:
    """`barnabas serve` in a process of its own."""

    def __init__(
        self,
        tmp_path: Path,
        data: Path | str,
        *settings: str,
        options: Sequence[str] = (),
        file_size_max: int | None = None,
        open_files_max: int | None = None,
    ) -> None:
        ready = tmp_path / "ready"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "barnabas", "serve", "--data-dir", str(data), "--listen", "127.0.0.1:0"]
        command += [
            "--ready-file",
            str(ready),
            *(word for setting in settings for word in ("--set", setting)),
            *options,
        ]
        self.errors = tmp_path / "stderr"

        def limit() -> None:
            for kind, most in ((resource.RLIMIT_FSIZE, file_size_max), (resource.RLIMIT_NOFILE, open_files_max)):
                if most is not None:
                    resource.setrlimit(kind, (most, most))

        with self.errors.open("wb") as stderr:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, preexec_fn=limit)
        too_late = threading.Timer(20, self.process.kill)
        too_late.start()
        assert self.process.stdout is not None
        said = self.process.stdout.readline()  # the ready line; nothing from one that ended
        too_late.cancel()
        assert b"is ready" in said, self.errors.read_text()
        host, _, port = ready.read_text().strip().rpartition(":")
        self.address = (host, int(port))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(60)
