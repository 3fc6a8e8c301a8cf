"""Spark's errors in one line."""

from pathlib import Path

import pytest

from barnabas.pipeline.errors import PipelineFailed, QueryFailed, error_text, spark_failures


def test_what_is_told_of_an_output() -> None:
    said = """WARN x
Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with spark
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
"""
    assert error_text(said) == "org.apache.spark.SparkException: Master must either be yarn or start with spark"
    assert error_text(ValueError("[A] b\n\nJVM stacktrace:\norg.X: [A] b\n\tat c")) == "[A] b"
    python = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):
  File "/x/layers.py", line 3, in schema
    import nothing
ModuleNotFoundError: No module named 'nothing'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
UnboundLocalError: cannot access local variable 'reader'
"""
    assert error_text(ValueError(python)) == (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to plan: ModuleNotFoundError: No module named 'nothing'"
    )


def test_the_last_cause_is_told() -> None:
    failed = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted.

JVM stacktrace:
org.apache.spark.sql.streaming.StreamingQueryException: Job aborted.
\tat org.apache.spark.X.run(X.scala:1)
Caused by: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Y.run(Y.scala:1)
Caused by: java.lang.NoSuchMethodError: 'void org.apache.spark.Z.<init>()'
\t... 5 more
"""
    assert error_text(ValueError(failed)) == (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted.; "
        "caused by java.lang.NoSuchMethodError: 'void org.apache.spark.Z.<init>()'"
    )


def test_the_failure_of_a_query_names_the_log(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    with pytest.raises(PipelineFailed, match=rf"^query copy has failed: no \(all of it: {log}\)$"), spark_failures(log):
        raise QueryFailed("query copy has failed: no")
