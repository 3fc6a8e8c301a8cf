"""The part of the machine that others use during a measurement."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from bench.brokers import CLOCK_TICKS_PER_SECOND
from bench.loads import Measured

QUIET_PERCENT = 10.0


class CpuTimes(NamedTuple):
    """Seconds since the start of the machine: of all its cores, of all work and what hosts took, of this benchmark."""

    passed: float
    busy: float
    own: float


def cpu_times(stat: str, own: float) -> CpuTimes:
    """Reads the first line of /proc/stat."""
    user, nice, system, idle, iowait, irq, softirq, steal = (int(field) for field in stat.split()[1:9])
    busy = user + nice + system + irq + softirq + steal
    return CpuTimes((busy + idle + iowait) / CLOCK_TICKS_PER_SECOND, busy / CLOCK_TICKS_PER_SECOND, own)


def others_percent(before: CpuTimes, after: CpuTimes) -> float:
    """Returns the share of all cores that neither the cluster nor the benchmark used."""
    passed = max(after.passed - before.passed, 1 / CLOCK_TICKS_PER_SECOND)
    return max(0.0, 100 * ((after.busy - before.busy) - max(0.0, after.own - before.own)) / passed)


def now(cluster: Measured) -> CpuTimes:
    own = os.times()
    spent = own.user + own.system + own.children_user + own.children_system
    return cpu_times(Path("/proc/stat").read_text().splitlines()[0], spent + cluster.cpu_s())


def wait_for_quiet(cluster: Measured, limit_s: float) -> None:
    """Returns when others use little of the machine, or the time is over."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        before = now(cluster)
        time.sleep(1.0)
        if others_percent(before, now(cluster)) < QUIET_PERCENT:
            return
