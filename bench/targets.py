"""The target of each figure: a ratio to Apache Kafka in the same run, or an absolute bound."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

REFERENCE = "kafka"


@dataclass(frozen=True, slots=True)
class Target:
    """``bound`` is a ratio to the reference broker unless ``absolute``; ``at_least`` says whether larger figures are
    better."""

    bound: float
    at_least: bool = False
    absolute: bool = False

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}{'' if self.absolute else 'x'}"

    def met(self, value: float, reference: float | None) -> bool | None:
        """Returns None if the reference is missing or zero."""
        if self.absolute:
            measured = value
        elif reference:
            measured = value / reference
        else:
            return None
        if math.isnan(measured):
            return None
        return measured >= self.bound if self.at_least else measured <= self.bound


def at_least(bound: float) -> Target:
    return Target(bound, at_least=True)


def at_most(bound: float) -> Target:
    return Target(bound)


TARGETS: Mapping[tuple[str, str], Target] = {
    ("start", "first_ack_s"): at_most(0.10),
    ("restart", "first_ack_s"): at_most(0.05),
    ("idle", "memory_MB"): at_most(0.15),
    ("idle", "cpu_percent"): at_most(0.25),
    ("memory after load", "memory_MB"): at_most(0.08),
    ("produce 100 B acks=1", "records_per_s"): at_least(1.4),
    ("produce 100 B acks=1", "cpu_s_per_GB"): at_most(0.4),
    ("produce 100 B acks=all", "records_per_s"): at_least(1.4),
    ("produce 100 B acks=all", "cpu_s_per_GB"): at_most(0.4),
    ("produce 100 B lz4", "records_per_s"): at_least(1.0),
    ("produce 100 B lz4", "cpu_s_per_GB"): at_most(0.5),
    ("produce 100 B zstd", "records_per_s"): at_least(1.0),
    ("produce 100 B zstd", "cpu_s_per_GB"): at_most(0.5),
    ("produce 1 KB acks=all", "records_per_s"): at_least(1.6),
    ("produce 1 KB acks=all", "cpu_s_per_GB"): at_most(0.3),
    ("consume 100 B acks=1", "records_per_s"): at_least(1.0),
    ("consume 100 B acks=1", "cpu_s_per_GB"): at_most(0.8),
    ("consume 100 B acks=all", "records_per_s"): at_least(1.0),
    ("consume 100 B acks=all", "cpu_s_per_GB"): at_most(0.8),
    ("consume 1 KB acks=all", "records_per_s"): at_least(1.1),
    ("consume 1 KB acks=all", "cpu_s_per_GB"): at_most(0.8),
    ("raw fetch 1 KB", "of_sendfile"): Target(0.8, at_least=True, absolute=True),
    ("latency 1,000/s", "p50_ms"): at_most(0.8),
    ("latency 1,000/s", "p99_ms"): at_most(0.4),
    ("latency 1,000/s", "p999_ms"): at_most(0.3),
    ("latency 1,000/s", "cpu_percent"): at_most(0.5),
    ("latency 10,000/s", "p50_ms"): at_most(1.0),
    ("latency 10,000/s", "p99_ms"): at_most(0.2),
    ("latency 10,000/s", "p999_ms"): at_most(0.2),
    ("latency 10,000/s", "cpu_percent"): at_most(0.5),
    ("end to end", "p50_ms"): at_most(0.8),
    ("end to end", "p99_ms"): at_most(0.3),
    ("init_transactions", "p50_ms"): at_most(0.5),
    ("init_transactions", "p99_ms"): at_most(0.3),
    ("transaction of 1 record", "p50_ms"): at_most(0.5),
    ("transaction of 1 record", "p99_ms"): at_most(0.3),
    ("transaction of 1,000 records", "p50_ms"): at_most(0.5),
    ("transaction of 1,000 records", "p99_ms"): at_most(0.3),
    ("read-process-write", "records_per_s"): at_least(2.0),
    ("read-process-write", "p50_ms"): at_most(0.5),
    ("read-process-write", "p99_ms"): at_most(0.3),
    ("1,000 topics", "create_s"): at_most(1.0),
    ("1,000 topics", "metadata_ms"): at_most(0.5),
    ("1,000 topics", "memory_MB"): at_most(0.15),
    ("1,000 connections", "connect_ms"): at_most(0.4),
    ("1,000 connections", "memory_kB_each"): Target(24, absolute=True),
}

CLUSTER_TARGETS: Mapping[tuple[str, str], Target] = {
    ("start", "first_ack_s"): at_most(0.15),
    ("idle", "memory_MB"): at_most(0.12),
    ("idle", "cpu_percent"): at_most(0.3),
    ("memory after load", "memory_MB"): at_most(0.1),
    ("produce 100 B acks=all", "records_per_s"): at_least(1.5),
    ("produce 100 B acks=all", "cpu_s_per_GB"): at_most(0.4),
    ("produce 1 KB acks=all", "records_per_s"): at_least(1.7),
    ("produce 1 KB acks=all", "cpu_s_per_GB"): at_most(0.5),
    ("consume 1 KB", "records_per_s"): at_least(1.0),
    ("consume 1 KB", "cpu_s_per_GB"): at_most(0.8),
    ("latency 1,000/s", "p50_ms"): at_most(1.0),
    ("latency 1,000/s", "p99_ms"): at_most(0.4),
    ("latency 1,000/s", "p999_ms"): at_most(0.4),
    ("latency 1,000/s", "cpu_percent"): at_most(0.5),
    ("SIGKILL of a leader", "gap_s"): at_most(0.06),
    ("SIGKILL of a leader", "gap_elsewhere_s"): at_most(0.06),
    ("SIGKILL of a leader", "in_sync_s"): at_most(0.3),
    ("SIGKILL of the controller", "gap_s"): at_most(0.06),
    ("SIGKILL of the group coordinator", "consumer_gap_s"): at_most(0.1),
    ("SIGKILL of the group coordinator", "commit_gap_s"): at_most(0.1),
    ("SIGTERM of a leader", "gap_s"): at_most(0.3),
    **{
        (row, anomaly): Target(0, absolute=True)
        for row in (
            "SIGKILL of a leader",
            "SIGKILL of the controller",
            "SIGKILL of the group coordinator",
            "SIGTERM of a leader",
        )
        for anomaly in ("lost", "doubled", "disordered")
    },
}
"""The same for three brokers beside three of Apache Kafka."""
