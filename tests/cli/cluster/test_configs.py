"""`barnabas configs`."""

import json

from cli.conftest import Run, one_line


def test_settings_that_are_not_there_are_refused(in_process: Run, topic: str) -> None:
    def refused(*arguments: str) -> str:
        done = in_process("configs", *arguments)
        assert done.returncode == 1
        assert done.stdout == ""
        return done.stderr

    assert "has no setting 'retention.sm'; did you mean retention.ms?" in refused(
        "describe", "topic", topic, "retention.sm"
    )
    assert "has no setting 'retention.sm'" in refused("set", "topic", topic, "retention.sm=1")
    assert "has no setting 'retention.sm'" in refused("delete", "topic", topic, "retention.sm")
    assert "retention.ms is not set" in refused("delete", "topic", topic, "retention.ms")
    assert in_process("configs", "delete", "topic", topic, "retention.ms", "--if-set").returncode == 0
    assert "have no settings for groups" in refused("set", "group", "g", "consumer.session.timeout.ms=1")
    assert in_process("configs", "describe", "group", "g").stdout == "group 'g' has no settings\n"
    assert "has no setting 'log.retention.sm'" in refused("set", "broker", "-", "log.retention.sm=1")
    assert in_process("configs", "set", "topics", topic, "retention.ms=5", "--validate-only").stdout.endswith(
        "; nothing was changed\n"
    )
    assert in_process("configs", "set", "topics", topic, "retention.ms=5").returncode == 0
    assert in_process("configs", "delete", "topics", topic, "retention.ms").stdout.startswith("deleted retention.ms")
    assert in_process("configs", "describe", "broker", "one").returncode == 2


def test_settings_are_set_shown_and_deleted(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name)
    assert barnabas("configs", "set", "topic", name, "retention.ms=1000").returncode == 0
    shown = json.loads(barnabas("configs", "describe", "topic", name, "retention.ms", "--json").stdout)
    assert (shown[0]["value"], shown[0]["source"]) == ("1000", "DYNAMIC_TOPIC_CONFIG")
    wrong = barnabas("configs", "set", "topic", name, "retention.ms=soon")
    assert wrong.returncode == 1
    assert "retention.ms" in one_line(wrong.stderr)
    assert barnabas("configs", "delete", "topics", name, "retention.ms").returncode == 0
    shown = json.loads(barnabas("configs", "describe", "topic", name, "retention.ms", "--json").stdout)
    assert shown[0]["source"] == "STATIC_BROKER_CONFIG"
