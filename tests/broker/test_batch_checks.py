"""Whole logs are checked one segment after the other."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker import batch_checks
from barnabas.broker.batch_checks import BatchChecks
from barnabas.broker.process.failure_log import FailureLog
from barnabas.clock import SYSTEM_CLOCK
from barnabas.log.unified_log import UnifiedLog
from barnabas.types import Offset
from log.conftest import Rig


class Threads(Executor):
    """Notes what it is given, and does it when it is told."""

    def __init__(self) -> None:
        self.given: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.positions: list[int] = []
        """Of the slices that were to be checked."""
        self.owners: list[Any] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.given.append((future, lambda: function(*arguments)))
        self.positions.append(arguments[0].position)
        self.owners.append(arguments[0].owner)
        return future

    def turn(self) -> None:
        future, action = self.given.pop()
        assert not self.given, "one at a time"
        future.set_result(action())


def suspected(log: UnifiedLog) -> Any:
    """A replica with this log, as far as checks ask for it."""
    return type("Suspected", (), {"log": log})()


@pytest.mark.parametrize("stops", [False, True])
def test_a_log_is_checked_segment_by_segment_until_the_broker_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    monkeypatch.setattr(batch_checks, "_PAUSE_S", 0)
    rig = Rig(tmp_path)
    log = rig.log()
    for _ in range(3):
        rig.append(log)
        log.roll()

    async def main() -> int:
        threads = Threads()
        failures = FailureLog(logging.getLogger("barnabas.test"), SYSTEM_CLOCK)
        checks = BatchChecks(asyncio.get_running_loop(), threads, failures)
        checks.suspect_log(log)
        checks.suspect_log(log)
        while threads.given:
            if stops:
                checks.stop()
            threads.turn()
            for _ in range(10):
                await asyncio.sleep(0)
        return len(threads.positions)

    assert asyncio.run(main()) == (1 if stops else 3)
    assert not log.damage.found


def test_all_batches_that_are_suspected_during_a_check_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers that begin anew come to whole batches each time, before and after the damaged one."""
    monkeypatch.setattr(batch_checks, "_PAUSE_S", 0)
    rig = Rig(tmp_path)
    log = rig.log()
    for _ in range(4):
        rig.append(log)
    partition = suspected(log)

    async def main() -> list[int]:
        threads = Threads()
        failures = FailureLog(logging.getLogger("barnabas.test"), SYSTEM_CLOCK)
        checks = BatchChecks(asyncio.get_running_loop(), threads, failures)
        for _ in range(4):
            for offset in range(4):
                checks.suspect(partition, Offset(offset))
            threads.turn()
            for _ in range(10):
                await asyncio.sleep(0)
        return threads.positions

    size = log.size_bytes // 4
    assert asyncio.run(main())[:4] == [0, size, 2 * size, 3 * size]


def test_a_replica_with_many_suspected_batches_does_not_keep_others_and_whole_logs_from_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_checks, "_PAUSE_S", 0)
    rigs = [Rig(tmp_path / name) for name in ("busy", "damaged", "whole")]
    for rig in rigs:
        rig.root.mkdir()
    busy, damaged, whole = logs = [rig.log() for rig in rigs]
    for rig, log in zip(rigs, logs, strict=True):
        for _ in range(100):
            rig.append(log)

    async def main() -> list[Any]:
        threads = Threads()
        failures = FailureLog(logging.getLogger("barnabas.test"), SYSTEM_CLOCK)
        checks = BatchChecks(asyncio.get_running_loop(), threads, failures)
        one, other = suspected(busy), suspected(damaged)
        for offset in range(100):
            checks.suspect(one, Offset(offset))
        checks.suspect(other, Offset(7))
        checks.suspect_log(whole)
        for _ in range(4):
            threads.turn()
            for _ in range(10):
                await asyncio.sleep(0)
        return threads.owners

    owners = asyncio.run(main())
    assert owners[0] is busy.active_segment
    assert {id(each) for each in owners[1:]} >= {id(log.active_segment) for log in (damaged, whole)}
