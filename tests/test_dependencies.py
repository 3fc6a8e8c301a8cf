"""An installation without extras has all that the package imports. Developers have more, and would never notice."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
NEEDS_AN_EXTRA = (
    "barnabas.pipeline.templates.",
    "barnabas.registry.zookeeper.",
    "barnabas.spark",
    "barnabas.testing.pytest_plugin",
)

IMPORT_ALL = """
import importlib, pkgutil, sys

allowed, needs_an_extra = set(sys.argv[1].split()), tuple(sys.argv[2].split())

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed | sys.stdlib_module_names:
            raise ModuleNotFoundError(f"{name} is not among the dependencies", name=name)

sys.meta_path.insert(0, Blocker())
import barnabas
for found in pkgutil.walk_packages(barnabas.__path__, "barnabas."):
    if not found.name.startswith(needs_an_extra) and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""


def needed() -> set[str]:
    """The distributions that `pip install barnabas` brings."""
    waiting = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    found: set[str] = set()
    while waiting:
        asked = waiting.pop()
        name = re.match(r"[\w.-]+", asked)[0].lower().replace("_", "-")
        if name not in found and "extra ==" not in asked:
            found.add(name)
            waiting += metadata.requires(name) or []
    return found


def test_every_module_finds_what_it_imports() -> None:
    distributions = needed()
    modules = {"barnabas"}
    for module, owners in metadata.packages_distributions().items():
        if {owner.lower().replace("_", "-") for owner in owners} & distributions:
            modules.add(module)
    arguments = [" ".join(sorted(modules)), " ".join(NEEDS_AN_EXTRA)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
