"""The tests that look behind compiled modules where few of a folder do, and the hot path of brokers on plain Python."""

from pathlib import Path

from uncompiled import needs_compiled, run_uncompiled

FOLDERS = ("broker", "client", "connection", "log", "network", "records")
WHOLE = (
    *("broker/handlers/records/test_produce.py", "broker/handlers/records/test_fetch.py", "broker/test_purgatory.py"),
    *("log/test_unified_log.py", "network/test_connection.py", "replication/test_partition.py"),
)


@needs_compiled
def test_what_looks_behind_compiled_modules(tmp_path: Path) -> None:
    run_uncompiled(tmp_path, "-m", "source", *FOLDERS)


@needs_compiled
def test_the_broker_without_its_compiled_modules(tmp_path: Path) -> None:
    run_uncompiled(tmp_path, *WHOLE)
