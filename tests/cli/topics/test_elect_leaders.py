"""`barnabas elect-leaders`."""

import json

from cli.conftest import Run


def test_leaders_are_elected(in_process: Run, topic: str) -> None:
    rows = json.loads(in_process("elect-leaders", topic, "--json").stdout)
    assert [(row["partition"], row["result"]) for row in rows] == [(0, "unchanged"), (1, "unchanged")]
    assert "nothing was changed" in in_process("elect-leaders", "--all-topics").stdout
    assert in_process("elect-leaders").returncode == 2
