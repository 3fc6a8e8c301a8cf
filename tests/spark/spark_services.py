"""Spark's own services from the pip package, as processes: a standalone cluster on loopback addresses, and a server for
Spark Connect."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

import barnabas
from jvm import QUICK_OPTIONS

HOME = Path(pyspark.__file__).parent
SOURCES = str(Path(barnabas.__file__).resolve().parents[1])
LIMIT_S = 180.0


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


@contextmanager
def spark_process(log: Path, says: str, *words: str) -> Iterator[None]:
    """Runs one of Spark's classes; goes on when its log has what it `says`."""
    env = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_DAEMON_MEMORY": "1g" if words[0] == "spark-submit" else "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_OPTIONS,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([SOURCES, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    with log.open("wb") as out:
        process = subprocess.Popen([HOME / "bin" / words[0], *words[1:]], stdout=out, stderr=out, env=env)
    try:
        deadline = time.monotonic() + LIMIT_S
        while says not in log.read_text(errors="replace"):
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def standalone(directory: Path, workers: int = 2) -> Iterator[str]:
    """The master's URL. Each worker is another host to Spark: copies of slow tasks run on another one only."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        words = ["spark-class", f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        stack.enter_context(
            spark_process(directory / "master.log", "I have been elected leader", *words, "--webui-port", "0")
        )
        for number in range(2, 2 + workers):
            words = ["spark-class", f"{deploy}.worker.Worker", "--host", f"127.0.0.{number}", "--webui-port", "0"]
            words += ["--cores", "2", "--memory", "1g", "--work-dir", str(directory / f"work-{number}"), url]
            log = directory / f"worker-{number}.log"
            stack.enter_context(spark_process(log, "Successfully registered with master", *words))
        yield url


STANDALONE_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "700m",
    "spark.executor.cores": "2",
    "spark.executor.extraJavaOptions": QUICK_OPTIONS,
}


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """Where a server for Spark Connect is."""
    from barnabas.spark import session_settings

    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    settings = {
        **session_settings(local_disk=True),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    words = ["spark-submit", "--master", "local[2]", "--driver-memory", "1g", "--driver-java-options", QUICK_OPTIONS]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    words += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with spark_process(directory / "connect.log", "Spark Connect server started", *words):
        yield f"sc://127.0.0.1:{port}"
