"""Certificates for tests, made by the openssl command."""

import shutil
import subprocess
from pathlib import Path

import pytest


def make_certificate(folder: Path, name: str, *, password: str = "", host: str = "127.0.0.1") -> Path:
    """Makes a PEM file with a certificate that trusts itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    certificate, key, both = folder / f"{name}.crt", folder / f"{name}.key", folder / f"{name}.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -days 2 -subj /CN=zookeeper"
    extra = ["-addext", f"subjectAltName=IP:{host}", "-keyout", str(key), "-out", str(certificate)]
    encryption = ["-passout", f"pass:{password}"] if password else ["-nodes"]
    subprocess.run([*command.split(), *extra, *encryption], check=True, capture_output=True)
    both.write_text(key.read_text() + certificate.read_text())
    return both
