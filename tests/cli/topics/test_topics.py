"""`barnabas topics`."""

import json

import pytest

from barnabas import Admin
from barnabas.cli.topics.topics import app
from barnabas.testing import Broker
from cli.conftest import Run, one_line


def test_patterns_choose_topics(in_process: Run, name: str) -> None:
    for suffix in ("-a", "-b", "x"):
        in_process("topics", "create", name + suffix)
    assert in_process("topics", "list", f"^{name}-", "-q").stdout == f"{name}-a\n{name}-b\n"
    described = json.loads(in_process("topics", "describe", f"^{name}-", "--json").stdout)
    assert [topic["topic"] for topic in described] == [f"{name}-a", f"{name}-b"]
    in_process("produce", f"{name}-a", input="1\n")
    in_process("produce", f"{name}-b", input="2\n")
    in_process("produce", f"{name}x", input="3\n")
    assert sorted(in_process("consume", f"^{name}-", "-e").stdout.split()) == ["1", "2"]
    in_group = in_process("consume", f"^{name}-b$", f"{name}x", "-e", "-g", name, "-q")
    assert sorted(in_group.stdout.split()) == ["2", "3"]
    nothing = in_process("topics", "list", f"^{name}-c")
    assert nothing.returncode == 1
    assert f"no topic matches ^{name}-c" in nothing.stderr
    assert in_process("topics", "list", "^(").returncode == 2
    planned = in_process("topics", "delete", f"^{name}-")
    assert planned.stdout.startswith("PLAN, nothing is deleted yet; with --execute 2 topics")
    assert in_process("topics", "delete", f"^{name}-", "--execute").stdout == f"deleted {name}-a\ndeleted {name}-b\n"
    assert in_process("topics", "list", f"^{name}", "-q").stdout == f"{name}x\n"


def test_the_life_of_a_topic(barnabas: Run, name: str) -> None:
    created = barnabas("topics", "create", name, "--partitions", "3", "--config", "retention.ms=60000")
    assert (created.returncode, created.stdout) == (0, f"created {name} (3 partitions)\n")
    again = barnabas("topics", "create", name)
    assert again.returncode == 1
    assert "exists already" in one_line(again.stderr)
    assert barnabas("topics", "create", name, "--if-not-exists").returncode == 0
    assert name in barnabas("topics", "list", "-q").stdout.split()
    grown = barnabas("topics", "add-partitions", name, "--to", "5", "--json")
    assert json.loads(grown.stdout) == [{"topic": name, "result": "grown", "partitions": 5, "error": None}]
    described = json.loads(barnabas("topics", "describe", name, "--json").stdout)[0]
    assert described["configs"] == {"retention.ms": "60000"}
    assert [p["partition"] for p in described["partitions_detail"]] == list(range(5))
    assert {p["end_offset"] for p in described["partitions_detail"]} == {0}
    assert barnabas("topics", "delete", name).stdout == f"deleted {name}\n"
    gone = barnabas("topics", "describe", name)
    assert gone.returncode == 1
    assert "does not exist" in one_line(gone.stderr)
    assert barnabas("topics", "delete", name, "--if-exists").returncode == 0


def test_a_setting_that_does_not_exist_is_named(barnabas: Run, name: str) -> None:
    failed = barnabas("topics", "create", name, "--config", "retention.sm=1")
    assert failed.returncode == 1
    assert "retention.sm" in one_line(failed.stderr)


def test_settings_of_brokers_that_count_for_a_topic_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(settings={"log.retention.ms": 5000}) as broker:
        broker.create_topic("t", configs={"segment.bytes": "1000"})
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.alter_configs({("broker", ""): {"message.max.bytes": "2000"}})
        texts = []
        for options in ([], ["--json"]):
            assert app.run("barnabas topics", ["describe", "t", "--bootstrap", broker.bootstrap_servers, *options]) == 0
            texts.append(capsys.readouterr().out)
    text, described = texts
    (configs,) = [line.partition("configs: ")[2] for line in text.splitlines() if "configs: " in line]
    assert configs.startswith("segment.bytes=1000, ")
    assert "max.message.bytes=2000 (from all brokers)" in configs
    assert "retention.ms=5000 (from the broker's file or command line)" in configs
    assert json.loads(described)[0]["configs"] == {"segment.bytes": "1000"}
