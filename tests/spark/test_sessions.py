"""A session that Spark made by itself, in a virtual environment that is not activated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing import Broker

pytest.importorskip("pyspark")

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from barnabas.spark import register

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
servers, checkpoints = sys.argv[1:]
read = spark.read.format("barnabas").option("bootstrap.servers", servers).option("subscribe", "t").load()
read.selectExpr("value").write.format("barnabas").mode("append").option("bootstrap.servers", servers).option(
    "topic", "batch").save()
stream = spark.readStream.format("barnabas").option("bootstrap.servers", servers).option("subscribe", "t")
query = stream.option("startingOffsets", "earliest").load().selectExpr("value").writeStream.format("barnabas").option(
    "bootstrap.servers", servers).option("topic", "stream").option("checkpointLocation", checkpoints)
query.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.spark
def test_a_session_that_finds_another_python_first(tmp_path: Path) -> None:
    """The `python3` on the PATH is one that knows nothing of barnabas."""
    stranger = tmp_path / "bin" / "python3"
    stranger.parent.mkdir()
    stranger.write_text(f'#!/bin/sh\nexec "{os.path.realpath(sys.executable)}" -I -S "$@"\n')
    stranger.chmod(0o755)
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
    environment["PATH"] = f"{stranger.parent}{os.pathsep}{environment['PATH']}"
    with Broker(settings={"auto.create.topics.enable": True}) as broker:
        broker.create_topics(["t", "batch", "stream"])
        broker.produce("t", "x")
        command = [sys.executable, "-c", PROGRAM, broker.bootstrap_servers, str(tmp_path / "checkpoints")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        assert [record.value for topic in ("batch", "stream") for record in broker.records(topic)] == [b"x", b"x"]
