"""A partition of golden files that a test may damage."""

import shutil
from pathlib import Path

import pytest

from cli.dump.golden_files import GOLDEN


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A golden partition that may be damaged."""
    return Path(shutil.copytree(GOLDEN / "golden-0", tmp_path / "golden-0"))
