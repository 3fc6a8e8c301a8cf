"""Files that Apache Kafka 4.3.1 wrote, and `dump-log --json` of them.

`tests/interop/test_taken_over.py` has it read those of the newest release.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.dump.dump_log import app

GOLDEN = Path(__file__).parent / "golden"
SEGMENT = "00000000000000000000"
SECOND = "00000000000000000025"


def dump(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[dict[str, Any]]]:
    """(exit code, items) of `dump-log --json`."""
    code = app.run("barnabas dump-log", [*map(str, arguments), "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def of_type(items: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in items if item["type"] == kind]
