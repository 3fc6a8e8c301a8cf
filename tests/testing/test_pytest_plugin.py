"""The fixtures, used as somebody else's test suite uses them."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from barnabas.testing import Broker

pytest_plugins = ["pytester"]

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


def test_the_brokers_settings_come_from_a_fixture(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def barnabas_settings():
            return {"num.partitions": 4, "auto.create.topics.enable": True}
        """
    )
    pytester.makepyfile(
        """
        import barnabas

        def test_it(kafka):
            with barnabas.Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
                producer.send("t", b"x")
            assert len(kafka.end_offsets("t")) == 4
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)


def snippets(section: str) -> list[str]:
    text = (ROOT / "README.md").read_text().partition(f"## {section}")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_snippets_about_tests_work(pytester: pytest.Pytester) -> None:
    kit, fixture = snippets("In tests")
    pytester.makepyfile(
        test_kit=f"def test_kit():\n{textwrap.indent(kit, '    ')}",
        test_fixture=f'''
import threading

import barnabas

STOP = threading.Event()

def run_my_service(servers):
    """Two members of the group, and ten invoices."""
    def member():
        with barnabas.Consumer("orders", bootstrap_servers=servers, group_id="billing") as consumer:
            while not STOP.is_set():
                consumer.poll(0.05)

    for _ in range(2):
        threading.Thread(target=member).start()
    with barnabas.Producer(bootstrap_servers=servers) as producer:
        for number in range(10):
            producer.send("invoices", b"%d" % number)

{fixture}

def test_end():
    STOP.set()
''',
    )
    pytester.runpytest_subprocess("-q", "-p", "no:randomly").assert_outcomes(passed=3)


def test_the_snippets_from_python_work(tmp_path: Path) -> None:
    """One after the other, in a process of their own, against a broker at another address."""
    with Broker() as broker:
        program = tmp_path / "readme.py"
        program.write_text("\n".join(snippets("From Python")).replace("127.0.0.1:9092", broker.bootstrap_servers))
        done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(r"\d 1000\nshipped\n", done.stdout)
        assert sum(broker.committed("shipping").values()) == 1001
        invoices = [record.value for record in broker.records("invoices")]
        assert sorted(invoices) == sorted([*(b"invoice of %d" % n for n in range(1000)), b"invoice of last"])
        assert sum(broker.committed("invoicing").values()) == 1001
        assert b"one more" in [record.value for record in broker.records("orders")]
