"""The tests of this folder that look behind compiled modules."""

from pathlib import Path

import pytest

from uncompiled import needs_compiled, run_uncompiled


@pytest.mark.timeout(1700)
@needs_compiled
def test_what_looks_behind_compiled_modules(tmp_path: Path) -> None:
    run_uncompiled(tmp_path, "-m", "source", "whole_cluster", timeout=1600)
