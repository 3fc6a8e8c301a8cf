"""The operations of Admin as commands: the cluster, brokers, log directories, offsets, records, leaders, members."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from barnabas.cli.main import run
from barnabas.testing import Broker
from cli.conftest import Run


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Of a broker whose topics and groups are these tests' alone."""
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def barnabas(in_process: Run) -> Run:
    """Runs `barnabas ...` in this process."""
    return in_process


@pytest.fixture
def topic(barnabas: Run, name: str) -> str:
    """Two partitions; three records at 1, 2 and 3 seconds after 1970 in the first one."""
    barnabas("topics", "create", name, "-p", "2")
    lines = "".join(json.dumps({"value": "x", "timestamp": 1000 * n}) + "\n" for n in (1, 2, 3))
    assert barnabas("produce", name, "--from-json", "-p", "0", input=lines).returncode == 0
    return name


def test_empty_results_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        for arguments, words in {
            ("topics", "list"): "no topics; --internal shows those that brokers keep for themselves",
            ("topics", "describe"): "no topics",
            ("groups", "list"): "no groups",
            ("groups", "list", "--state", "Stable"): "no groups in state Stable",
            ("groups", "describe", "--all"): "no groups",
            ("transactions", "list"): "no transactional ids",
            ("get-offsets",): "no topics",
        }.items():
            assert run([*arguments, "-b", broker.bootstrap_servers]) == 0
            assert capsys.readouterr().out == f"{words}\n"
            assert run([*arguments, "-b", broker.bootstrap_servers, "--json"]) == 0
            assert json.loads(capsys.readouterr().out) == []


def test_the_cluster_and_its_brokers(barnabas: Run, bootstrap: str, topic: str) -> None:
    cluster = json.loads(barnabas("cluster", "--json").stdout)
    assert cluster["cluster_id"]
    (broker,) = cluster["brokers"]
    assert (cluster["controller"], f"{broker['host']}:{broker['port']}") == (broker["node_id"], bootstrap)
    levels = {feature["feature"]: feature["finalized"] for feature in cluster["features"]}
    assert levels["transaction.version"]["max_level"] >= 2
    text = barnabas("clusters", "describe").stdout
    assert f"cluster {cluster['cluster_id']}, controller {broker['node_id']}, 1 broker\n" in text
    (row,) = json.loads(barnabas("brokers", "--json").stdout)
    assert (row["node_id"], row["controller"]) == (broker["node_id"], True)
    assert row["leaders"] == row["replicas"] >= 2
    assert row["size_bytes"] > 0
    assert bootstrap in barnabas("broker", "list").stdout


def test_log_directories(barnabas: Run, topic: str) -> None:
    (directory,) = json.loads(barnabas("log-dirs", "--topic", topic, "--json").stdout)
    assert [(r["topic"], r["partition"]) for r in directory["replicas"]] == [(topic, 0), (topic, 1)]
    assert directory["size_bytes"] == directory["replicas"][0]["size_bytes"] > 0
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
    assert directory["path"] in barnabas("log-dir", "--replicas").stdout
    missing = barnabas("log-dirs", "--broker", "99")
    assert missing.returncode == 1
    assert "broker 99 is not in the cluster; its brokers are " in missing.stderr


def test_offsets_now_and_at_a_time(barnabas: Run, topic: str) -> None:
    def offsets(*arguments: str) -> list[tuple[object, ...]]:
        return [tuple(row.values())[1:] for row in json.loads(barnabas("get-offsets", *arguments, "--json").stdout)]

    assert offsets(topic) == [(0, 0, 3), (1, 0, 0)]
    assert offsets(f"{topic}:0", "--time", "1970-01-01T00:00:01.5Z") == [(0, 1, 2000)]
    assert offsets(topic, "--time", "now") == [(0, None, None), (1, None, None)]
    assert offsets(f"^{topic[:-1]}", "--time", "earliest")[0][:2] == (0, 0)
    assert offsets(f"{topic}:0", "--time", "max-timestamp") == [(0, 2, 3000)]
    assert barnabas("get-offsets", f"{topic}:0").stdout.splitlines()[1].split() == [topic, "0", "0", "3"]
    assert "has partitions 0 to 1, not 2" in barnabas("get-offsets", f"{topic}:2").stderr


def test_records_are_deleted_when_the_plan_is_carried_out(barnabas: Run, topic: str) -> None:
    planned = barnabas("delete-records", topic, "--before-time", "2000")
    assert planned.stdout.startswith("PLAN, nothing is deleted yet:\n")
    assert planned.stdout.endswith("--execute carries it out\n")
    assert barnabas("consume", topic, "-e", "-f", r"%o\n").stdout == "0\n1\n2\n"
    rows = json.loads(barnabas("delete-records", topic, "--before-time", "2000", "--execute", "--json").stdout)
    assert [(r["partition"], r["from_offset"], r["to_offset"], r["executed"]) for r in rows] == [
        (0, 0, 1, True),
        (1, 0, 0, True),
    ]
    assert barnabas("consume", topic, "-e", "-f", r"%o\n").stdout == "1\n2\n"
    refused = barnabas("delete-records", f"{topic}:0", "--before-offset", "9", "--execute")
    assert refused.returncode == 1
    assert f"{topic}-0 ends at offset 3" in refused.stderr
    assert barnabas("delete-records", topic, "--all", "--execute").stdout.startswith("deleted:\n")
    emptied = barnabas("consume", topic, "-e")
    assert (emptied.returncode, emptied.stdout, emptied.stderr) == (0, "", "% no records\n")


def test_leaders_are_elected(barnabas: Run, topic: str) -> None:
    rows = json.loads(barnabas("elect-leaders", topic, "--json").stdout)
    assert [(row["partition"], row["result"]) for row in rows] == [(0, "unchanged"), (1, "unchanged")]
    assert "nothing was changed" in barnabas("elect-leaders", "--all-topics").stdout
    assert barnabas("elect-leaders").returncode == 2


def test_patterns_choose_topics(barnabas: Run, name: str) -> None:
    for suffix in ("-a", "-b", "x"):
        barnabas("topics", "create", name + suffix)
    assert barnabas("topics", "list", f"^{name}-", "-q").stdout == f"{name}-a\n{name}-b\n"
    described = json.loads(barnabas("topics", "describe", f"^{name}-", "--json").stdout)
    assert [topic["topic"] for topic in described] == [f"{name}-a", f"{name}-b"]
    barnabas("produce", f"{name}-a", input="1\n")
    barnabas("produce", f"{name}-b", input="2\n")
    barnabas("produce", f"{name}x", input="3\n")
    assert sorted(barnabas("consume", f"^{name}-", "-e").stdout.split()) == ["1", "2"]
    in_group = barnabas("consume", f"^{name}-b$", f"{name}x", "-e", "-g", name, "-q")
    assert sorted(in_group.stdout.split()) == ["2", "3"]
    nothing = barnabas("topics", "list", f"^{name}-c")
    assert nothing.returncode == 1
    assert f"no topic matches ^{name}-c" in nothing.stderr
    assert barnabas("topics", "list", "^(").returncode == 2
    planned = barnabas("topics", "delete", f"^{name}-")
    assert planned.stdout.startswith("PLAN, nothing is deleted yet; with --execute 2 topics")
    assert barnabas("topics", "delete", f"^{name}-", "--execute").stdout == f"deleted {name}-a\ndeleted {name}-b\n"
    assert barnabas("topics", "list", f"^{name}", "-q").stdout == f"{name}x\n"


def test_several_groups_are_described_and_listed_with_their_lag(barnabas: Run, topic: str) -> None:
    read, waiting = f"{topic}-read", f"{topic}-waiting"
    barnabas("consume", topic, "-g", read, "-e", "-q", "-c", "1")
    barnabas("consume", topic, "-g", waiting, "-o", "end", "-e", "-q")
    lags = {group["group"]: group["lag"] for group in json.loads(barnabas("groups", "list", "--json").stdout)}
    assert (lags[read], lags[waiting]) == (2, None)
    assert barnabas("groups", "list", "-q").stdout.split() == sorted(lags)
    both = json.loads(barnabas("groups", "describe", read, waiting, "--json").stdout)
    assert [(group["group"], group["lag"]) for group in both] == [(read, 2), (waiting, None)]
    assert json.loads(barnabas("groups", "describe", f"^{topic}", "--json").stdout) == both
    everything = json.loads(barnabas("groups", "describe", "--all", "--json").stdout)
    assert {group["group"] for group in everything} == lags.keys()
    text = barnabas("groups", "describe", read, waiting).stdout
    assert "lag 2" in text
    assert "no commits" in text
    assert barnabas("groups", "describe", read, "no-such-group").returncode == 1


def test_a_static_member_that_is_gone_is_removed(barnabas: Run, bootstrap: str, topic: str) -> None:
    command = [sys.executable, "-m", "barnabas", "consume", topic, "-g", topic, "-b", bootstrap]
    with subprocess.Popen(
        [*command, "-X", "group.instance.id=one"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == b"x\n"
        member.send_signal(signal.SIGKILL)
    (there,) = json.loads(barnabas("groups", "describe", topic, "--json").stdout)["members"]
    assert there["group_instance_id"] == "one"
    assert barnabas("groups", "remove-members", topic).returncode == 2
    unknown = barnabas("groups", "remove-members", topic, "--instance", "two")
    assert unknown.returncode == 1
    assert "has no member 'two'" in unknown.stderr
    assert barnabas("groups", "remove-members", topic, "--instance", "one").stdout == f"removed one from {topic}\n"
    assert json.loads(barnabas("groups", "describe", topic, "--json").stdout)["members"] == []
    assert barnabas("groups", "remove-members", topic, "--all").stdout == f"group {topic} has no members\n"


def test_only_what_is_committed_is_forgotten(barnabas: Run, topic: str) -> None:
    barnabas("consume", topic, "-g", topic, "-e", "-q")
    assert barnabas("groups", "delete-offsets", topic, "-t", topic).stdout == f"forgotten {topic}-0\n"
    again = barnabas("groups", "delete-offsets", topic, "-t", topic)
    assert again.returncode == 1
    assert "has committed nothing for" in again.stderr


def test_a_reset_is_a_plan_until_it_is_executed(barnabas: Run, topic: str) -> None:
    barnabas("consume", topic, "-g", topic, "-e", "-q")
    planned = barnabas("groups", "reset-offsets", topic, "--all-topics", "--to-earliest")
    assert planned.stdout.startswith(f"PLAN for group {topic}, nothing is moved yet:\n")
    assert "PLAN" not in barnabas("groups", "reset-offsets", topic, "--all-topics", "--to-earliest", "--execute").stdout
    checked = barnabas("topics", "create", f"{topic}-2", "--validate-only")
    assert checked.stdout.startswith(f"checked {topic}-2")
    assert checked.stdout.endswith("; nothing was changed\n")


def test_settings_that_are_not_there_are_refused(barnabas: Run, topic: str) -> None:
    def refused(*arguments: str) -> str:
        done = barnabas("configs", *arguments)
        assert done.returncode == 1
        assert done.stdout == ""
        return done.stderr

    assert "has no setting 'retention.sm'; did you mean retention.ms?" in refused(
        "describe", "topic", topic, "retention.sm"
    )
    assert "has no setting 'retention.sm'" in refused("set", "topic", topic, "retention.sm=1")
    assert "has no setting 'retention.sm'" in refused("delete", "topic", topic, "retention.sm")
    assert "retention.ms is not set" in refused("delete", "topic", topic, "retention.ms")
    assert barnabas("configs", "delete", "topic", topic, "retention.ms", "--if-set").returncode == 0
    assert "have no settings for groups" in refused("set", "group", "g", "consumer.session.timeout.ms=1")
    assert barnabas("configs", "describe", "group", "g").stdout == "group 'g' has no settings\n"
    assert "has no setting 'log.retention.sm'" in refused("set", "broker", "-", "log.retention.sm=1")
    assert barnabas("configs", "set", "topics", topic, "retention.ms=5", "--validate-only").stdout.endswith(
        "; nothing was changed\n"
    )
    assert barnabas("configs", "set", "topics", topic, "retention.ms=5").returncode == 0
    assert barnabas("configs", "delete", "topics", topic, "retention.ms").stdout.startswith("deleted retention.ms")
    assert barnabas("configs", "describe", "broker", "one").returncode == 2
