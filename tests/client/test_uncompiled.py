"""The clients as they are where nothing was compiled: the same tests, and the same bytes."""

from pathlib import Path

from uncompiled import needs_compiled, run_uncompiled

FILES = (
    *(f"connection/test_{name}.py" for name in ("network_client", "metadata", "metadata_updater", "coordinators")),
    *(f"connection/broker/test_{name}.py" for name in ("broker_connection", "cluster_connections", "frame_buffer")),
    *("connection/drivers/test_interrupted_turns.py", "connection/drivers/test_signals.py"),
    *(f"client/producer/test_{name}.py" for name in ("sender", "record_accumulator")),
    *(f"client/producer/test_{name}.py" for name in ("producer_batch", "partitioner", "partition_batches")),
    *("client/producer/bulk/test_rows.py", "client/producer/bulk/test_delivery.py"),
)


@needs_compiled
def test_the_clients_without_their_compiled_modules(tmp_path: Path) -> None:
    run_uncompiled(tmp_path, *FILES)
