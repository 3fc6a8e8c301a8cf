"""Spark's errors in one line."""

from barnabas.pipeline.errors import error_text


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
