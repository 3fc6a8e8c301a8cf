"""The table of the benchmarks, and the requests that they send themselves."""

import os
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="the benchmark's clients are confluent-kafka's")

from bench import growth, report, wire
from bench.clients import comparison as clients
from bench.clients import loads as client_loads
from bench.clients import pipes
from bench.spark import report as spark_report
from bench.spark import session as spark_session
from bench.suite import INIT, LARGE, LATENCY_RATES, LOADS, LOOP, RAW_FETCH_PARTITION_BYTES, SMALL
from bench.targets import TARGETS, Target


def document(**results: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    return {
        "at": "2026-11-21T07:00:00+00:00",
        "machine": "2 cores, 24 GB, Linux",
        "python": "3.11.7",
        "client": "rdkafka_performance",
        "brokers": ["kafka", "barnabas"],
        "rounds": 3,
        "quick": False,
        "skipped": ["kfake: go is not on PATH: apt-get install golang"],
        "failures": [],
        "results": {row.replace("_", " "): figures for row, figures in results.items()},
    }


def test_a_target_is_a_ratio_to_kafka_unless_absolute() -> None:
    assert Target(0.4).met(2.0, 5.0) is True
    assert Target(0.4).met(2.1, 5.0) is False
    assert Target(1.4, at_least=True).met(7.0, 5.0) is True
    assert Target(24, absolute=True).met(25.0, 1.0) is False
    assert Target(0.4).met(2.0, None) is None


def test_medians_decide_and_the_table_says_what_was_not_run() -> None:
    start = {"first_ack_s": {"kafka": [3.0, 2.0, 9.0], "barnabas": [0.2, 0.1, 5.0]}}
    table = report.markdown(document(start=start))
    assert "| start | first_ack_s | 3 | 0.2 | 0.07 | <= 0.1x | pass |" in table
    assert "- not run: kfake: go is not on PATH: apt-get install golang" in table


def test_a_missed_target_is_named() -> None:
    idle = {"memory_MB": {"kafka": [300.0], "barnabas": [60.0]}}
    assert report.missed(document(idle=idle)) == ["idle memory_MB (<= 0.15x)"]


def test_every_target_belongs_to_a_row_that_is_run() -> None:
    rows = {f"{kind} {load.name}" for load in LOADS for kind in ("produce", "consume")}
    rows |= {*RAW_FETCH_PARTITION_BYTES, *LATENCY_RATES, "start", "idle", "memory after load", "end to end", "restart"}
    rows |= {"1,000 topics", "1,000 connections", INIT, SMALL, LARGE, LOOP}
    assert {row for row, _ in TARGETS} <= rows


def test_the_page_keeps_what_people_wrote(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text("# Benchmarks\n\nHow it is measured.\n")
    report.update_docs("first table\n", page)
    page.write_text(page.read_text() + "\nWhat it means.\n")
    report.update_docs("second table\n", page)
    text = page.read_text()
    assert "first table" not in text
    assert [text.index(part) for part in ("How it is", "second table", "What it means")] == sorted(
        text.index(part) for part in ("How it is", "second table", "What it means")
    )


def test_growth_is_told_as_an_exponent_of_the_upper_decade() -> None:
    points = {10.0: {"create_s": 1.0, "memory_MB": 5.0}, 100.0: {"create_s": 100.0, "memory_MB": 5.0}}
    assert growth.slopes(points) == pytest.approx({"create_s": 2.0, "memory_MB": 0.0})


def test_the_next_fetch_starts_after_the_last_whole_batch() -> None:
    def batch(base_offset: int, records: int) -> bytes:
        body = bytearray(struct.pack(">qi", base_offset, 61 - 12) + bytes(49))
        struct.pack_into(">i", body, wire.LAST_OFFSET_DELTA_AT, records - 1)
        return bytes(body)

    records = batch(10, 5) + batch(15, 3) + batch(18, 4)[:40]
    body = struct.pack(">ii", 0, 1) + wire.string("topic") + struct.pack(">i", 1)
    body += struct.pack(">ihqqi", 2, 0, 22, 22, 0) + wire.data_bytes(records)
    assert wire.fetched_ranges(memoryview(body)) == {2: (18, len(records))}


def test_every_goal_of_a_client_belongs_to_a_row_that_is_run() -> None:
    rows = {row.name: row.loads for row in clients.ROWS}
    for goal in clients.GOALS:
        assert {goal.client, *goal.peers} <= rows[goal.row].keys()
    for row in clients.ROWS:
        for client, load in row.loads.items():
            name = client.removesuffix("-pure").replace("-", "_")
            assert callable(getattr(client_loads, f"{name}_{load}"))


def test_a_client_is_judged_beside_the_best_of_its_peers() -> None:
    goal = clients.Goal("iterate", "barnabas", "records_per_s", 1.5, ("confluent", "aiokafka"))
    peers = {"confluent": {"records_per_s": 300.0}, "aiokafka": {"records_per_s": 700.0}}
    assert goal.verdict({**peers, "barnabas": {"records_per_s": 1050.0}}).endswith("1.50x pass")
    assert goal.verdict({**peers, "barnabas": {"records_per_s": 1040.0}}).endswith("1.49x **FAIL**")
    assert goal.verdict(peers) == ""
    limit = clients.Goal("send", "barnabas", "memory_MB", 60.0, at_least=False)
    assert limit.verdict({"barnabas": {"memory_MB": 60.0}}) == "memory_MB <= 60: 60 pass"


def test_the_part_of_the_page_about_clients_leaves_the_rest_alone(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"# Benchmarks\n\n{report.BEGIN}\n\nbrokers\n{report.END}\n\nafter\n")
    for text in ("first", "second"):
        report.update_block(text, page, clients.BEGIN, clients.END)
    assert page.read_text() == (
        f"# Benchmarks\n\n{report.BEGIN}\n\nbrokers\n{report.END}\n\nafter\n\n"
        f"{clients.BEGIN}\n\nsecond\n{clients.END}\n"
    )


def test_a_pipe_is_judged_beside_kcat(tmp_path: Path) -> None:
    def figures(wall_s: float, cpu_s: float) -> dict[str, list[float]]:
        return {"wall_s": [wall_s, 0.1, 99], "cpu_s": [cpu_s, 0.1, 99], "memory_MB": [40.0]}

    table = pipes.markdown({"produce": {"kcat": figures(4.0, 6.0), "barnabas": figures(6.0, 9.6)}}, 1000, 3)
    assert "| produce | kcat | 4 | 6 | 40 |  |" in table
    assert "wall_s <= 1.5x kcat: 1.50x pass; cpu_s <= 1.5x kcat: 1.60x **FAIL**" in table


def test_a_process_in_a_pipe_is_measured_to_its_end(tmp_path: Path) -> None:
    source = tmp_path / "records"
    pipes.write_records(source, 2000)
    assert len({line.partition("\t")[0] for line in source.read_text().splitlines()}) == 2000
    script = "import sys; read = sys.stdin.buffer.read(); sys.exit(read.count(b'\\n') != 2000)"
    figures = pipes.measure([sys.executable, "-c", script], source)
    assert figures["wall_s"] > 0
    assert 1 < pipes.peak_mb(os.getpid()) < 10_000
    with pytest.raises(subprocess.CalledProcessError):
        pipes.measure([sys.executable, "-c", script])


def spark_rows() -> list[str]:
    loads: Any = SimpleNamespace(read_json=None, micro_batches=None)
    return [row.name for row in spark_session.rows_of(loads, lag_gb=1)]


def test_every_goal_beside_the_jvm_connector_belongs_to_a_row_that_is_run() -> None:
    assert set(spark_report.GOALS) <= set(spark_rows())
    assert any(row.startswith(spark_session.NEVER_WARMED) for row in spark_rows())


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
