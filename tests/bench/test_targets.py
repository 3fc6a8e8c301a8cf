"""The targets of the benchmarks."""

from bench.suite import INIT, LARGE, LATENCY_RATES, LOADS, LOOP, RAW_FETCH_PARTITION_BYTES, SMALL
from bench.targets import TARGETS, Target


def test_a_target_is_a_ratio_to_kafka_unless_absolute() -> None:
    assert Target(0.4).met(2.0, 5.0) is True
    assert Target(0.4).met(2.1, 5.0) is False
    assert Target(1.4, at_least=True).met(7.0, 5.0) is True
    assert Target(24, absolute=True).met(25.0, 1.0) is False
    assert Target(0.4).met(2.0, None) is None


def test_every_target_belongs_to_a_row_that_is_run() -> None:
    rows = {f"{kind} {load.name}" for load in LOADS for kind in ("produce", "consume")}
    rows |= {*RAW_FETCH_PARTITION_BYTES, *LATENCY_RATES, "start", "idle", "memory after load", "end to end", "restart"}
    rows |= {"1,000 topics", "1,000 connections", INIT, SMALL, LARGE, LOOP}
    assert {row for row, _ in TARGETS} <= rows
