"""The files in deploy/ by the linter of their kind, each of which finds a mistake that is made for it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.deployed import (
    COMPOSE,
    CONTAINERFILE,
    KUBERNETES,
    KUBERNETES_ROLL,
    KUBERNETES_ZOOKEEPER,
    UNIT,
    read_kubernetes,
)


def program(name: str, where: str) -> str:
    """Returns the path of a linter: beside this Python, or on PATH. Skips the test where it is missing."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name} ({where})")
    return found


def from_pip(name: str) -> str:
    return program(name, "pip install 'barnabas[dev]'")


def findings(command: list[str], *, failed: bool) -> str:
    """Returns what a linter prints. Asserts that its exit code says so, too."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode != 0) == failed, done.stdout + done.stderr
    return done.stdout + done.stderr


def spoiled(path: Path, into: Path, change: str, to: str) -> str:
    """Returns the path of a copy with a mistake."""
    text = path.read_text()
    assert change in text
    (into / path.name).write_text(text.replace(change, to))
    return str(into / path.name)


# --- the container file -----------------------------------------------------------------------------------------------


def hadolint(path: str, *, failed: bool) -> str:
    return findings([from_pip("hadolint"), "--no-color", path], failed=failed)


def test_hadolint_finds_nothing_in_the_container_file() -> None:
    assert hadolint(str(CONTAINERFILE), failed=False) == ""


@pytest.mark.parametrize(
    ("change", "to", "finding"),
    [
        ("FROM python:3.11-slim-bookworm\n", "FROM python\n", "DL3006 warning: Always tag the version"),
        ("USER 10001:10001", "USER root", "DL3002 warning: Last USER should not be root"),
        (
            'ENTRYPOINT ["barnabas", "serve"]',
            "ENTRYPOINT barnabas serve",
            "DL3025 warning: Use arguments JSON notation",
        ),
        ("WORKDIR", "WORKDER", "unexpected 'W'"),
    ],
)
def test_hadolint_finds_a_mistake(tmp_path: Path, change: str, to: str, finding: str) -> None:
    assert finding in hadolint(spoiled(CONTAINERFILE, tmp_path, change, to), failed=True)


# --- the compose file -------------------------------------------------------------------------------------------------


def check_compose(path: str, *, failed: bool) -> str:
    command = [from_pip("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", "--default-filetype", "yaml"]
    return findings([*command, path], failed=failed)


def test_the_compose_file_follows_the_specification() -> None:
    check_compose(str(COMPOSE), failed=False)


@pytest.mark.parametrize(
    ("change", "to", "finding"),
    [
        ("stop_grace_period:", "stop_grace:", "('stop_grace' was unexpected)"),
        ("condition: service_healthy", "condition: service_ready", "'service_ready' is not one of"),
        ("hostname: broker-2", "hostname: 2", "2 is not of type 'string'"),
    ],
)
def test_a_mistake_in_the_compose_file_is_found(tmp_path: Path, change: str, to: str, finding: str) -> None:
    assert finding in check_compose(spoiled(COMPOSE, tmp_path, change, to), failed=True)


# --- the manifest -----------------------------------------------------------------------------------------------------


def validate(path: str, version: str, *, failed: bool) -> str:
    return findings([from_pip("kubernetes-validate"), "--strict", "--kubernetes-version", version, path], failed=failed)


def oldest_version() -> str:
    found = re.search(r"Kubernetes (1\.\d+) or newer", KUBERNETES.read_text())
    assert found is not None
    return found[1]


@pytest.mark.parametrize("path", [KUBERNETES, KUBERNETES_ZOOKEEPER, KUBERNETES_ROLL], ids=lambda path: path.name)
def test_a_manifest_follows_the_schema_of_the_oldest_and_the_newest_kubernetes(path: Path) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    for version in (oldest_version(), kubernetes_validate.latest_version().removesuffix(".0")):
        shown = validate(str(path), version, failed=False)
        # a kind that the version does not know is no failure, but does not pass either
        passed = re.findall(f"passed for resource .* against version {version}", shown)
        assert len(passed) == len(read_kubernetes(path)), shown


@pytest.mark.parametrize(
    ("path", "change", "to", "finding"),
    [
        (KUBERNETES, "maxUnavailable: 1", "maxUnavailble: 1", "'maxUnavailble' was unexpected"),
        (KUBERNETES, "PeriodSeconds: 120", "PeriodSeconds: 2m", "'2m' is not of type 'integer'"),
        (KUBERNETES, "serviceName: barnabas", "", "'serviceName' is a required property"),
        (KUBERNETES_ZOOKEEPER, "podSelector:", "podSelektor:", "'podSelektor' was unexpected"),
        (KUBERNETES_ROLL, "backoffLimit: 0", "backofLimit: 0", "'backofLimit' was unexpected"),
    ],
)
def test_a_mistake_in_a_manifest_is_found(tmp_path: Path, path: Path, change: str, to: str, finding: str) -> None:
    assert finding in validate(spoiled(path, tmp_path, change, to), oldest_version(), failed=True)


# --- the unit ---------------------------------------------------------------------------------------------------------

EXECUTABLE = "/opt/barnabas/bin/barnabas"
WRONG_FINDINGS = {
    "Security.UMaskOW": "takes the mask for the permissions that are left",
    "Security.Delegate": "a control group of its own is for those that run containers",
}
"""Why some of what systemdlint finds is wrong."""


def systemdlint(path: str) -> list[str]:
    form = "{severity} [{id}] {msg}"
    command = [from_pip("systemdlint"), "--norootfs", "--messageformat", form, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    lines = (done.stdout + done.stderr).splitlines()
    return [line for line in lines if not any(f"[{known}]" in line for known in WRONG_FINDINGS)]


def test_systemdlint_finds_nothing_in_the_unit() -> None:
    assert systemdlint(str(UNIT)) == []


@pytest.mark.parametrize(
    ("change", "to", "finding"),
    [
        ("Restart=on-failure", "Restrat=on-failure", "[InvalidSetting] Restrat"),
        ("Type=notify", "Type=daemon", "[InvalidValue]"),
        ("User=barnabas", "", "[Security.NoUser]"),
    ],
)
def test_systemdlint_finds_a_mistake(tmp_path: Path, change: str, to: str, finding: str) -> None:
    assert any(finding in line for line in systemdlint(spoiled(UNIT, tmp_path, change, to)))


def systemd(*arguments: str, failed: bool = False) -> str:
    return findings([program("systemd-analyze", "systemd"), *arguments], failed=failed)


def verify(path: str, *, failed: bool) -> str:
    return systemd("verify", "--man=no", "--recursive-errors=no", path, failed=failed)


def test_systemd_finds_nothing_in_the_unit(tmp_path: Path) -> None:
    assert verify(spoiled(UNIT, tmp_path, EXECUTABLE, "/bin/true"), failed=False) == ""


@pytest.mark.parametrize(
    ("change", "to", "finding"),
    [
        ("ProtectSystem=strict", "ProtectSystem=srict", "Failed to parse"),
        ("TimeoutStopSec=120", "TimeoutStop=120", "Unknown key 'TimeoutStop'"),
    ],
)
def test_systemd_finds_a_mistake(tmp_path: Path, change: str, to: str, finding: str) -> None:
    unit = Path(spoiled(UNIT, tmp_path, EXECUTABLE, "/bin/true"))
    assert finding in verify(spoiled(unit, tmp_path, change, to), failed=True)


def test_systemd_finds_little_that_the_unit_could_do_besides_its_work(tmp_path: Path) -> None:
    tenths_of_exposure = "20"
    arguments = ("security", "--offline=true", f"--threshold={tenths_of_exposure}")
    systemd(*arguments, spoiled(UNIT, tmp_path, EXECUTABLE, "/bin/true"))
    systemd(*arguments, spoiled(UNIT, tmp_path, "CapabilityBoundingSet=\n", "\n"), failed=True)
