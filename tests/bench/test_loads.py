"""Figures of the loads."""

import pytest

from bench.brokers import BrokerFailed
from bench.loads import percentiles


def test_percentiles_are_those_of_the_ordered_values() -> None:
    assert percentiles([float(number) for number in range(1000)]) == {"p50_ms": 500, "p99_ms": 990, "p999_ms": 999}
    assert percentiles([7.0]) == {"p50_ms": 7, "p99_ms": 7, "p999_ms": 7}
    with pytest.raises(BrokerFailed, match="no latency was measured"):
        percentiles([])
