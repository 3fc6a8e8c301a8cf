"""The release before this one, as code that runs."""

import compileall
import io
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import pytest

__all__ = ["RELEASE_BEFORE", "source_of_release_before"]

ROOT = Path(__file__).parents[2]
RELEASE_BEFORE: Final = "bd6ab468ecb4e8674623f0df61df74e144bdbf49"
"""The commit of this repository that clusters are upgraded from, without an interruption, to what is here.

With each release it becomes the commit of that release: a cluster is upgraded from one release to the next one, so
what is here has to work beside the last release alone. Until the first release it is the oldest commit whose brokers
speak the present protocol with each other, and may be moved if that has to change.
"""


def source_of_release_before() -> Path:
    """Returns the directory with the package of the release before, plain Python for PYTHONPATH. Skips the test where
    the repository does not have it: in a shallow clone, or an archive of the sources."""
    found = ROOT / "build" / f"release-before-{RELEASE_BEFORE[:12]}"
    if not found.exists():
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", "--format=tar", RELEASE_BEFORE, "src/barnabas"],
            capture_output=True,
            check=False,
        )
        if archive.returncode:
            reason = archive.stderr.decode(errors="replace").strip()
            pytest.skip(f"the release before this one, {RELEASE_BEFORE[:12]}, is not in this checkout: {reason}")
        found.parent.mkdir(exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=found.parent))
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(made, filter="data")
        compileall.compile_dir(str(made), quiet=2)
        try:
            made.rename(found)
        except OSError:  # another process of these tests was faster
            shutil.rmtree(made)
    return found / "src"
