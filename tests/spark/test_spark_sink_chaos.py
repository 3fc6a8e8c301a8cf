"""Queries that are killed in the middle of a commit, as real processes. `python tests/spark/chaos` plays all cases."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
sys.path.insert(0, str(Path(__file__).parent / "chaos"))
from sink_cases import Case, play


@pytest.mark.parametrize(
    "case",
    [
        Case("decided", "jvm", tasks=2, tasks_after=3),
        Case("first-ended", "broker", two_phase_broker=False),
        Case("before-decision", "raise"),
    ],
    ids=lambda case: f"{case.kind}-{case.point}",
)
def test_each_row_is_committed_once(case: Case, tmp_path: Path) -> None:
    report = play(case, tmp_path)
    assert report.fired, report
    assert report.is_exact, report


def test_without_transactions_the_same_kill_doubles_rows(tmp_path: Path) -> None:
    """Else the cases above would prove nothing."""
    report = play(Case("decided", "jvm", mode="none"), tmp_path)
    assert report.fired, report
    assert report.doubled, report
