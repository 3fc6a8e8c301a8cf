"""The commands of `barnabas pipeline`, against a broker and without Spark."""

import json
import shutil
from pathlib import Path

import pytest

import barnabas
from barnabas.cli.main import run
from barnabas.errors import UsageError
from barnabas.pipeline.errors import PipelineFailed
from barnabas.pipeline.project import TEMPLATES, Project, create, load, load_settings
from barnabas.pipeline.runner import check_checkpoints
from barnabas.spark.sink.decision import Decision, encode_decision
from barnabas.testing import Broker


@pytest.mark.parametrize("template", TEMPLATES)
def test_init(template: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "mine"
    assert run(["pipeline", "init", str(directory), "--template", template, "-b", "kafka:9092"]) == 0
    assert f"barnabas pipeline run {directory}" in capsys.readouterr().out
    settings = load_settings(directory)
    assert (settings["name"], settings["kafka"]) == ("mine", {"bootstrap.servers": "kafka:9092"})
    is_declarative = TEMPLATES[template].is_declarative
    code = (directory / ("transformations/layers.py" if is_declarative else "pipeline.py")).read_text()
    for name in TEMPLATES[template].settings:
        assert f'settings["{name}"]' in code.replace("settings[name]", f'settings["{name}"]')
    compile(code, "pipeline.py", "exec")
    assert run(["pipeline", "init", str(directory), "--template", template]) == 2
    assert "is there already; choose another directory" in capsys.readouterr().err
    other = str(tmp_path / "other")
    assert run(["pipeline", "init", other, "--template", template, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["directory"] == other
    assert all(Path(file).exists() for file in report["files"])


def test_what_init_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "init", str(tmp_path / "a"), "--template", "dead-letter"]) == 2
    assert "--template dead-letter: there is no such template; did you mean dead-letters?" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_status(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "status", str(project), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["query"], row["batch"], row["state"], row["lag"], row["offsets_per_second"]) == (
        "copy",
        1,
        "done",
        12,
        8.0,
    )
    assert run(["pipeline", "status", str(project)]) == 0
    assert "copy" in capsys.readouterr().out


def test_status_without_a_broker(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "status", str(project), "-b", "127.0.0.1:1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["lag"] is None


def test_lag(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "lag", str(project)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-3:] == [
        "copy   orders          0     9   15    6",
        "copy   orders          1     9   15    6",
        "lag 12",
    ]
    assert run(["pipeline", "lag", str(project / "checkpoints" / "copy"), "--json"]) == 0
    assert [row["lag"] for row in json.loads(capsys.readouterr().out)] == [6, 6], "pipeline.toml is found above"


def test_repair(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "repair-checkpoint", str(project)]) == 0
    assert "checkpoints/copy: nothing is wrong" in capsys.readouterr().out
    offsets = project / "checkpoints" / "copy" / "offsets"
    (offsets / "2").write_text("v1\n")
    assert run(["pipeline", "repair-checkpoint", str(project)]) == 1
    out = capsys.readouterr().out
    assert f"{offsets}/2 cannot be read: it ends after its first line" in out
    assert "--yes puts that right, and keeps a copy" in out
    assert (offsets / "2").exists()
    assert run(["pipeline", "repair-checkpoint", str(project), "--json"]) == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["repaired"], [problem["repairable"] for problem in report["problems"]]) == (False, [True])
    assert run(["pipeline", "repair-checkpoint", str(project), "--yes"]) == 0
    backup = Path(capsys.readouterr().out.rpartition("as it was: ")[2].strip())
    assert ((backup / "offsets" / "2").read_text(), (offsets / "2").exists()) == ("v1\n", False)
    assert run(["pipeline", "repair-checkpoint", str(project)]) == 0


def test_what_cannot_be_repaired(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "checkpoints" / "copy" / "metadata").write_text("{")
    assert run(["pipeline", "repair-checkpoint", str(project), "--yes"]) == 1
    out = capsys.readouterr().out
    assert "metadata cannot be read: it is cut off or damaged" in out
    assert "not to be put right here: 1 of 1 problems; nothing was changed" in out


def test_a_rolled_back_checkpoint(project: Path, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    query = json.loads((project / "checkpoints" / "copy" / "metadata").read_text())["id"]
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        note = encode_decision(Decision(4, "run", (), ("run",)), "", "orders", 1)
        admin.alter_group_offsets(f"spark-sink.{query}", note)
        assert run(["pipeline", "repair-checkpoint", str(project)]) == 1
        admin.delete_groups(f"spark-sink.{query}")
    assert "rolled back: its last batch is 1, the sink has committed batch 4" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["status", "lag", "repair-checkpoint"])
def test_no_checkpoint(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(tmp_path / "new", "copy", "127.0.0.1:1")
    assert run(["pipeline", command, str(tmp_path / "new")]) == 2
    assert "there is no checkpoint in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "is no TOML"),
        ("kafka = 3", "kafka must be a table"),
        (
            '[kafka]\n"bootstrap.server" = "x"',
            'needs "bootstrap.servers" = "host:port"; did you mean that by bootstrap.server?',
        ),
    ],
)
def test_wrong_settings(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(tmp_path, "copy", "127.0.0.1:1")
    (tmp_path / "pipeline.toml").write_text(text)
    assert run(["pipeline", "status", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def paths_of(project: Project) -> tuple[Path, Path, list[Path]]:
    return project.directory, project.checkpoints, project.checkpoint_paths()


def test_a_checkpoint_that_is_gone(project: Path) -> None:
    mine = load(project)
    check_checkpoints(*paths_of(mine), anew=False)
    (project / ".queries.json").write_text('{"copy": "22222222-2222-2222-2222-222222222222"}')
    check_checkpoints(*paths_of(mine), anew=False)
    shutil.rmtree(project / "checkpoints")
    with pytest.raises(UsageError, match=r"checkpoints/copy is not the one that query copy had .* anew with --new"):
        check_checkpoints(*paths_of(mine), anew=False)
    check_checkpoints(*paths_of(mine), anew=True)


def test_a_damaged_checkpoint_is_not_run(project: Path) -> None:
    (project / "checkpoints" / "copy" / "offsets" / "2").write_text("v1")
    with pytest.raises(
        PipelineFailed, match=r"offsets/2 cannot be read.* `barnabas pipeline repair-checkpoint .*mine`"
    ):
        check_checkpoints(*paths_of(load(project)), anew=False)
