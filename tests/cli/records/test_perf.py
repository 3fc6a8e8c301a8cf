"""`barnabas perf`."""

import json

from cli.conftest import Run


def test_perf_counts_what_was_acknowledged(barnabas: Run, name: str) -> None:
    produced = json.loads(barnabas("perf", "producer", name, "-n", "5000", "-s", "10", "--json").stdout)
    consumed = json.loads(barnabas("perf", "consumer", name, "--json").stdout)
    measured = json.loads(barnabas("perf", "latency", name, "-n", "20", "--json").stdout)
    assert (produced["records"], consumed["records"], measured["records"]) == (5000, 5000, 20)
    assert produced["bytes"] == consumed["bytes"]
    assert 0 < measured["acknowledged_ms"]["p50"] <= measured["read_ms"]["p50"]
