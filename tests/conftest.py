"""For all tests: a Ctrl-C that can be pressed, an end to every wait, and no haste where only the machine is slow.

A test that hangs fails after the `timeout` of pyproject.toml (or of its own mark) with the stacks of all threads, and
the run goes on. pytest-timeout leaves three gaps, which are closed here: what the failure of a test sets going may hang
as well (`asyncio.run` waits for cancelled tasks), it stops its clock at the first failure, before the fixtures are torn
down, and a main thread that does not come back from C never gets to hear the signal.
"""

import faulthandler
import os
import signal
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from barnabas.records.compiled.record_walk import is_compiled
from stopwatch import Stopwatch
from zookeeper_server import ZooKeeperServer, running_server

AGAIN_S = 60
"""How long after the first the next alarm rings, where that was not enough."""
LAST_S = 240
"""How long after the first alarm the whole run ends, with the stacks of all threads."""
LEAVE_S = 120
"""Within which the process has to end when all tests are done."""
CHILD_S = 150
"""Within which a fork of a test has to end."""
SHRINK_S = 600
"""The limit of a property or a model: a failing example is made smaller for up to five minutes before it is told."""
SPARK_S = 900
"""The limit of a test with the mark `spark`: its fixtures start virtual machines, and its jobs are slow anyway."""

LONGEST = {
    "broker/test_uncompiled.py",
    "cli/cluster/health/test_cluster_doctor.py",
    "client/test_uncompiled.py",
    "faults/test_crash.py",
    "interop/test_restart.py",
    "interop/test_spark_sink.py",
    "pipeline/demo/test_run.py",
    "replication/test_log_dir_move_faults.py",
    "test_operations_page.py",
    "test_readme.py",
    "whole_cluster/test_simulation.py",
    "whole_cluster/test_uncompiled.py",
}
"""The files that begin first, so that at the end no worker waits for a long one of another."""

_settings = pytest.StashKey[Any]()
_stderr = pytest.StashKey[int]()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control starts what it puts into the background so, and every child inherits it: tests that
    # press Ctrl-C, here or in a process that they start, would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)


_fork = os.fork


def _fork_that_ends() -> int:
    """No clock of the parent's is left in a child, and one that waits for ever holds the output of the run open."""
    child = _fork()
    if child == 0:
        end = threading.Timer(CHILD_S, os._exit, (3,))
        end.daemon = True
        end.start()
    return child


os.fork = _fork_that_ends

# An example that takes long, or is long in the making, says something of the machine.
settings.register_profile("patient", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_stderr] = os.dup(2)  # while a test runs, 2 is where pytest collects what it says


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(here).as_posix() not in LONGEST)
    for item in items:
        if item.get_closest_marker("source") and is_compiled():
            item.add_marker(pytest.mark.skip("test_uncompiled.py runs it on plain Python"))
        if item.get_closest_marker("timeout"):
            continue
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.timeout(SPARK_S))
        elif getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.timeout(SHRINK_S))


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, object, object]:
    item.stash[_settings] = settings
    told = yield
    if settings.method == "signal":
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, AGAIN_S)
    faulthandler.dump_traceback_later(settings.timeout + LAST_S, exit=True, file=item.config.stash[_stderr])
    return told


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> Generator[None, object, object]:
    faulthandler.cancel_dump_traceback_later()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """The clock anew: a failure has stopped it, and what a test spent is no fault of its fixtures."""
    if _settings in item.stash:
        item.ihook.pytest_timeout_set_timer(item=item, settings=item.stash[_settings])
    return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # one of xdist's ends when the others are done, too
        faulthandler.dump_traceback_later(LEAVE_S, exit=True, file=config.stash[_stderr])


@pytest.fixture
def stopwatch() -> Iterator[Stopwatch]:
    """A clock that stands still while the machine does."""
    with Stopwatch() as clock:
        yield clock


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that stays up. Each test takes a path of its own."""
    yield from running_server(tmp_path_factory.mktemp("zookeeper"))
