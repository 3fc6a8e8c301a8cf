"""The cleaner of a running broker: how often it looks for dirty logs, and what it is told to do."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from barnabas.broker.cleaner.log_cleaner import LogCleaner
from barnabas.config.broker import BrokerConfig
from barnabas.log.cleaner.cleaner_protocol import CleanerConfig
from log.cleaner.cleaner_rig import MakeRig
from log.cleaner.cleaner_rig import make_rig as make_rig

MakeCleaner = Callable[..., LogCleaner]


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def make_cleaner(make_rig: MakeRig, loop: asyncio.AbstractEventLoop) -> Iterator[MakeCleaner]:
    made: list[LogCleaner] = []
    rig, log = make_rig(), logging.getLogger("test")
    with ThreadPoolExecutor(1) as executor:

        def make(**settings: Any) -> LogCleaner:
            config = BrokerConfig.of({name.replace("_", "."): value for name, value in settings.items()})
            cleaner = LogCleaner(rig.manager, lambda: config, loop=loop, clock=rig.clock, executor=executor, log=log)
            made.append(cleaner)
            return cleaner

        yield make
        for cleaner in made:
            cleaner.stop()


def until(loop: asyncio.AbstractEventLoop, condition: Callable[[], Any]) -> None:
    deadline = loop.time() + 60
    while not condition():
        assert loop.time() < deadline
        loop.run_until_complete(asyncio.sleep(0.001))


def test_settings_reach_the_cleaning(make_cleaner: MakeCleaner) -> None:
    cleaner = make_cleaner(
        log_cleaner_dedupe_buffer_size=2_000_000,
        log_cleaner_io_buffer_load_factor=0.5,
        log_cleaner_io_buffer_size=4096,
        log_cleaner_io_max_bytes_per_second=1e6,
    )
    assert cleaner.cleaner_config() == CleanerConfig(
        dedupe_buffer_size=2_000_000, io_buffer_load_factor=0.5, io_buffer_size=4096, io_max_bytes_per_second=1e6
    )
    assert make_cleaner().cleaner_config() == CleanerConfig()


def test_it_looks_again_and_again_even_if_that_fails(
    make_cleaner: MakeCleaner,
    loop: asyncio.AbstractEventLoop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cleaner, runs = make_cleaner(log_cleaner_backoff_ms=10), []

    def run() -> bool:
        runs.append(loop.time())
        if len(runs) == 1:
            raise RuntimeError("a bug")
        return False

    monkeypatch.setattr(cleaner.manager, "run", run)
    began = loop.time()
    cleaner.start()
    until(loop, lambda: len(runs) >= 3)
    assert runs[2] - began >= 0.03
    assert [record.getMessage() for record in caplog.records] == ["looking for dirty logs failed"]
    cleaner.stop()
    count = len(runs)
    loop.run_until_complete(asyncio.sleep(0.05))
    assert len(runs) == count


def test_a_cleaner_that_is_switched_off_looks_for_nothing(
    make_cleaner: MakeCleaner, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaner, runs = make_cleaner(log_cleaner_enable=False, log_cleaner_backoff_ms=10), []
    monkeypatch.setattr(cleaner.manager, "run", lambda: runs.append(1))
    cleaner.start()
    loop.run_until_complete(asyncio.sleep(0.05))
    assert runs == []


def test_a_checkpoint_that_cannot_be_written_is_written_later(
    make_cleaner: MakeCleaner,
    loop: asyncio.AbstractEventLoop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    writes: list[float] = []

    def persist() -> None:
        writes.append(loop.time())
        if len(writes) < 3:
            raise OSError(28, "No space left on device")

    cleaner = make_cleaner(log_cleaner_backoff_ms=10)
    monkeypatch.setattr(cleaner.manager, "persist", persist)
    cleaner._on_cleaned()
    cleaner.start()
    until(loop, lambda: len(writes) == 3)
    runs: list[float] = []
    monkeypatch.setattr(cleaner.manager, "run", lambda: runs.append(loop.time()))
    until(loop, lambda: len(runs) == 3)
    assert len(writes) == 3
    assert "cleaner-offset-checkpoint cannot be written: [Errno 28] No space left on device" in caplog.text
