"""The tables of the clusters."""

from typing import Any

from bench.cluster.beside_kafka import markdown, missed
from bench.cluster.failover import EVENTS
from bench.targets import CLUSTER_TARGETS


def document(**changed: Any) -> dict[str, Any]:
    return {
        "at": "2026-11-23T21:00:00+00:00",
        "cores": 2,
        "kafka": "4.4.0",
        "clusters": ["kafka", "barnabas"],
        "rounds": 3,
        "quick": False,
        "skipped": [],
        "failures": [],
        "others_percent": [2.0, 3.0, 40.0],
        "results": {},
        "growth": {},
        **changed,
    }


LEADER = {
    "gap_s": {"kafka": [8.0, 9.0, 10.0], "barnabas": [0.3, 0.27, 0.9]},
    "lost": {"kafka": [0, 0, 0], "barnabas": [0, 0, 0]},
}


def test_the_table_has_medians_extremes_and_verdicts() -> None:
    table = markdown(document(results={"SIGKILL of a leader": LEADER}))
    assert "| SIGKILL of a leader | gap_s | 9 (8 to 10) | 0.3 (0.27 to 0.9) | 0.03 | <= 0.06x | pass |" in table
    assert "| SIGKILL of a leader | lost | 0 | 0 |  | <= 0 | pass |" in table
    assert "Other processes used 3 % of the machine (median of 3 measurements, at most 40 %)." in table
    assert "kafka is Apache Kafka 4.4.0." in table


def test_one_lost_record_of_all_rounds_is_a_miss() -> None:
    results = {"SIGKILL of a leader": LEADER | {"lost": {"kafka": [0, 0, 0], "barnabas": [0, 0, 1]}}}
    assert missed(document(results=results)) == ["SIGKILL of a leader lost (<= 0)"]
    assert "| lost | 0 | 1 |  | <= 0 | **FAIL** |" in markdown(document(results=results))


def test_without_kafka_ratios_are_not_judged() -> None:
    alone = document(clusters=["barnabas"], results={"start": {"first_ack_s": {"barnabas": [0.5]}}})
    assert missed(alone) == []
    assert "| start | first_ack_s | 0.5 |" in markdown(alone)


def test_growth_has_a_column_for_each_size() -> None:
    table = markdown(document(growth={"100": {"failover_s": 0.1}, "1000.0": {"failover_s": 0.25}}))
    assert "| barnabas | 100 partitions | 1,000 partitions |" in table
    assert "| failover_s | 0.1 | 0.25 |" in table


def test_every_failover_has_targets_and_loses_nothing() -> None:
    rows = {row for row, figure in CLUSTER_TARGETS if figure == "lost"}
    assert rows == {event.row for event in EVENTS}


def test_kafka_is_not_judged_by_itself() -> None:
    alone = document(clusters=["kafka"], results={"start": {"first_ack_s": {"kafka": [7.0]}}})
    assert missed(alone) == []
