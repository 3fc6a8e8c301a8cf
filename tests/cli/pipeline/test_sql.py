"""`barnabas sql` before Spark starts; tests/spark/test_sql.py has its answers."""

import pytest

from barnabas.cli.main import run

pytest.importorskip("pyspark")


@pytest.fixture(autouse=True)
def no_java_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.pipeline.spark_process.require_spark", lambda: None)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["SELECT 1", "--csv", "--json"], "--json and --csv contradict each other; give one of them"),
        (["SELECT 1", "-o", "startingTimestamp"], "--option startingTimestamp: must be NAME=VALUE"),
        ([], "QUERY is missing"),
    ],
)
def test_wrong_usage_is_told_before_spark_starts(
    arguments: list[str], told: str, bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sql", *arguments, "--bootstrap", bootstrap]) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.out == ""


def test_no_broker_is_told_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sql", "SELECT 1", "--bootstrap", "127.0.0.1:1"]) == 1
    assert "connection refused" in capsys.readouterr().err
