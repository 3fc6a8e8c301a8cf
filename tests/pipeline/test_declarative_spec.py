"""Spec files of declarative pipelines, and the checkpoints of their flows. No Spark."""

import json
from pathlib import Path

import pytest

pytest.importorskip("yaml")

import barnabas
from barnabas.cli.main import run
from barnabas.errors import UsageError
from barnabas.pipeline.checkpoint import find_checkpoints
from barnabas.pipeline.declarative_spec import find_spec_file, flow_checkpoints, load_spec, newest, settings_of
from barnabas.pipeline.project import create
from barnabas.pipeline.repair import backup_of
from barnabas.testing import Broker
from pipeline.checkpoints import write_checkpoint

BRONZE = "storage/_checkpoints/spark_catalog/default/bronze/bronze"
SILVER = "storage/_checkpoints/to_silver/silver_topic"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "shop"
    create(directory, "declarative", "127.0.0.1:1")
    return directory


def test_the_spec(project: Path) -> None:
    file = find_spec_file(project)
    assert file is not None
    spec = load_spec(file)
    assert (spec.name, spec.checkpoints) == ("shop", project / "storage" / "_checkpoints")
    assert settings_of(spec)["silver"] == "orders-clean"
    (project / "pipeline.toml").unlink()
    assert settings_of(spec) == {"name": "shop", "kafka": {}, "spark": {}}, "as spark-pipelines init makes it"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "is no YAML"),
        ("- a", "must have the fields name, storage and libraries"),
        ("name: a", "storage must be there, and a text"),
        ("name: 3\nstorage: /x", "name must be there, and a text"),
    ],
)
def test_a_spec_that_is_none(project: Path, text: str, reason: str) -> None:
    file = project / "spark-pipeline.yml"
    file.write_text(text)
    with pytest.raises(UsageError, match=reason):
        load_spec(file)


def test_storage_elsewhere(project: Path) -> None:
    file = project / "spark-pipeline.yml"
    file.write_text("name: a\nstorage: s3a://bucket/it\n")
    with pytest.raises(UsageError, match=r"s3a://bucket/it cannot .* `pipeline run` needs a storage on this machine"):
        find_checkpoints(project)


@pytest.mark.parametrize("name", ["a b", "a%20b", "a#b", "a?b", "a\nb"])
def test_storage_that_spark_writes_elsewhere(project: Path, tmp_path: Path, name: str) -> None:
    """Checkpoints would be looked for where none are, and a query that has lost its own one would not be noticed."""
    file = project / "spark-pipeline.yml"
    for storage in (f"file:///x/{name}/storage", f"/x/{name}/storage"):
        file.write_text(f"name: a\nstorage: {json.dumps(storage)}\n")
        with pytest.raises(UsageError, match="Spark may keep the storage"):
            find_checkpoints(project)
    with pytest.raises(UsageError, match="Spark may keep the storage"):
        create(tmp_path / name / "shop", "declarative", "127.0.0.1:1")
    assert not (tmp_path / name).exists()
    create(tmp_path / name, "copy", "127.0.0.1:1")  # queries are told where their checkpoints are


def test_storage_with_letters_of_all_kinds(tmp_path: Path) -> None:
    directory = tmp_path / "März_2024-v1.0+a=b,c~d@e"
    create(directory, "declarative", "127.0.0.1:1")
    assert load_spec(directory / "spark-pipeline.yml").checkpoints == directory / "storage" / "_checkpoints"


def test_where_checkpoints_are(project: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no checkpoint in .*storage/_checkpoints\): the pipeline was never"):
        find_checkpoints(project)
    old, bronze = (write_checkpoint(project / BRONZE / number, commits=0) for number in ("9", "10"))
    silver = write_checkpoint(project / SILVER / "0", commits=0)
    write_checkpoint(backup_of(silver), commits=0)
    assert backup_of(silver).parent == silver.parent.parent, "Spark would take it for the newest one of the flow"
    root = project / "storage" / "_checkpoints"
    assert flow_checkpoints(root) == [old, bronze, silver], "numbers, not texts"
    assert newest(flow_checkpoints(root)) == find_checkpoints(project) == find_checkpoints(root) == [bronze, silver]
    assert find_checkpoints(silver) == [silver]


def test_status_and_lag(project: Path, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ids = {"orders": str(admin.describe_topics("orders")["orders"].topic_id)}
    write_checkpoint(project / BRONZE / "0", {"0": 5, "1": 5}, {"0": 9, "1": 9}, commits=2, ids=ids)
    table = write_checkpoint(project / SILVER / "0", {"0": 1}, commits=1)
    (table / "offsets" / "0").write_text('v1\n{"batchTimestampMs":1}\n{"logOffset":0}')
    where = [str(project), "-b", broker.bootstrap_servers]
    assert run(["pipeline", "status", *where, "--json"]) == 0
    rows = [(row["query"], row["batch"], row["lag"]) for row in json.loads(capsys.readouterr().out)]
    assert rows == [("bronze", 1, 12), ("silver_topic", 0, None)], "the second reads a table"
    assert run(["pipeline", "lag", *where]) == 0
    assert capsys.readouterr().out.endswith("lag 12\n")
    assert run(["pipeline", "repair-checkpoint", *where]) == 0
