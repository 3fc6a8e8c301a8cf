"""The fixtures, used as somebody else's test suite uses them."""

import re

import pytest

pytest_plugins = ["pytester"]


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


def test_each_test_has_the_cluster_whole_and_empty(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import barnabas

        def test_one(kafka_cluster, barnabas_cluster):
            assert kafka_cluster is barnabas_cluster
            kafka_cluster.create_topic("t")
            kafka_cluster.kill(kafka_cluster.leader("t"))
            kafka_cluster.partition({1, 2}, {3})

        def test_two(kafka_cluster):
            kafka_cluster.create_topic("t")
            with barnabas.Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
                producer.send("t", b"x").result(timeout=60)
            kafka_cluster.wait_in_sync()  # a machine that stood still for seconds may have shrunk it
            assert kafka_cluster.in_sync_replicas("t") == {1, 2, 3}
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=2)


def test_a_test_may_close_what_the_session_has(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_one(kafka, kafka_cluster):
            assert not kafka.admin.list_topics() and not kafka_cluster.admin.list_topics()
            kafka.close()
            kafka_cluster.close()

        def test_two(kafka, kafka_cluster):
            kafka.create_topic("t")
            kafka_cluster.create_topic("t")
            assert kafka.admin.list_topics() and kafka_cluster.admin.list_topics()
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=2)


def test_the_fixtures_are_listed_and_cost_nothing_unless_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_imported():
            assert "barnabas.broker.server" not in sys.modules
            assert "barnabas.testing.broker" not in sys.modules
            assert "barnabas.testing.cluster" not in sys.modules
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)
    listed = pytester.runpytest_subprocess("--fixtures").stdout.str()
    assert re.search(r"^kafka -- .*\n\s+The session's broker", listed, re.MULTILINE)
    assert re.search(r"^kafka_cluster -- .*\n\s+The session's cluster", listed, re.MULTILINE)
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
