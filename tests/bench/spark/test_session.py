"""The rows that are run beside the JVM connector."""

from types import SimpleNamespace
from typing import Any

from bench.spark import report as spark_report
from bench.spark import session as spark_session


def spark_rows() -> list[str]:
    loads: Any = SimpleNamespace(read_json=None, micro_batches=None)
    return [row.name for row in spark_session.rows_of(loads, lag_gb=1)]


def test_every_goal_beside_the_jvm_connector_belongs_to_a_row_that_is_run() -> None:
    assert set(spark_report.GOALS) <= set(spark_rows())
    assert any(row.startswith(spark_session.NEVER_WARMED) for row in spark_rows())
