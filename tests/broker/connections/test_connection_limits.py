"""Limits on connections that name hosts: the DNS is asked beside the event loop, and late answers are not taken."""

import asyncio
import logging
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.connections.connection_limits import ConnectionLimitsUpdater
from barnabas.config.broker import BrokerConfig
from barnabas.errors import UsageError
from barnabas.network.acceptor import ConnectionLimits
from no_more_threads import refuse_threads

LOG = logging.getLogger("barnabas.test")


def config(overrides: str, per_ip: int = 7) -> BrokerConfig:
    return BrokerConfig.of({"max.connections.per.ip.overrides": overrides, "max.connections.per.ip": per_ip})


class Dns:
    """Knows `a.test` and `b.test`; each question waits until `answers` lets it through."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self._real = real
        self.asked_on: list[threading.Thread] = []
        self._asked: queue.SimpleQueue[threading.Thread] = queue.SimpleQueue()
        self.answers = threading.Semaphore(0)

    async def next_asker(self) -> threading.Thread:
        return await asyncio.to_thread(self._asked.get, timeout=60)

    def __call__(self, host: str, *args: Any, **options: Any) -> Any:
        known = {"a.test": "10.0.0.1", "b.test": "10.0.0.2"}
        if not host.endswith(".test") or options.get("flags"):
            return self._real(host, *args, **options)
        self.asked_on.append(threading.current_thread())
        self._asked.put(threading.current_thread())
        assert self.answers.acquire(timeout=60)
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known[host], 0))]


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> Dns:
    double = Dns(socket.getaddrinfo)
    monkeypatch.setattr(socket, "getaddrinfo", double)
    return double


class Applied:
    """Records the limits that the acceptor gets, and waits for them."""

    def __init__(self) -> None:
        self.limits: list[ConnectionLimits] = []
        self._told = asyncio.Event()

    def __call__(self, limits: ConnectionLimits) -> None:
        self.limits.append(limits)
        self._told.set()

    async def times(self, count: int) -> None:
        while len(self.limits) < count:
            self._told.clear()
            await asyncio.wait_for(self._told.wait(), 60)

    @property
    def overrides(self) -> list[dict[str, int]]:
        return [dict(limits.max_connections_per_ip_overrides) for limits in self.limits]


def on_loop(scenario: Callable[[ConnectionLimitsUpdater, Applied], Any]) -> None:
    async def main() -> None:
        await scenario(ConnectionLimitsUpdater(asyncio.get_running_loop(), LOG), Applied())

    asyncio.run(main())


def test_addresses_hold_at_once(dns: Dns) -> None:
    async def scenario(follower: ConnectionLimitsUpdater, applied: Applied) -> None:
        assert dict(follower.start(config("")).max_connections_per_ip_overrides) == {}
        follower.follow(config("127.0.0.1:5,[::1]:6"), applied)
        assert applied.overrides == [{"127.0.0.1": 5, "::1": 6}]
        follower.follow(config("127.0.0.1:5,[::1]:6", per_ip=9), applied)
        assert applied.limits[-1].max_connections_per_ip == 9

    on_loop(scenario)
    assert dns.asked_on == []


def test_names_are_resolved_beside_the_loop(dns: Dns) -> None:
    async def scenario(follower: ConnectionLimitsUpdater, applied: Applied) -> None:
        follower.start(config("127.0.0.1:1"))
        follower.follow(config("a.test:5", per_ip=8), applied)
        assert applied.overrides == [{"127.0.0.1": 1}], "until the answer the old ones hold"
        assert applied.limits[0].max_connections_per_ip == 8, "the rest holds at once"
        follower.follow(config("a.test:5", per_ip=9), applied)
        dns.answers.release(2)
        await applied.times(4)
        assert applied.overrides[-1] == {"10.0.0.1": 5}
        assert applied.limits[-1].max_connections_per_ip == 9, "the latest settings, whichever answer it was"
        follower.follow(config("a.test:5", per_ip=3), applied)
        assert applied.overrides[-1] == {"10.0.0.1": 5}

    on_loop(scenario)
    assert len(dns.asked_on) == 2, "what is known is not asked again"
    assert threading.main_thread() not in dns.asked_on


def test_an_answer_that_comes_too_late_is_not_taken(dns: Dns) -> None:
    async def scenario(follower: ConnectionLimitsUpdater, applied: Applied) -> None:
        follower.start(config(""))
        follower.follow(config("a.test:5"), applied)
        follower.follow(config("10.9.9.9:2"), applied)
        lookup = await dns.next_asker()
        dns.answers.release()
        await asyncio.to_thread(lookup.join)
        await asyncio.sleep(0)
        assert applied.overrides == [{}, {"10.9.9.9": 2}]

    on_loop(scenario)


def test_a_name_that_nobody_knows_is_reported_and_changes_nothing(dns: Dns, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(follower: ConnectionLimitsUpdater, applied: Applied) -> None:
        follower.start(config("10.0.0.9:2"))
        follower.follow(config("no.test:5"), applied)
        lookup = await dns.next_asker()
        dns.answers.release()
        await asyncio.to_thread(lookup.join)
        await asyncio.sleep(0)
        assert applied.overrides == [{"10.0.0.9": 2}]
        dns.answers.release()
        with pytest.raises(UsageError, match=r"no\.test cannot be resolved"):
            follower.start(config("no.test:5"))

    on_loop(scenario)
    assert "no.test cannot be resolved" in caplog.text


def test_without_a_thread_to_look_names_up_the_rest_holds(
    dns: Dns, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(follower: ConnectionLimitsUpdater, applied: Applied) -> None:
        follower.start(config("10.0.0.9:2"))
        with monkeypatch.context() as patch:
            refuse_threads(patch)
            follower.follow(config("a.test:5", per_ip=8), applied)
        assert applied.overrides == [{"10.0.0.9": 2}]
        assert applied.limits[0].max_connections_per_ip == 8
        dns.answers.release()
        follower.follow(config("a.test:5", per_ip=8), applied)
        await applied.times(3)
        assert applied.overrides[-1] == {"10.0.0.1": 5}

    on_loop(scenario)
    assert "overrides are not looked up: can't start new thread" in caplog.text
