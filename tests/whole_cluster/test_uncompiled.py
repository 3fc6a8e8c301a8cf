"""The tests of this folder that look behind compiled modules."""

from pathlib import Path

import pytest

from barnabas.records.compiled.record_walk import is_compiled
from uncompiled import run_uncompiled


@pytest.mark.timeout(900)
@pytest.mark.skipif(not is_compiled(), reason="all tests run on plain Python here")
def test_what_looks_behind_compiled_modules(tmp_path: Path) -> None:
    run_uncompiled(tmp_path, "-m", "source", "whole_cluster", timeout=800)
