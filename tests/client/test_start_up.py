"""What an import costs is what every command and test waits for."""

import subprocess
import sys


def imported_by(statement: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_itself_imports_nothing() -> None:
    assert imported_by("import barnabas.client") <= {"barnabas", "barnabas.client"} | imported_by("import typing")


def test_an_administrator_does_without_what_is_slow() -> None:
    found = imported_by("from barnabas import Admin")
    slow = {"asyncio", "dataclasses", "inspect", "logging", "ssl", "lz4", "zstandard", "cramjam", "rich"}
    assert not found & slow
    assert not {name for name in found if name.startswith(("barnabas.broker", "barnabas.log", "barnabas.coordinator"))}


def test_the_public_names_are_imported_when_they_are_asked_for() -> None:
    assert imported_by("import barnabas, barnabas.aio") <= {"barnabas", "barnabas.aio"} | imported_by("import typing")
    found = imported_by("from barnabas import Consumer, Producer")
    assert not found & {"asyncio", "ssl", "lz4", "zstandard", "cramjam", "rich"}
