"""What an import costs is what every command and test waits for."""

import subprocess
import sys

import pytest

import barnabas


def imported_by(statement: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


SLOW = {
    *("asyncio", "dataclasses", "email", "inspect", "json", "ssl", "subprocess", "tempfile"),
    *("cramjam", "lz4", "msgspec", "numpy", "pandas", "pyarrow", "rich", "zstandard"),
}


def test_the_package_itself_imports_nothing() -> None:
    assert imported_by("import barnabas.client") <= {"barnabas", "barnabas.version", "barnabas.client"} | imported_by(
        "import typing"
    )


def test_an_administrator_does_without_what_is_slow() -> None:
    found = imported_by("from barnabas import Admin")
    assert not found & (SLOW | {"logging"})
    assert not {name for name in found if name.startswith(("barnabas.broker", "barnabas.log", "barnabas.coordinator"))}


def test_the_public_names_are_imported_when_they_are_asked_for() -> None:
    assert imported_by("import barnabas, barnabas.aio") <= {
        "barnabas",
        "barnabas.version",
        "barnabas.aio",
    } | imported_by("import typing")


@pytest.mark.parametrize("name", ["Consumer", "Producer"])
def test_a_client_starts_without_what_is_slow(name: str) -> None:
    found = imported_by(f"import barnabas; barnabas.{name}(bootstrap_servers='127.0.0.1:9').close()")
    assert not found & SLOW
    assert not {module for module in found if module.startswith(("barnabas.broker", "barnabas.log."))}
    other = "producer" if name == "Consumer" else "consumer"
    assert f"barnabas.client.{other}.{other}_kafka_consumer" not in found


def test_every_public_name_is_there() -> None:
    for module in (barnabas, barnabas.aio):
        assert all(getattr(module, name) is not None for name in module.__all__)


def test_the_fronts_for_asyncio_and_the_errors_are_reached_through_the_package() -> None:
    reached = imported_by("import barnabas; barnabas.aio.Producer; barnabas.errors.TopicNotFound; barnabas.testing")
    assert {"barnabas.aio", "barnabas.client.producer.aio_front", "barnabas.errors", "barnabas.testing"} <= reached
    for name in ("aio", "errors", "testing", "Producer", "ConsumerRecord"):
        assert name in dir(barnabas)


def test_types_for_checkers_are_not_imported() -> None:
    found = imported_by("import barnabas; barnabas.Producer, barnabas.Consumer, barnabas.Admin")
    assert not {name for name in found if name.endswith(("settings.keywords", "typing_extensions"))}
