"""The quota of throttled replicas, on a loop whose time jumps."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.config.log_config import LONG_MAX
from barnabas.replication.replication_quota import ReplicationQuota
from broker.virtual_loop import run


class Copy:
    """Takes `size` bytes whenever it may, `times` times, and notes when."""

    def __init__(self, quota: ReplicationQuota, name: str, taken: list[tuple[str, float]], *, times: int) -> None:
        self._quota, self._name, self._taken, self._left = quota, name, taken, times

    def quota_available(self) -> None:
        if self._quota.is_exceeded():
            self._quota.wait(self)
            return
        self._quota.record(100)
        self._taken.append((self._name, round(asyncio.get_running_loop().time(), 6)))
        self._left -= 1
        if self._left:
            self._quota.wait(self)


Main = Callable[[ReplicationQuota, list[tuple[str, float]]], Coroutine[Any, Any, None]]


def with_quota(main: Main, rate: float = 100) -> None:
    async def body() -> None:
        await main(ReplicationQuota(asyncio.get_running_loop(), rate), [])

    run(body())


def test_waiters_have_their_turns() -> None:
    async def main(quota: ReplicationQuota, taken: list[tuple[str, float]]) -> None:
        for name in ("a", "b"):
            Copy(quota, name, taken, times=3).quota_available()
        await asyncio.sleep(100)
        assert [name for name, _ in taken] == ["a", "b", "a", "b", "a", "b"]
        assert [at for _, at in taken] == pytest.approx([0, 0, 1, 2, 3, 4])

    with_quota(main)


def test_a_higher_rate_takes_effect_at_once() -> None:
    async def main(quota: ReplicationQuota, taken: list[tuple[str, float]]) -> None:
        quota.record(100_100)
        Copy(quota, "a", taken, times=1).quota_available()
        await asyncio.sleep(5)
        assert not taken
        quota.set_rate(99_500)
        await asyncio.sleep(100)
        assert taken == [("a", pytest.approx(6))]

    with_quota(main)


def test_nobody_waits_for_a_rate_of_zero() -> None:
    async def main(quota: ReplicationQuota, taken: list[tuple[str, float]]) -> None:
        copy = Copy(quota, "a", taken, times=1)
        quota.record(200)
        copy.quota_available()
        quota.set_rate(0)
        copy.quota_available()
        quota.set_rate(100)
        await asyncio.sleep(100)
        assert not taken, "whoever changes the rate looks at all partitions again"

    with_quota(main)


def test_a_waiter_that_fails_does_not_stop_the_others() -> None:
    class Broken:
        def quota_available(self) -> None:
            raise ValueError("a bug")

    async def main(quota: ReplicationQuota, taken: list[tuple[str, float]]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        quota.record(200)
        quota.wait(Broken())
        Copy(quota, "a", taken, times=1).quota_available()
        await asyncio.sleep(100)
        assert [name for name, _ in taken] == ["a"]

    with_quota(main)


def test_without_a_rate_there_is_no_limit() -> None:
    async def main(quota: ReplicationQuota, taken: list[tuple[str, float]]) -> None:
        assert not quota.is_limited
        quota.set_rate(100)
        assert quota.is_limited
        assert quota.bytes_at_once == 100

    with_quota(main, LONG_MAX)
