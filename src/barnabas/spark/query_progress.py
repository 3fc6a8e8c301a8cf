"""Lag and throughput of streaming queries, out of Spark's progress reports, as lines of a log and as text for
Prometheus."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from barnabas.errors import UsageError
from barnabas.spark.source.offsets import BEHIND, parse_stream_offset
from barnabas.types import TopicPartition

__all__ = ["QueryProgress", "prometheus_text"]


class QueryProgress(NamedTuple):
    """The last report of a query, with the totals of the reports before."""

    query_id: str
    name: str
    batch_id: int
    rows: int
    rows_total: int
    rows_per_second: float
    batch_ms: int
    lag: Mapping[TopicPartition, int]
    """The lag of the partitions whose end is known, at the beginning of the batch."""
    read: Mapping[TopicPartition, int] = {}
    """The offset up to which each partition was read."""
    watermark: str | None = None
    """The watermark of a query with event time, as Spark writes it."""
    bytes_behind: int = 0
    """The estimated size of the lag on disk."""

    @classmethod
    def of(cls, report: Mapping[str, Any], before: "QueryProgress | None" = None) -> "QueryProgress":
        """Makes the progress of a report as StreamingQueryProgress.json has it."""
        rows = int(report.get("numInputRows") or 0)
        return cls(
            str(report.get("id", "")),
            str(report.get("name") or report.get("id", "")),
            int(report.get("batchId") or 0),
            rows,
            rows + (0 if before is None else before.rows_total),
            float(report.get("processedRowsPerSecond") or 0.0),
            int((report.get("durationMs") or {}).get("triggerExecution") or 0),
            _lag(report.get("sources") or ()),
            _read(report.get("sources") or ()),
            (report.get("eventTime") or {}).get("watermark"),
            sum(_bytes_behind(source.get("latestOffset")) for source in report.get("sources") or ()),
        )

    @property
    def total_lag(self) -> int:
        return sum(self.lag.values())

    def __str__(self) -> str:
        text = f"query {self.name}, batch {self.batch_id}: {self.rows:,} rows in {self.batch_ms:,} ms"
        text += f" ({self.rows_per_second:,.0f} a second), lag {self.total_lag:,}"
        if self.bytes_behind:
            text += f" (about {self.bytes_behind:,} bytes)"
        worst = max(self.lag, key=lambda partition: self.lag[partition], default=None)
        return text + (f", most of it in {worst}" if worst is not None and self.lag[worst] else "")


def _lag(sources: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for source in sources:
        read, there = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        for partition, end in there.items():
            if partition in read:
                found[partition] = found.get(partition, 0) + max(end - read[partition], 0)
    return found


def _read(sources: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, int]:
    return {partition: offset for source in sources for partition, offset in _offsets(source.get("endOffset")).items()}


def _offsets(document: Any) -> Mapping[TopicPartition, int]:
    """Returns the offsets of our source or of Spark's Kafka connector; nothing for others."""
    try:
        return parse_stream_offset(_object(document)).offsets
    except UsageError:
        return {}


def _bytes_behind(document: Any) -> int:
    """Returns what our source has estimated; 0 for all other sources."""
    try:
        return int(_object(document)[BEHIND]["estimatedTotalBytesBehindLatest"])
    except (LookupError, TypeError, ValueError):
        return 0


def _object(document: Any) -> Mapping[str, Any]:
    """Returns an offset of a report, which is a JSON object or the text of one; empty for anything else."""
    try:
        found = json.loads(document) if isinstance(document, str) else document
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


_METRICS: Final[tuple[tuple[str, str, str, Callable[[QueryProgress], float]], ...]] = (
    ("rows_total", "counter", "Rows that the query has read since it was first seen.", lambda q: q.rows_total),
    ("rows_per_second", "gauge", "Rows that the last batch processed in a second.", lambda q: q.rows_per_second),
    ("batch_seconds", "gauge", "How long the last batch took.", lambda q: q.batch_ms / 1000),
    ("batch_id", "gauge", "The last batch.", lambda q: q.batch_id),
    ("bytes_behind", "gauge", "About how many bytes on disk are there and not read.", lambda q: q.bytes_behind),
)


def prometheus_text(queries: Iterable[QueryProgress]) -> str:
    """Returns the metrics of all queries in Prometheus' text format."""
    there = list(queries)
    lines = []
    for name, kind, doc, value in _METRICS:
        lines += _head(name, kind, doc)
        lines += [f"barnabas_spark_query_{name}{{{_labels(query)}}} {value(query)}" for query in there]
    lines += _head("lag", "gauge", "Offsets that are there and that the query has not read.")
    for query in there:
        for (topic, partition), lag in sorted(query.lag.items()):
            place = f'topic="{_escaped(topic)}",partition="{partition}"'
            lines.append(f"barnabas_spark_query_lag{{{_labels(query)},{place}}} {lag}")
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, doc: str) -> list[str]:
    return [f"# HELP barnabas_spark_query_{name} {doc}", f"# TYPE barnabas_spark_query_{name} {kind}"]


def _labels(query: QueryProgress) -> str:
    return f'query="{_escaped(query.name)}",id="{_escaped(query.query_id)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
