"""The wheels in dist/, each installed into an empty environment of each Python that takes it: `make test-wheels`.

Its name keeps it out of `make test`: it needs built wheels, minutes and an index of packages.
"""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from build_wheels import COMPILED, PROJECT, SUPPORTED, find_python, make_environment

DIST = PROJECT / "dist"
WHEELS = sorted(DIST.glob("barnabas-*.whl"))
INSTALLATIONS = [(version, kind) for version in SUPPORTED for kind in ("compiled", "plain")]


def wheel_for(version: str, kind: str) -> Path:
    if kind == "compiled" and version not in COMPILED:
        pytest.skip(f"Python {version} takes the wheel without compiled modules")
    mark = "-none-any.whl" if kind == "plain" else f"-cp{version.replace('.', '')}-"
    found = [wheel for wheel in WHEELS if mark in wheel.name]
    if not found:
        pytest.skip(f"dist/ has no {kind} wheel for Python {version}")
    return found[0]


def test_there_are_wheels() -> None:
    assert WHEELS, "run `make wheels` first"


@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: wheel.name)
def test_a_wheel_brings_licence_notice_and_types(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        told = archive.read(metadata).decode()
        for licence in ("LICENSE", "NOTICE"):
            kept = metadata.replace("METADATA", f"licenses/{licence}")
            assert archive.read(kept) == (PROJECT / licence).read_bytes()
            assert f"License-File: {licence}\n" in told
    assert "License-Expression: Apache-2.0\n" in told
    assert "barnabas/py.typed" in names
    assert not any(name.startswith(("tests/", "bench/", "tools/")) for name in names)
    kernels = [name for name in names if name.endswith(".so")]
    assert bool(kernels) is (not wheel.name.endswith("-none-any.whl"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("version", "kind"), INSTALLATIONS)
def test_a_wheel_works_in_an_empty_environment(version: str, kind: str, tmp_path: Path) -> None:
    wheel = wheel_for(version, kind)
    python = find_python(version)
    if python is None:
        pytest.skip(f"Python {version} is neither on PATH nor in pyenv")
    inside = make_environment(python, tmp_path / "environment")
    subprocess.run([inside, "-m", "pip", "install", "--quiet", wheel], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    smoke = Path(__file__).with_name("smoke.py")
    done = subprocess.run([inside, smoke, kind], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "all is well\n"), done.stderr
