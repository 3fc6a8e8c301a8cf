"""Commands in pipes beside kcat."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.clients import pipes


def test_a_pipe_is_judged_beside_kcat(tmp_path: Path) -> None:
    def figures(wall_s: float, cpu_s: float) -> dict[str, list[float]]:
        return {"wall_s": [wall_s, 0.1, 99], "cpu_s": [cpu_s, 0.1, 99], "memory_MB": [40.0]}

    table = pipes.markdown({"produce": {"kcat": figures(4.0, 6.0), "barnabas": figures(6.0, 9.6)}}, 1000, 3)
    assert "| produce | kcat | 4 | 6 | 40 |  |" in table
    assert "wall_s <= 1.5x kcat: 1.50x pass; cpu_s <= 1.5x kcat: 1.60x **FAIL**" in table


def test_a_process_in_a_pipe_is_measured_to_its_end(tmp_path: Path) -> None:
    source = tmp_path / "records"
    pipes.write_records(source, 2000)
    assert len({line.partition("\t")[0] for line in source.read_text().splitlines()}) == 2000
    script = "import sys; read = sys.stdin.buffer.read(); sys.exit(read.count(b'\\n') != 2000)"
    figures = pipes.measure([sys.executable, "-c", script], source)
    assert figures["wall_s"] > 0
    assert 1 < pipes.peak_mb(os.getpid()) < 10_000
    with pytest.raises(subprocess.CalledProcessError):
        pipes.measure([sys.executable, "-c", script])
