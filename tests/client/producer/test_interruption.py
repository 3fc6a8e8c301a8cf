"""Ctrl-C in a process whose producer is blocked, in whatever call: the process goes on at once."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from stopwatch import Stopwatch

SOURCES = str(Path(__file__).parents[3] / "src")

PROGRAM = """
import sys
import barnabas

def blocking():
    print("blocking", flush=True)

try:
    with barnabas.Producer(bootstrap_servers=sys.argv[1], {settings}) as producer:
        {before}
        blocking()
        {call}
    print("not blocked", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

AIO_PROGRAM = """
import asyncio, sys
import barnabas.aio

async def main():
    async with barnabas.aio.Producer(bootstrap_servers=sys.argv[1], {settings}) as producer:
        {before}
        print("blocking", flush=True)
        {call}
    print("not blocked", flush=True)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

WITHIN_S = 5.0
"""The promise is a tenth of a second, but another process has to come to it on a machine that may be busy. What the
calls wait for lasts half a minute or more."""

SLOW, DEAF = "slow", "deaf"
SENT = "handle = producer.send('t', b'v')"
FULL = "producer.partitions_for('t', 5); producer.send('t', b'v' * 9000)"
OPEN = "producer.init_transactions(); producer.begin_transaction(); producer.send('t', b'v')"
ENDING = (
    "producer.init_transactions(); producer.begin_transaction(); "
    "producer.send_offsets_to_transaction({('t', 0): 1}, 'group')"
)
CASES = {
    "metadata": (DEAF, "", "", "producer.send('t', b'v')"),
    "partitions": (DEAF, "", "", "producer.partitions_for('t')"),
    "full buffer": (SLOW, "buffer_memory=10000", FULL, "producer.send('t', b'v' * 9000)"),
    "result": (SLOW, "", SENT, "handle.result()"),
    "flush": (SLOW, "", SENT, "producer.flush()"),
    "close": (SLOW, "", SENT, "producer.close()"),
    "init": (DEAF, "transactional_id='tx'", "", "producer.init_transactions()"),
    "commit": (SLOW, "transactional_id='tx'", OPEN, "producer.commit_transaction()"),
    "abort": (SLOW, "transactional_id='tx'", ENDING, "producer.abort_transaction()"),
    "bulk": (SLOW, "buffer_memory=10000", "", "producer.send_many('t', [b'v' * 900] * 1000)"),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t")
        broker.faults.delay("PRODUCE", 3600.0, times=None)
        broker.faults.delay("END_TXN", 3600.0, times=None)
        yield broker
        broker.faults.clear()


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def wait_until_asleep(pid: int) -> None:
    """Its main thread has slept for a while: it is in the call."""
    asleep = 0
    deadline = time.monotonic() + 60
    while asleep < 10:
        assert time.monotonic() < deadline, "the process does not come to rest"
        state = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(0.002)


def interrupted_after(program: str, address: str, stopwatch: Stopwatch) -> float:
    """How long the process took to get out of the call and to close its producer."""
    command = [sys.executable, "-c", program, address]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "blocking\n"
            wait_until_asleep(process.pid)
            sent = stopwatch()
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            ended = stopwatch()
            assert process.wait(60) == 0
        finally:
            process.kill()
    return ended - sent


@pytest.mark.parametrize("case", CASES)
def test_sync(case: str, broker: Broker, deaf: str, stopwatch: Stopwatch) -> None:
    where, settings, before, call = CASES[case]
    program = PROGRAM.format(settings=settings, before=before or "pass", call=call)
    address = deaf if where == DEAF else broker.bootstrap_servers
    assert interrupted_after(program, address, stopwatch) < WITHIN_S


@pytest.mark.parametrize("case", CASES)
def test_aio(case: str, broker: Broker, deaf: str, stopwatch: Stopwatch) -> None:
    where, settings, before, call = CASES[case]
    steps = "; ".join(awaited(step) for step in before.split("; ") if step)
    program = AIO_PROGRAM.format(settings=settings, before=steps or "pass", call=awaited(call))
    address = deaf if where == DEAF else broker.bootstrap_servers
    assert interrupted_after(program, address, stopwatch) < WITHIN_S


def awaited(step: str) -> str:
    """A step of the synchronous program as one of the other."""
    if step == "handle.result()":
        return "await handle"
    target, equals, call = step.rpartition(" = ")
    return step if "begin_transaction" in step else f"{target}{equals}await {call}"
