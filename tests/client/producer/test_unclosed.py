"""Producers that were never closed send what they have when the process ends, or warn of what is lost."""

import asyncio
import gc
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.client.producer import unclosed
from barnabas.testing import Broker

TIMEOUT_S = 60


def run(program: str, *arguments: str) -> str:
    """What a Python process says on stderr."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def sent(broker: Broker, topic: str) -> list[bytes]:
    return sorted(record.value for record in broker.records(topic) if record.value is not None)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


SEND = """
import sys, barnabas
producer = barnabas.Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
for number in range(3):
    producer.send(sys.argv[2], b"%d" % number)
"""


def test_a_producer_that_was_not_closed_sends_all_at_the_end_of_the_process(broker: Broker, name: str) -> None:
    broker.create_topics(name)
    assert run(SEND, broker.bootstrap_servers, name) == ""
    assert sent(broker, name) == [b"0", b"1", b"2"]


def test_what_other_threads_send_until_their_end_is_sent_too(broker: Broker, name: str) -> None:
    broker.create_topics(name)
    program = f"""{SEND}
import threading
def work():
    threading.main_thread().join()
    for number in range(3, 100):
        producer.send(sys.argv[2], b"%d" % number)
threading.Thread(target=work).start()
"""
    assert run(program, broker.bootstrap_servers, name) == ""
    assert len(sent(broker, name)) == 100


def test_a_dropped_producer_sends_all(broker: Broker, name: str) -> None:
    broker.create_topics(name)
    assert run(f"{SEND}\nimport gc\ndel producer\ngc.collect()", broker.bootstrap_servers, name) == ""
    assert sent(broker, name) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_multiprocessing_sends_all(broker: Broker, name: str, method: str, tmp_path: Any) -> None:
    broker.create_topics(name)
    program = tmp_path / "program.py"
    program.write_text(f"""
import multiprocessing, sys, barnabas
def work(address, topic):
    producer = barnabas.Producer(bootstrap_servers=address, linger_ms=60_000)
    producer.send(topic, b"of the child")
if __name__ == "__main__":
    child = multiprocessing.get_context({method!r}).Process(target=work, args=sys.argv[1:])
    child.start()
    child.join()
    sys.exit(child.exitcode)
""")
    done = subprocess.run(
        [sys.executable, str(program), broker.bootstrap_servers, name],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert sent(broker, name) == [b"of the child"]


def test_the_records_of_the_parent_are_not_sent_by_a_child_that_ends(broker: Broker, name: str) -> None:
    broker.create_topics(name)
    program = f"{SEND}\nimport os\npid = os.fork()\nif pid: os.waitpid(pid, 0)"
    assert run(program, broker.bootstrap_servers, name) == ""
    assert sent(broker, name) == [b"0", b"1", b"2"]


def test_an_open_transaction_is_aborted(broker: Broker, name: str) -> None:
    broker.create_topics(name)
    program = """
import sys, barnabas
producer = barnabas.Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000, transactional_id="t")
producer.init_transactions()
producer.begin_transaction()
producer.send(sys.argv[2], b"v")
"""
    told = run(program, broker.bootstrap_servers, name)
    assert "1 record was not acknowledged when the process ended and may be lost" in told
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert [listed.state for listed in admin.list_transactions()] != ["Ongoing"]


def test_what_could_not_be_sent_in_time_is_told_with_its_number_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unclosed, "EXIT_TIMEOUT_S", 2.0)
    monkeypatch.setattr(unclosed, "_open", type(unclosed._open)())
    with Broker() as broker:
        broker.create_topics("t")
        producer = barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)
        handles = [producer.send("t", b"v") for _ in range(3)]
    unclosed._close_all()
    (told,) = warnings_of(caplog)
    assert told.startswith(
        "3 records were not acknowledged when the process ended and may be lost: no broker reachable"
    )
    assert broker.bootstrap_servers in told
    assert "with barnabas.Producer(...) as producer" in told
    assert all(handle.done() for handle in handles)
    unclosed._close_all()
    assert len(warnings_of(caplog)) == 1


# --- asyncio ----------------------------------------------------------------------------------------------------------


def leave(address: str, topic: str, last: Callable[[barnabas.aio.Producer], Any]) -> None:
    async def scene() -> None:
        producer = barnabas.aio.Producer(bootstrap_servers=address, linger_ms=60_000)
        for _ in range(3):
            await producer.send(topic, b"v")
        await last(producer)

    asyncio.run(scene())
    gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_what_a_loop_leaves_unsent_is_told_when_the_producer_is_collected(
    broker: Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topics(name)
    leave(broker.bootstrap_servers, name, lambda producer: asyncio.sleep(0))
    (told,) = warnings_of(caplog)
    assert told.startswith("3 records were not acknowledged when the event loop ended and may be lost; close the")
    assert "async with barnabas.aio.Producer(...) as producer" in told


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_nothing_is_told_where_all_is_sent(broker: Broker, name: str, caplog: pytest.LogCaptureFixture) -> None:
    broker.create_topics(name)
    leave(broker.bootstrap_servers, name, lambda producer: producer.flush())
    leave(broker.bootstrap_servers, name, lambda producer: producer.close())
    assert warnings_of(caplog) == []


def test_a_dropped_producer_lives_as_long_as_its_loop_works_for_it(broker: Broker, name: str) -> None:
    broker.create_topics(name)

    async def scene() -> None:
        producer = barnabas.aio.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=1)
        handle = await producer.send(name, b"v")
        del producer
        gc.collect()
        await handle

    asyncio.run(scene())
    assert sent(broker, name) == [b"v"]


ON_A_LOOP = """
import asyncio, sys, threading, barnabas.aio
async def scene():
    global producer
    producer = barnabas.aio.Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
    for number in range(3):
        await producer.send(sys.argv[2], b"%d" % number)
"""


def test_at_the_end_of_the_process_it_is_told_too(broker: Broker, name: str) -> None:
    broker.create_topics(name)
    told = run(f"{ON_A_LOOP}\nasyncio.run(scene())", broker.bootstrap_servers, name)
    assert told.count("3 records were not acknowledged when the event loop ended") == 1


def test_a_loop_in_a_daemon_thread_sends_all_at_the_end_of_the_process(broker: Broker, name: str) -> None:
    broker.create_topics(name)
    program = f"""{ON_A_LOOP}
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(scene(), loop).result()
"""
    assert run(program, broker.bootstrap_servers, name) == ""
    assert sent(broker, name) == [b"0", b"1", b"2"]
