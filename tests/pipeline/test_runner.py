"""Checks of checkpoints before a run."""

from pathlib import Path

import pytest

pytest.importorskip("yaml")

from barnabas.errors import UsageError
from barnabas.pipeline.declarative_spec import flow_checkpoints
from barnabas.pipeline.errors import PipelineFailed
from barnabas.pipeline.project import create
from barnabas.pipeline.runner import check_checkpoints, remember_queries
from pipeline.checkpoints import write_checkpoint

BRONZE = "storage/_checkpoints/spark_catalog/default/bronze/bronze"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "shop"
    create(directory, "declarative", "127.0.0.1:1")
    return directory


def test_checkpoints_that_are_gone(project: Path) -> None:
    root = project / "storage" / "_checkpoints"
    bronze = write_checkpoint(project / BRONZE / "0", {"0": 1}, commits=1)
    remember_queries(project, [bronze])
    refreshed = write_checkpoint(project / BRONZE / "1", {"0": 1}, commits=1)
    (refreshed / "metadata").write_text('{"id":"33333333-3333-3333-3333-333333333333"}')
    check_checkpoints(project, root, flow_checkpoints(root), anew=False)  # a full refresh leaves the old one
    with pytest.raises(UsageError, match=r"is not the one that query bronze had"):
        check_checkpoints(project, root, [refreshed], anew=False)
    check_checkpoints(project, root, [refreshed], anew=True)
    (refreshed / "offsets" / "0").write_text("v1")
    with pytest.raises(PipelineFailed, match=r"bronze/1/offsets/0 cannot be read"):
        check_checkpoints(project, root, flow_checkpoints(root), anew=False)
