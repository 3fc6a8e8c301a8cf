"""`barnabas delete-records`."""

import json

from cli.conftest import Run


def test_records_are_deleted_when_the_plan_is_carried_out(in_process: Run, topic: str) -> None:
    planned = in_process("delete-records", topic, "--before-time", "2000")
    assert planned.stdout.startswith("PLAN, nothing is deleted yet:\n")
    assert planned.stdout.endswith("--execute carries it out\n")
    assert in_process("consume", topic, "-e", "-f", r"%o\n").stdout == "0\n1\n2\n"
    rows = json.loads(in_process("delete-records", topic, "--before-time", "2000", "--execute", "--json").stdout)
    assert [(r["partition"], r["from_offset"], r["to_offset"], r["executed"]) for r in rows] == [
        (0, 0, 1, True),
        (1, 0, 0, True),
    ]
    assert in_process("consume", topic, "-e", "-f", r"%o\n").stdout == "1\n2\n"
    refused = in_process("delete-records", f"{topic}:0", "--before-offset", "9", "--execute")
    assert refused.returncode == 1
    assert f"{topic}-0 ends at offset 3" in refused.stderr
    assert in_process("delete-records", topic, "--all", "--execute").stdout.startswith("deleted:\n")
    emptied = in_process("consume", topic, "-e")
    assert (emptied.returncode, emptied.stdout, emptied.stderr) == (0, "", "% no records\n")
