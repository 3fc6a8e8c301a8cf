"""What an import costs is what every command and test waits for."""

import subprocess
import sys


def imported_by(statement: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_itself_imports_nothing() -> None:
    assert imported_by("import barnabas.client") <= {"barnabas", "barnabas.client"} | imported_by("import typing")


def test_all_of_it_does_without_what_is_slow() -> None:
    names = "Admin, Cluster, GroupMember, SimpleConsumer, SimpleProducer"
    found = imported_by(f"from barnabas.client import {names}")
    assert not found & {"asyncio", "dataclasses", "inspect", "ssl", "lz4", "zstandard", "cramjam", "msgspec", "rich"}
    assert not {name for name in found if name.startswith(("barnabas.broker", "barnabas.log", "barnabas.coordinator"))}


def test_the_public_names_are_imported_when_they_are_asked_for() -> None:
    assert imported_by("import barnabas, barnabas.aio") <= {"barnabas", "barnabas.aio"} | imported_by("import typing")
    found = imported_by("from barnabas import Admin")
    assert not found & {"asyncio", "dataclasses", "lz4", "zstandard", "cramjam", "barnabas.client.cluster"}
