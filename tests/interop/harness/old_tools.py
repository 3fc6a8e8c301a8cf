"""The tools of Apache Kafka 2.4.1, which speak to ZooKeeper."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from jvm import JVM

from .broker import OLD_KAFKA_LIBS

needs_old_tools = pytest.mark.skipif(
    not any(OLD_KAFKA_LIBS.glob("kafka_*.jar")) or shutil.which("java") is None,
    reason="needs java and the jars of Kafka 2.4.1: make interop-clients",
)


def run_tool(connect: str, name: str, *arguments: str) -> str:
    """Returns what a tool prints. `name` is that of its class in `kafka.admin`."""
    command = [*JVM, "-cp", f"{OLD_KAFKA_LIBS}/*", f"kafka.admin.{name}", "--zookeeper", connect, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
