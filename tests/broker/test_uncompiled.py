"""The tests that look behind compiled modules where few of a folder do, and the hot path of brokers on plain Python."""

from pathlib import Path

import pytest

from barnabas.records.compiled.record_walk import is_compiled
from uncompiled import run_uncompiled

FOLDERS = ("broker", "client", "connection", "log", "network", "records")
WHOLE = (
    *("broker/handlers/records/test_produce.py", "broker/handlers/records/test_fetch.py", "broker/test_purgatory.py"),
    *("log/test_unified_log.py", "network/test_connection.py", "replication/test_partition.py"),
)


@pytest.mark.skipif(not is_compiled(), reason="all tests run on plain Python here")
def test_what_looks_behind_compiled_modules(tmp_path: Path) -> None:
    run_uncompiled(tmp_path, "-m", "source", *FOLDERS)


@pytest.mark.skipif(not is_compiled(), reason="all tests run on plain Python here")
def test_the_broker_without_its_compiled_modules(tmp_path: Path) -> None:
    run_uncompiled(tmp_path, *WHOLE)
