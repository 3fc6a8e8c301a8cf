"""The table of Spark's benchmarks."""

from typing import Any

from bench.spark import report as spark_report


def test_ours_is_judged_beside_the_jvm_connector() -> None:
    def rates(*values: float, unit: str = "rec/s", **memory: float) -> dict[str, Any]:
        return {"unit": unit, "values": list(values), **memory}

    rows = {
        "batch read 100 B": {"kafka": rates(90, 100, 500), "barnabas": rates(250, jvm_MB=800.4, workers_MB=90)},
        "read with JSON parsed": {"kafka": rates(100), "barnabas": rates(110), "barnabas valueFormat": rates(120)},
        "micro-batch topic to topic, 8 partitions": {"kafka": rates(400, unit="ms"), "barnabas": rates(141, unit="ms")},
        "AvailableNow 1 KB": {"barnabas": rates(7)},
        "AvailableNow 100 B": {"kafka": rates(100), "barnabas": rates(140), "ready": rates(150)},
    }
    document = {
        "at": "2026-11-22T07:00:00+00:00",
        "machine": "2 cores",
        "rounds": 3,
        "records": 1000,
        "quick": True,
        "versions": {"pyspark": "4.2.0"},
        "results": {"plain": rows},
        "failures": ["lag: no"],
    }
    table = spark_report.markdown(document)
    for line in (
        "| batch read 100 B | rec/s | 100 | 250 | 2.50 | >= 2.5x | pass | 800 | 90 |",
        "| read with JSON parsed | rec/s | 100 | 110 | 1.10 | >= 1.2x | **FAIL** |  |  |",
        "| read with JSON parsed, valueFormat | rec/s | 100 | 120 | 1.20 | >= 1.2x | pass |  |  |",
        "| micro-batch topic to topic, 8 partitions | ms | 400 | 141 | 0.35 | <= 0.35x | **FAIL** |  |  |",
        "| AvailableNow 1 KB | rec/s |  | 7 |  | >= 2.5x |  |  |  |",
        "| AvailableNow 100 B | rec/s | 100 | 140 | 1.40 | >= 2.5x | **FAIL** |  |  |",
        "| AvailableNow 100 B, at most (ready batches) | rec/s | 100 | 150 | 1.50 |  |  |  |  |",
        "- failed: lag: no",
    ):
        assert line in table.splitlines()
    assert "figures are no results" in table
    assert spark_report.scaling({"read 100 B, 8 partitions": {"kafka": rates(1, 2, 9)}}) == {"kafka": {8: 2}}
