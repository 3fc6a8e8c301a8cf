"""The part of the machine that others use."""

import pytest

from bench.cluster.noise import CpuTimes, cpu_times, others_percent


def test_the_times_of_the_machine_are_read_with_what_its_host_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.cluster.noise.CLOCK_TICKS_PER_SECOND", 100)
    times = cpu_times("cpu  100 200 300 5000 400 1 2 97 0 0", 1.5)
    assert times == CpuTimes(passed=61.0, busy=7.0, own=1.5)


def test_what_the_benchmark_uses_itself_is_not_the_others() -> None:
    before = CpuTimes(passed=100.0, busy=50.0, own=10.0)
    assert others_percent(before, CpuTimes(120.0, 60.0, 15.0)) == pytest.approx(25.0)
    assert others_percent(before, CpuTimes(120.0, 60.0, 30.0)) == 0.0
    assert others_percent(before, before) == 0.0
