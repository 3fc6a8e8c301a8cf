"""A broker's log, whatever clients call themselves."""

import logging
import re
import subprocess
import sys
import time
from pathlib import Path

from barnabas.broker.process.log_format import OneLineFormatter
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from broker.wire import Wire

FORGED = "\n2026-11-23 00:00:00,000 ERROR   barnabas.broker: the disk is full\x1b[2J"
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ +[\w.]+: ")


def record(message: str, *arguments: object, **more: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "n", "levelname": "INFO", "msg": message, "args": arguments, **more})


def test_a_message_is_one_line() -> None:
    formatter = OneLineFormatter("%(levelname)s %(name)s: %(message)s")
    assert formatter.format(record("Group %s is empty", "g\nh")) == "INFO n: Group g\\nh is empty"


def test_a_traceback_cannot_be_taken_for_lines_of_the_log() -> None:
    formatter = OneLineFormatter("%(levelname)s %(name)s: %(message)s")
    try:
        raise RuntimeError(f"group {FORGED}")
    except RuntimeError:
        text = formatter.format(record("failed", exc_info=sys.exc_info(), stack_info="Stack:\n  here"))
    first, *others = text.split("\n")
    assert first == "INFO n: failed"
    assert others[0] == "    Traceback (most recent call last):"
    assert any("the disk is full\\x1b[2J" in line for line in others)
    assert all(line.startswith("    ") for line in others)


def test_ids_of_groups_and_members_forge_no_lines(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = ["serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--ready-file", str(ready)]
    with subprocess.Popen([sys.executable, "-m", "barnabas", *command], stderr=subprocess.PIPE) as process:
        try:
            end = time.monotonic() + 30
            while not ready.exists() or not ready.read_text().strip():
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.01)
            host, _, port = ready.read_text().strip().rpartition(":")
            with Wire((host, int(port))) as wire:
                group_id, instance_id = f"group{FORGED}", f"instance{FORGED}"
                wire.ask(FindCoordinatorRequest(coordinator_keys=[group_id]), 4)
                protocols = [JoinGroupRequestProtocol(name=f"protocol{FORGED}", metadata=b"")]
                join = JoinGroupRequest(
                    group_id=group_id,
                    group_instance_id=instance_id,
                    session_timeout_ms=6000,
                    rebalance_timeout_ms=6000,
                    protocol_type="consumer",
                    protocols=protocols,
                    reason=f"reason{FORGED}",
                )
                assert wire.ask(join, 9).error_code == 0
                member = MemberIdentity(group_instance_id=instance_id, reason=f"leaving{FORGED}")
                wire.ask(LeaveGroupRequest(group_id=group_id, members=[member]), 5)
        finally:
            process.terminate()
            text = process.communicate()[1].decode()
    lines = text.splitlines()
    assert any("Group group\\n2026-11-23" in line for line in lines)
    assert "\x1b" not in text
    assert [line for line in lines if not LINE.match(line)] == []
    assert not any(line.startswith("2026-11-23 00:00:00,000") for line in lines)
