import json
from pathlib import Path

import pytest

from barnabas.cli.framework.options import Cluster
from barnabas.cli.framework.profile_files import profile_file, profile_names
from barnabas.errors import UsageError
from cli.conftest import run_barnabas


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of profiles, with dev and prod."""
    for variable in ("BARNABAS_BOOTSTRAP", "BARNABAS_CLIENT_CONFIG", "BARNABAS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profiles = tmp_path / "barnabas" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "dev.properties").write_text("bootstrap.servers=dev:1\n")
    (profiles / "prod.properties").write_text(
        "# the real one\nbootstrap.servers=prod:1\nsecurity.protocol=SSL\nschema.registry.url=http://registry\n"
    )
    return profiles


def test_a_profile_gives_settings_and_the_command_line_wins(directory: Path) -> None:
    settings = Cluster(profile="prod").settings()
    assert (settings["bootstrap.servers"], settings["security.protocol"]) == ("prod:1", "SSL")
    assert not any(name.startswith("schema.registry") for name in settings)
    assert Cluster(profile="prod").registry_settings() == {"url": "http://registry"}
    assert Cluster(profile="prod", client=["bootstrap.servers=x:1"]).address() == "x:1"
    assert Cluster("b:1", client=["bootstrap.servers=x:1"], profile="prod").address() == "b:1"


def test_the_environment_is_weaker_than_the_command_line(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Cluster().address() == "127.0.0.1:9092"
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nsasl.username=me\n")
    monkeypatch.setenv("BARNABAS_CLIENT_CONFIG", str(file))
    assert Cluster().address() == "file:1"
    monkeypatch.setenv("BARNABAS_PROFILE", "dev")
    assert Cluster().address() == "dev:1"
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "variable:1")
    assert Cluster().address() == "variable:1"
    assert Cluster().settings()["sasl.username"] == "me"
    assert Cluster(profile="prod").address() == "prod:1"
    assert "sasl.username" not in Cluster(profile="prod").settings(), "nothing of another cluster's"
    assert Cluster("127.0.0.1:9092").address() == "127.0.0.1:9092"
    assert Cluster(client=["bootstrap.servers=x:1"]).address() == "x:1"


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"bootstrap.servers=\xff", "it is not UTF-8 text"), (None, "No such file"), (b"a=\\u12", "u12")],
)
def test_a_settings_file_that_cannot_be_read_is_named(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, told: str
) -> None:
    file = tmp_path / "client.properties"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("BARNABAS_CLIENT_CONFIG", str(file))
    with pytest.raises(UsageError, match=f"{file}.*{told}"):
        Cluster().address()


def test_a_profile_that_does_not_exist_is_named_with_the_way_out(directory: Path) -> None:
    assert profile_names() == ["dev", "prod"]
    assert profile_file("dev") == str(directory / "dev.properties")
    with pytest.raises(UsageError, match=r"no such profile in .*; did you mean prod\?"):
        profile_file("prd")
    with pytest.raises(UsageError, match=r"there are dev, prod"):
        profile_file("../../other")


def test_profiles_are_listed(tmp_path: Path, directory: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    listed = run_barnabas("profiles", environment=environment)
    assert listed.stdout.splitlines()[1].split() == ["dev", "dev:1", str(directory / "dev.properties")]
    as_json = json.loads(run_barnabas("profile", "list", "--json", environment=environment).stdout)
    assert [profile["profile"] for profile in as_json] == ["dev", "prod"]
    none = run_barnabas("profiles", environment={"XDG_CONFIG_HOME": str(tmp_path / "empty")})
    assert none.stdout.startswith("no profiles; ")
    wrong = run_barnabas("topics", "list", "--profile", "prd", environment=environment)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
