"""The waits of the test kit: what a call returned in the last moment counts, and event loops do not stand still."""

import asyncio
import concurrent.futures
import logging
import warnings
from typing import Any

import pytest

import barnabas
from barnabas import aio
from barnabas.client.producer import calls
from barnabas.errors import OperationTimedOut
from barnabas.testing import Broker, waiting
from barnabas.testing.cluster.links import Links
from barnabas.testing.waiting import Wait


class JustTooLate(concurrent.futures.Future[Any]):
    """Is done a moment after each limited wait has ended."""

    def result(self, timeout: float | None = None) -> Any:
        found = super().result()
        if timeout is not None:
            raise concurrent.futures.TimeoutError
        return found


def test_a_call_that_succeeded_as_its_wait_ended_has_succeeded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.testing.broker.Future", JustTooLate)
    broker.create_topic("in-time")
    assert "in-time" in broker.topics()


def test_links_that_were_cut_as_the_wait_ended_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.testing.cluster.links.Future", JustTooLate)
    monkeypatch.setattr(concurrent.futures, "Future", JustTooLate)  # that of asyncio
    links = Links({1: 1, 2: 2})
    try:
        links.cut([(1, 2)])
        assert links.is_cut_between(1, 2)
    finally:
        links.close()


def test_a_result_that_does_not_come_is_not_waited_for_for_ever() -> None:
    with pytest.raises(TimeoutError, match="nothing was done within"):
        waiting.result_within(concurrent.futures.Future(), 0.01)


def test_what_came_true_while_the_thread_stood_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now)
    looks: list[bool] = []

    def condition() -> bool:
        nonlocal now
        now += 60  # the machine is busy
        looks.append(True)
        return len(looks) > 1

    assert Wait(condition, 30.0, lambda _: "too late").in_thread()


def test_a_wait_that_holds_up_its_event_loop_says_so(broker: Broker) -> None:
    async def main() -> None:
        with (
            pytest.warns(RuntimeWarning, match=r"async_wait_for_group\(\)"),
            pytest.raises(TimeoutError, match="holds up the event loop of its caller"),
        ):
            broker.wait_for_group("nobody", timeout=0.02)

    asyncio.run(main())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TimeoutError, match=r"no coordinator is ready|0 members|Dead"):
            broker.wait_for_group("nobody", timeout=0.02)


def test_members_on_the_callers_event_loop_are_waited_for(broker: Broker) -> None:
    broker.create_topic("loop", partitions=2)
    servers = broker.bootstrap_servers

    async def main() -> None:
        async with aio.Consumer("loop", bootstrap_servers=servers, group_id="on-the-loop") as consumer:
            polling = asyncio.create_task(consumer.poll(timeout=60))
            await broker.async_wait_for_group("on-the-loop", members=1)
            async with aio.Producer(bootstrap_servers=servers) as producer:
                sending = asyncio.create_task(producer.send("loop", b"a", partition=1))
                await broker.async_wait_for(lambda: broker.end_offsets("loop") == [0, 1], what="a record")
                await sending
            assert [record.value for record in await polling] == [b"a"]
        with pytest.raises(TimeoutError, match="nothing did not come true"):
            await broker.async_wait_for(lambda: False, timeout=0.01, what="nothing")

    asyncio.run(main())


def test_the_first_send_of_an_outage_says_why_it_waits(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(calls, "_SILENT_S", 0.05)
    with (
        barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=300) as producer,
        broker.down(),
        caplog.at_level(logging.WARNING),
        pytest.raises(OperationTimedOut),
    ):
        producer.send("new", b"a")
    assert any("send waits for the metadata of topic 'new'" in each.getMessage() for each in caplog.records)
