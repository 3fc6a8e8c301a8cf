"""What commands say of a partition whose only replica is on a dead broker, and what they do with the others."""

import pytest

from barnabas.testing import Cluster
from cli.cluster.three_brokers import bootstrap as bootstrap
from cli.cluster.three_brokers import kafka as kafka
from cli.cluster.three_brokers import shared_cluster as shared_cluster
from cli.conftest import Run, one_line


@pytest.fixture
def solo(kafka: Cluster, in_process: Run) -> str:
    """A topic of which partition 2 has no leader, with a record in each of the others."""
    kafka.create_topic("solo", assignments={0: [1], 1: [2], 2: [3]})
    for partition in (0, 1):
        in_process("produce", "solo", "-p", str(partition), input=f"in {partition}\n")
    kafka.kill(3)
    kafka.wait_for(lambda: kafka.admin.describe_topics("solo")["solo"].partitions[2].leader < 0, what="the loss of 3")
    return "solo"


def test_the_partition_is_named(solo: str, in_process: Run) -> None:
    for command in (("get-offsets", solo), ("delete-records", solo, "--all")):
        done = in_process(*command, "--timeout", "1")
        assert done.returncode == 1
        assert "solo-2 has no leader (replicas on brokers 3)" in one_line(done.stderr)


def test_the_other_partitions_are_read_first(solo: str, in_process: Run) -> None:
    done = in_process("consume", solo, "-e", "-q", "--timeout", "1")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (1, ["in 0", "in 1"])
    assert "solo-2 has no leader" in one_line(done.stderr)


def test_brokers_that_are_left_out_are_told(solo: str, in_process: Run) -> None:
    for command in ("brokers", "log-dirs"):
        done = in_process(command)
        assert (done.returncode, done.stderr) == (0, "left out, not live: 1 broker (3)\n")
        assert {line.split()[0] for line in done.stdout.splitlines()} == {"BROKER", "1", "2"}
