"""Projects of pipelines."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.errors import UsageError
from barnabas.pipeline.project import Project, load, project_lock


def test_code_that_is_none(project: Path) -> None:
    code = project / "pipeline.py"
    code.write_text("x = 1\ndef start(:\n")
    with pytest.raises(UsageError, match=r"pipeline.py, line 2: "):
        load(project)
    code.write_text("x = 1\n")
    with pytest.raises(UsageError, match=r"must have a function start"):
        load(project)
    code.unlink()
    with pytest.raises(UsageError, match=r"pipeline.py is not there"):
        load(project)


def test_stages(tmp_path: Path) -> None:
    """A list is one stage; a later one is not begun before it is asked for."""
    begun: list[str] = []

    def chain(*_: object) -> Iterator[list[str]]:
        for name in ("silver", "gold"):
            begun.append(name)
            yield [name]

    assert list(Project(tmp_path, {}, lambda *_: ["copy"]).stages(None, {})) == [["copy"]]
    stages = Project(tmp_path, {}, chain).stages(None, {})
    assert (next(stages), begun) == (["silver"], ["silver"])
    assert (next(stages), begun) == (["gold"], ["silver", "gold"])


def test_one_at_a_time(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = project / "checkpoints" / "copy"
    (copy / "offsets" / "2").write_text("v1")
    with project_lock(project):
        with pytest.raises(UsageError, match=r"another process runs .*mine; stop that first"), project_lock(project):
            pytest.fail("it was entered")
        assert run(["pipeline", "repair-checkpoint", str(copy), "--yes"]) == 2
        assert "mine; stop that first" in capsys.readouterr().err
        assert run(["pipeline", "repair-checkpoint", str(copy)]) == 1, "which changes nothing"
    assert run(["pipeline", "repair-checkpoint", str(copy), "--yes"]) == 0
