"""The clients as they are where nothing was compiled: the same tests, and the same bytes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from barnabas.records.compiled.record_walk import is_compiled

HERE = Path(__file__).parent


@pytest.mark.skipif(not is_compiled(), reason="all tests run on plain Python here")
def test_the_clients_without_their_compiled_modules(tmp_path: Path) -> None:
    shutil.copytree(
        Path(barnabas.__file__).parent, tmp_path / "barnabas", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    asked = "import barnabas.client.producer.record_appender as module; print(module.__file__)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(HERE.parents[1])))}
    where = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True)
    assert where.stdout.strip() == str(tmp_path / "barnabas/client/producer/record_appender.py")
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
    names = (
        *(
            f"../connection/test_{name}.py"
            for name in ("network_client", "metadata", "metadata_updater", "coordinators")
        ),
        *(f"../connection/broker/test_{name}.py" for name in ("broker_connection", "cluster_connections")),
        *("../connection/broker/test_frame_buffer.py", "../connection/test_call_depth.py"),
        *("../connection/drivers/test_interrupted_turns.py", "../connection/drivers/test_signals.py"),
        *(f"producer/test_{name}.py" for name in ("sender", "record_appender", "record_accumulator", "producer_batch")),
        *("producer/test_partitioner.py", "producer/test_partition_batches.py"),
        *("producer/bulk/test_rows.py", "producer/bulk/test_delivery.py"),
    )
    tests = [str(HERE / name) for name in names]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:]
