"""`barnabas groups`: what it shows, and what it changes."""

import json
import signal
import subprocess
import sys

import pytest

from barnabas.cli.groups.groups import group_report, group_text
from barnabas.client.admin.groups import GroupDescription, GroupListing, GroupMemberView, rebalances_of
from barnabas.types import TopicPartition
from cli.conftest import Run, one_line

EVENT = {
    "started_ms": 1357016400000,
    "completed_ms": 1357016400100,
    "generation_id": 3,
    "trigger": "member left",
    "reason": "member a left: the consumer is closed",
    "member_count": 2,
    "notes": ["member b joined"],
    "notes_dropped": 4,
}


def test_rebalances_are_told_with_their_reasons() -> None:
    rebalances = rebalances_of(json.dumps([EVENT, EVENT | {"completed_ms": None, "notes": [], "notes_dropped": 0}]))
    description = GroupDescription("g", "Stable", "consumer", "range", 1, (), rebalances)
    lines = group_text(group_report("g", description, None, [])).splitlines()
    assert lines[0] == "group g, state Stable, type classic, assignor range, coordinator 1, no members, no commits"
    assert "member a left: the consumer is closed; member b joined; and 4 more" in lines[-2]
    assert lines[-2].startswith("2013-01-01T05:00:00.000Z  3")
    assert "running" in lines[-1]


def test_other_brokers_tell_none() -> None:
    assert rebalances_of(None) == rebalances_of("") == rebalances_of("not JSON") == ()


def test_members_that_a_broker_does_not_show_are_not_counted() -> None:
    listing = GroupListing("g", "consumer", "Stable", "consumer")
    report = group_report("g", None, listing, [])
    assert report["members"] is None
    assert "members not shown by this broker" in group_text(report)


@pytest.mark.parametrize(
    ("members", "partitions", "told"),
    [
        (3, 2, "1 member has no partitions: 3 members share 2 partitions"),
        (3, 1, "2 members have no partitions: 3 members share 1 partition"),
        (2, 2, ""),
        (2, 0, ""),  # the group has not shared yet, or does not say what
    ],
)
def test_members_without_partitions_are_told_why(members: int, partitions: int, told: str) -> None:
    shares = [(TopicPartition("t", number),) if number < partitions else () for number in range(members)]
    views = tuple(GroupMemberView(f"m{n}", None, "c", "/127.0.0.1", share, ("t",)) for n, share in enumerate(shares))
    text = group_text(group_report("g", GroupDescription("g", "Stable", "consumer", "range", 1, views, ()), None, []))
    assert text.splitlines()[3 + members :] == ([told] if told else [])


def test_no_id_or_reason_forges_a_line() -> None:
    forged = "\n\x1b[2Jgroup other, state Dead"
    events = rebalances_of(json.dumps([EVENT | {"reason": f"left{forged}"}]))
    member = GroupMemberView(f"m{forged}", f"i{forged}", f"c{forged}", "/127.0.0.1", (TopicPartition("t", 0),), ("t",))
    description = GroupDescription(f"g{forged}", "Stable", "consumer", f"range{forged}", 1, (member,), events)
    text = group_text(group_report(f"g{forged}", description, None, []))
    assert "\x1b" not in text
    assert [line for line in text.splitlines() if line.startswith("group ")] == [text.splitlines()[0]]
    assert text.count("\\n\\x1b[2Jgroup other") == 5


def test_several_groups_are_described_and_listed_with_their_lag(in_process: Run, topic: str) -> None:
    read, waiting = f"{topic}-read", f"{topic}-waiting"
    in_process("consume", topic, "-g", read, "-e", "-q", "-c", "1")
    in_process("consume", topic, "-g", waiting, "-o", "end", "-e", "-q")
    lags = {group["group"]: group["lag"] for group in json.loads(in_process("groups", "list", "--json").stdout)}
    assert (lags[read], lags[waiting]) == (2, None)
    assert in_process("groups", "list", "-q").stdout.split() == sorted(lags)
    both = json.loads(in_process("groups", "describe", read, waiting, "--json").stdout)
    assert [(group["group"], group["lag"]) for group in both] == [(read, 2), (waiting, None)]
    assert json.loads(in_process("groups", "describe", f"^{topic}", "--json").stdout) == both
    everything = json.loads(in_process("groups", "describe", "--all", "--json").stdout)
    assert {group["group"] for group in everything} == lags.keys()
    text = in_process("groups", "describe", read, waiting).stdout
    assert "lag 2" in text
    assert "no commits" in text
    assert in_process("groups", "describe", read, "no-such-group").returncode == 1


def test_a_static_member_that_is_gone_is_removed(in_process: Run, bootstrap: str, topic: str) -> None:
    command = [sys.executable, "-m", "barnabas", "consume", topic, "-g", topic, "-b", bootstrap]
    with subprocess.Popen(
        [*command, "-X", "group.instance.id=one"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == b"x\n"
        member.send_signal(signal.SIGKILL)
    (there,) = json.loads(in_process("groups", "describe", topic, "--json").stdout)["members"]
    assert there["group_instance_id"] == "one"
    assert in_process("groups", "remove-members", topic).returncode == 2
    unknown = in_process("groups", "remove-members", topic, "--instance", "two")
    assert unknown.returncode == 1
    assert "has no member 'two'" in unknown.stderr
    assert in_process("groups", "remove-members", topic, "--instance", "one").stdout == f"removed one from {topic}\n"
    assert json.loads(in_process("groups", "describe", topic, "--json").stdout)["members"] == []
    assert in_process("groups", "remove-members", topic, "--all").stdout == f"group {topic} has no members\n"


def test_only_what_is_committed_is_forgotten(in_process: Run, topic: str) -> None:
    in_process("consume", topic, "-g", topic, "-e", "-q")
    assert in_process("groups", "delete-offsets", topic, "-t", topic).stdout == f"forgotten {topic}-0\n"
    again = in_process("groups", "delete-offsets", topic, "-t", topic)
    assert again.returncode == 1
    assert "has committed nothing for" in again.stderr


def test_a_reset_is_a_plan_until_it_is_executed(in_process: Run, topic: str) -> None:
    in_process("consume", topic, "-g", topic, "-e", "-q")
    planned = in_process("groups", "reset-offsets", topic, "--all-topics", "--to-earliest")
    assert planned.stdout.startswith(f"PLAN for group {topic}, nothing is moved yet:\n")
    assert (
        "PLAN" not in in_process("groups", "reset-offsets", topic, "--all-topics", "--to-earliest", "--execute").stdout
    )
    checked = in_process("topics", "create", f"{topic}-2", "--validate-only")
    assert checked.stdout.startswith(f"checked {topic}-2")
    assert checked.stdout.endswith("; nothing was changed\n")


def test_resetting_offsets_shows_first_and_does_it_when_told(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    barnabas("produce", name, input="1\n2\n3\n4\n")
    barnabas("consume", name, "--group", name, "-e", "-q")

    def reset(*arguments: str) -> int:
        done = barnabas("groups", "reset-offsets", name, "--topic", name, "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)[0]["to_offset"])

    def committed() -> int:
        rows = json.loads(barnabas("groups", "describe", name, "--json").stdout)["partitions"]
        return int(rows[0]["committed_offset"])

    assert reset("--to-earliest") == 0
    assert committed() == 4, "only shown"
    assert reset("--to-earliest", "--execute") == 0
    assert committed() == 0
    assert reset("--shift-by", "3", "--execute") == 3
    assert reset("--shift-by", "100") == 4
    assert reset("--to-offset", "2") == 2
    assert reset("--to-latest") == 4
    assert reset("--to-datetime", "now") == 4
    assert reset("--to-datetime", "-1h") == 0
    assert barnabas("groups", "delete-offsets", name, "-t", name).returncode == 0
    assert barnabas("groups", "delete", name).stdout == f"deleted {name}\n"
    gone = barnabas("groups", "describe", name)
    assert gone.returncode == 1
    assert "does not exist" in one_line(gone.stderr)
