"""Queries that are killed in the middle of a commit, as real processes. `python -m tests.spark.chaos` plays more."""

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
from .chaos.sink_cases import Case, Stage
from .chaos.sink_processes import Hosts, served

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("chaos")
    hosts = Hosts(directory)
    try:
        with served(directory) as broker:
            yield Stage(directory, broker, hosts)
    finally:
        hosts.close()


@pytest.mark.parametrize(
    "case",
    [
        Case("before-decision", "raise"),
        Case("mid-write", "worker"),
        Case("first-ended", "broker"),
        Case("decided", "jvm", tasks_after=2),
        Case("deciding", "stop", tasks_after=2),
    ],
    ids=str,
)
def test_each_row_is_committed_once(case: Case, stage: Stage) -> None:
    report = stage.play(case)
    assert report.is_exact, f"{report}\n{report.told}"


def test_without_transactions_the_same_failure_doubles_rows(stage: Stage) -> None:
    """Else the cases above would prove nothing."""
    report = stage.play(Case("decided", "raise", mode="none"))
    assert report.fired
    assert report.verdict.doubled, report
