"""The fixtures, used as somebody else's test suite uses them."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytest.importorskip("confluent_kafka")

ROOT = Path(__file__).parents[2]


def test_each_test_has_the_broker_empty(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        seen = []

        def test_one(kafka, barnabas_broker):
            assert kafka is barnabas_broker
            seen.append(kafka.bootstrap_servers)
            kafka.create_topic("t")
            kafka.faults.disconnect("METADATA", times=None)

        def test_two(kafka):
            assert kafka.topics() == []
            assert seen == [kafka.bootstrap_servers]
            kafka.stop()

        def test_three(kafka):
            kafka.create_topic("t")
            assert seen == [kafka.bootstrap_servers]
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=3)


def test_the_fixtures_are_listed_and_cost_nothing_unless_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_imported():
            assert "barnabas.broker.server" not in sys.modules
            assert "barnabas.testing.broker" not in sys.modules
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)
    listed = pytester.runpytest_subprocess("--fixtures").stdout.str()
    assert re.search(r"^kafka -- .*\n\s+The session's broker", listed, re.MULTILINE)
    assert re.search(r"^barnabas_broker \[session scope\]", listed, re.MULTILINE)


def snippets() -> list[str]:
    section = (ROOT / "README.md").read_text().partition("## In tests")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def test_the_snippets_of_the_readme_work(pytester: pytest.Pytester) -> None:
    kit, fixture = snippets()
    pytester.makepyfile(
        test_kit=f"""
from barnabas.errors import NotLeaderOrFollower
from confluent_kafka import Producer

def test_kit():
    {kit.replace(chr(10), chr(10) + "    ")}
""",
        test_fixture=f'''
import contextlib
import threading

from confluent_kafka import Consumer, Producer

STOP = threading.Event()

def run_my_service(servers):
    """Two members of the group, and ten invoices."""
    def member():
        consumer = Consumer({{"bootstrap.servers": servers, "group.id": "billing"}})
        consumer.subscribe(["orders"])
        while not STOP.is_set():
            consumer.poll(0.05)
        consumer.close()

    for _ in range(2):
        threading.Thread(target=member).start()
    producer = Producer({{"bootstrap.servers": servers}})
    for number in range(10):
        producer.produce("invoices", str(number))
    assert producer.flush(10) == 0

{fixture}

def test_end():
    STOP.set()
''',
    )
    pytester.runpytest_subprocess("-q", "-p", "no:randomly").assert_outcomes(passed=3)
