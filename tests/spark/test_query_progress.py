"""Lag and throughput out of Spark's reports. No Spark."""

from barnabas.spark.query_progress import QueryProgress, prometheus_text
from barnabas.types import TopicPartition

REPORT = {
    "id": "8c57",
    "name": 'by "hour"',
    "batchId": 4,
    "numInputRows": 1200,
    "processedRowsPerSecond": 10000.0,
    "durationMs": {"triggerExecution": 120},
    "sources": [
        {
            "endOffset": {"orders": {"0": 10, "1": 5}, "@ids": {"orders": "x"}},
            "latestOffset": '{"orders": {"0": 30, "1": 5, "2": 7},'
            ' "@behind": {"maxOffsetsBehindLatest": "20", "estimatedTotalBytesBehindLatest": "1640"}}',
        },
        {"endOffset": "not ours", "latestOffset": None},
        {"endOffset": {"logOffset": 3}, "latestOffset": {"logOffset": 4}},
    ],
}


def test_lag_is_what_is_there_and_not_read() -> None:
    found = QueryProgress.of(REPORT)
    assert found.lag == {TopicPartition("orders", 0): 20, TopicPartition("orders", 1): 0}
    assert str(found) == (
        'query by "hour", batch 4: 1,200 rows in 120 ms (10,000 a second), lag 20 (about 1,640 bytes),'
        " most of it in orders-0"
    )


def test_rows_add_up() -> None:
    assert QueryProgress.of(REPORT, QueryProgress.of(REPORT)).rows_total == 2400


def test_a_report_of_nothing() -> None:
    found = QueryProgress.of({"id": "8c57", "name": None, "batchId": 0, "sources": []})
    assert str(found) == "query 8c57, batch 0: 0 rows in 0 ms (0 a second), lag 0"


def test_text_for_prometheus() -> None:
    lines = prometheus_text([QueryProgress.of(REPORT)]).splitlines()
    assert 'barnabas_spark_query_rows_total{query="by \\"hour\\"",id="8c57"} 1200' in lines
    assert 'barnabas_spark_query_batch_seconds{query="by \\"hour\\"",id="8c57"} 0.12' in lines
    assert 'barnabas_spark_query_lag{query="by \\"hour\\"",id="8c57",topic="orders",partition="0"} 20' in lines
    assert 'barnabas_spark_query_bytes_behind{query="by \\"hour\\"",id="8c57"} 1640' in lines
    assert lines.count("# TYPE barnabas_spark_query_lag gauge") == 1
