"""What installers ask of setup.py before they build anything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
WITHOUT_MYPYC = """
import runpy, sys

sys.modules["mypyc"] = sys.modules["mypyc.build"] = None
sys.argv = ["setup.py", "--quiet", "egg_info", "--egg-base", sys.argv[1]]
runpy.run_path("setup.py", run_name="__main__")
"""


def test_the_metadata_names_the_licence_files_and_does_not_wait_for_mypyc(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77")
    environment = {**os.environ, "BARNABAS_COMPILED": "1"}
    environment.pop("BARNABAS_PURE", None)
    command = [sys.executable, "-c", WITHOUT_MYPYC, tmp_path]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = (tmp_path / "barnabas.egg-info" / "PKG-INFO").read_text(encoding="utf-8")
    assert "License-Expression: Apache-2.0\n" in told
    assert "License-File: LICENSE\nLicense-File: NOTICE\n" in told
