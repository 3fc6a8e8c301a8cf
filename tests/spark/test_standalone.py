"""Scale out: queries by a master's URL, on a standalone cluster of two workers; there Spark also runs copies of
slow tasks. Takes a minute and more: `make test-spark-faults`, or SPARK_STANDALONE=1."""

import os
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
if os.environ.get("SPARK_STANDALONE") != "1":
    pytest.skip("a cluster takes a minute to start: SPARK_STANDALONE=1 asks for it", allow_module_level=True)

from .chaos.sink_cases import Case, Stage
from .chaos.sink_processes import Hosts, served
from .spark_services import STANDALONE_SETTINGS, standalone

pytestmark = pytest.mark.spark

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "300ms",
    "spark.task.reaper.enabled": "false",
    "spark.python.task.killTimeout": "60s",  # the one that was slower must come to its end, too
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("standalone")
    with standalone(directory / "cluster") as url, served(directory) as broker:
        settings = tuple(f"{name}={value}" for name, value in {**STANDALONE_SETTINGS, **SPECULATION}.items())
        hosts = Hosts(directory, master=url, settings=settings)
        try:
            yield Stage(directory, broker, hosts)
        finally:
            hosts.close()


@pytest.mark.parametrize(
    "case",
    [
        Case("mid-write", "stall"),
        Case("written", "stall"),
        Case("mid-write", "worker"),
        Case("decided", "raise", tasks_after=2),
    ],
    ids=str,
)
def test_each_row_is_committed_once(case: Case, stage: Stage) -> None:
    report = stage.play(case)
    assert report.is_exact, f"{report}\n{report.told}"
    if case.kind == "stall":
        assert report.copies > 1, "no copy of the slow task ran"


def test_without_transactions_copies_double_rows(stage: Stage) -> None:
    """Else the cases above would prove nothing."""
    report = stage.play(Case("written", "stall", mode="none"))
    assert report.verdict.doubled, report
