"""Builds the source distribution and every wheel that this machine can: `python tools/build_wheels.py dist`.

That is a compiled wheel for each supported Python that is found, and one without compiled modules for all others. On
Linux the compiled ones are for machines like this one: those for everybody (manylinux, musllinux, both architectures)
come from `cibuildwheel`, whose settings stand in pyproject.toml and which needs Docker or Podman.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
SUPPORTED = ("3.11", "3.12", "3.13", "3.14", "3.14t")
COMPILED = tuple(version for version in SUPPORTED if not version.endswith("t"))
"""pyproject.toml says beside the settings of cibuildwheel why free-threaded ones are not among them."""
TELL = """
import sys, sysconfig
print("%d.%d" % sys.version_info[:2] + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED")))
"""


def find_python(version: str) -> Path | None:
    """Returns the interpreter of a version: this one, one on PATH, or the newest that pyenv has."""
    on_path = shutil.which(f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    from_pyenv = sorted(pyenv.glob(f"{version.removesuffix('t')}.*/bin/python{version}"), reverse=True)
    for found in [Path(sys.executable), *([Path(on_path)] if on_path else []), *from_pyenv]:
        told = subprocess.run([found, "-c", TELL], capture_output=True, text=True, check=False)
        if told.returncode == 0 and told.stdout.strip() == version:  # pyenv's shims on PATH may lead nowhere
            return found
    return None


def make_environment(python: Path, home: Path) -> Path:
    """Makes an empty virtual environment and returns its interpreter."""
    subprocess.run([python, "-m", "venv", home], check=True)
    return home / "bin" / "python"


def _build_wheel(python: Path, source: Path, dist: Path, asked: str) -> None:
    command = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-cache-dir", "--wheel-dir", dist, source]
    subprocess.run(command, check=True, env={**os.environ, asked: "1"})


def build(dist: Path) -> None:
    dist.mkdir(parents=True, exist_ok=True)
    for former in dist.glob("barnabas-*"):
        former.unlink()
    with tempfile.TemporaryDirectory() as made:
        own = make_environment(Path(sys.executable), Path(made, "own"))
        subprocess.run([own, "-m", "pip", "install", "--quiet", "build"], check=True)
        subprocess.run(
            [own, "-m", "build", "--sdist", "--outdir", dist, PROJECT], check=True, stdout=subprocess.DEVNULL
        )
        (source,) = dist.glob("*.tar.gz")
        print(source)
        _build_wheel(own, source, dist, "BARNABAS_PURE")
        print(*dist.glob("*-none-any.whl"))
        for version in COMPILED:
            python = find_python(version)
            if python is None:
                print(f"skipped: Python {version} is neither on PATH nor in pyenv")
                continue
            _build_wheel(make_environment(python, Path(made, version)), source, dist, "BARNABAS_COMPILED")
            print(*dist.glob(f"*-cp{version.replace('.', '')}-*.whl"), flush=True)
    if sys.platform == "linux":
        print("skipped: manylinux and musllinux; `cibuildwheel --output-dir dist` builds them, by Docker or Podman")


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve())
