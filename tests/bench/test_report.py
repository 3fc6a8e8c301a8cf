"""The table of the benchmarks, and the page that it stands in."""

from pathlib import Path
from typing import Any

from bench import report


def document(**results: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    return {
        "at": "2026-11-21T07:00:00+00:00",
        "machine": "2 cores, 24 GB, Linux",
        "python": "3.11.7",
        "client": "rdkafka_performance",
        "kafka": "4.4.0",
        "brokers": ["kafka", "barnabas"],
        "rounds": 3,
        "quick": False,
        "skipped": ["kfake: go is not on PATH: apt-get install golang"],
        "failures": [],
        "results": {row.replace("_", " "): figures for row, figures in results.items()},
    }


def test_medians_decide_and_the_table_says_what_was_not_run() -> None:
    start = {"first_ack_s": {"kafka": [3.0, 2.0, 9.0], "barnabas": [0.2, 0.1, 5.0]}}
    table = report.markdown(document(start=start))
    assert "| start | first_ack_s | 3 | 0.2 | 0.07 | <= 0.1x | pass |" in table
    assert "- not run: kfake: go is not on PATH: apt-get install golang" in table
    assert "kafka is Apache Kafka 4.4.0." in table


def test_a_release_is_named_only_for_figures_of_its_own() -> None:
    alone = {**document(start={"first_ack_s": {"barnabas": [0.2]}}), "brokers": ["barnabas"]}
    assert "Apache Kafka" not in report.markdown(alone)


def test_a_missed_target_is_named() -> None:
    idle = {"memory_MB": {"kafka": [300.0], "barnabas": [60.0]}}
    assert report.missed(document(idle=idle)) == ["idle memory_MB (<= 0.15x)"]


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
