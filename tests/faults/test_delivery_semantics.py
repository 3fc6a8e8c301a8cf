"""At most once, at least once, exactly once: three stories of a worker that dies at a named point of its loop.

Each holds its semantics to what it promises wherever the worker or the broker is killed, and shows that what it does
not promise really happens. BARNABAS_TEST_PEER=kafka tells them of Apache Kafka, but for brokers killed in a commit:
Apache Kafka 4.3.1 on one node forgets the end markers that it had not written when it was killed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="the workers are confluent-kafka's")

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.brokers import BrokerProcess, make_broker
from transactions import SETTINGS
from worker import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    COMMITTED,
    EXACTLY_ONCE,
    FENCED,
    FREE,
    MARK,
    OFFSETS_SENT,
    PROCESSED,
)
from worker_process import WorkerProcess
from workload import client_settings, create_topic, read, wait_until_closed

RECORDS = [b"record-%d" % number for number in range(40)]
BATCH = 5
TIMEOUT_S = 60
WORKER, BROKER, BOTH = "worker", "broker", "both"
VICTIMS = (WORKER, BROKER, BOTH)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    peer = os.environ.get("BARNABAS_TEST_PEER", "barnabas")
    broker = make_broker(peer, tmp_path_factory.mktemp("broker"), SETTINGS)
    broker.start()
    broker.first_ack_s()
    yield broker
    broker.stop()


class Story:
    """Forty records in one partition, and workers that come one after another under the same name."""

    def __init__(self, broker: BrokerProcess, name: str, semantics: str, logs: Path) -> None:
        self.broker = broker
        self._semantics = semantics
        self._logs = logs
        self._input, self._output, self._group = f"{name}-in", f"{name}-out", f"{name}-group"
        self._name = f"{name}-worker"
        self.workers: list[WorkerProcess] = []
        for topic in (self._input, self._output):
            create_topic(broker.address, topic, 1)
        producer = Producer({**client_settings(broker.address), "linger.ms": 0})
        for value in RECORDS:
            producer.produce(self._input, value, partition=0)
        producer.flush(TIMEOUT_S)

    def worker(self, *arguments: str) -> WorkerProcess:
        common = ["--address", self.broker.address, "--semantics", self._semantics, "--static", "--batch", str(BATCH)]
        common += ["--input", self._input, "--output", self._output, "--group", self._group]
        process = WorkerProcess(self._name, self._logs / f"{len(self.workers)}.log", *common, *arguments)
        self.workers.append(process)
        return process

    def worker_at(self, point: str) -> WorkerProcess:
        """A worker that has come to ``point`` in its second batch, and waits there."""
        process = self.worker("--wait-at", point, "--from-batch", "2", "--until-end")
        process.wait_for(point, TIMEOUT_S)
        return process

    def kill(self, victim: str, process: WorkerProcess) -> None:
        """Kills one or both; a worker that lives goes on."""
        if victim in (WORKER, BOTH):
            process.kill()
        if victim in (BROKER, BOTH):
            self.broker.stop(signal.SIGKILL)
            self.broker.start()
            self.broker.first_ack_s()
        if victim == BROKER:
            process.go_on(FREE)
            assert process.wait(TIMEOUT_S) == 0, process.why()

    def needs_markers_after_a_kill(self) -> None:
        """Apache Kafka loads __transaction_state before it knows who leads the partitions, and takes them for gone."""
        if self.broker.name == "kafka":
            pytest.skip("a killed Apache Kafka forgets end markers, its readers wait for ever")

    def finish(self) -> None:
        """A last worker reads whatever is left; returns when its last transaction's markers are written too."""
        code = self.worker("--until-end").wait(TIMEOUT_S)
        assert code == 0, self.workers[-1].why()
        left = wait_until_closed(self.broker.address, [self._output])
        assert not left

    def copied(self, *, committed: bool = True) -> list[bytes]:
        """The records that were processed, in the order of the output."""
        found = [message.value() or b"" for message in read(self.broker.address, self._output, 0, committed=committed)]
        assert all(value.startswith(MARK) for value in found)
        return [value.removeprefix(MARK) for value in found]

    def position(self) -> int:
        """The group's committed offset, 0 before the first; one of an open transaction does not count."""
        settings = {**client_settings(self.broker.address), "isolation.level": "read_uncommitted"}
        consumer = Consumer({**settings, "group.id": self._group})
        (answer,) = consumer.committed([TopicPartition(self._input, 0)], TIMEOUT_S)
        consumer.close()
        return max(answer.offset, 0)


@pytest.fixture
def story(request: pytest.FixtureRequest, broker: BrokerProcess, tmp_path: Path) -> Iterator[Story]:
    """Of the semantics that the test's name begins with."""
    test = request.node.name.removeprefix("test_").replace("_", "-")
    semantics = next(name for name in (AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE) if test.startswith(name))
    story = Story(broker, test.replace("[", "-").rstrip("]"), semantics, tmp_path)
    yield story
    for process in story.workers:
        process.kill()
    if not broker.running:
        broker.start()


def test_at_most_once_loses_what_was_committed_and_not_processed(story: Story) -> None:
    process = story.worker_at(COMMITTED)
    done, position = len(story.copied()), story.position()
    assert 0 < done < position
    story.kill(WORKER, process)
    story.finish()
    assert story.copied() == RECORDS[:done] + RECORDS[position:]


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("point", [COMMITTED, PROCESSED])
def test_at_most_once_never_doubles(story: Story, point: str, victim: str) -> None:
    story.kill(victim, story.worker_at(point))
    story.finish()
    copied = story.copied()
    assert copied == [value for value in RECORDS if value in copied]
    assert story.position() == len(RECORDS)


def test_at_least_once_doubles_what_was_processed_and_not_committed(story: Story) -> None:
    process = story.worker_at(PROCESSED)
    done, position = len(story.copied()), story.position()
    assert 0 < position < done
    story.kill(WORKER, process)
    story.finish()
    assert story.copied() == RECORDS[:done] + RECORDS[position:]


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("point", [PROCESSED, COMMITTED])
def test_at_least_once_never_loses(story: Story, point: str, victim: str) -> None:
    story.kill(victim, story.worker_at(point))
    story.finish()
    first_copies = list(dict.fromkeys(story.copied()))
    assert first_copies == RECORDS
    assert story.position() == len(RECORDS)


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("point", [PROCESSED, OFFSETS_SENT, COMMITTED])
def test_exactly_once_neither_loses_nor_doubles(story: Story, point: str, victim: str) -> None:
    if point == COMMITTED and victim != WORKER:
        story.needs_markers_after_a_kill()
    story.kill(victim, story.worker_at(point))
    story.finish()
    assert story.copied() == RECORDS
    assert story.position() == len(RECORDS)
    was_open = point != COMMITTED and victim != BROKER
    assert (len(story.copied(committed=False)) > len(RECORDS)) == was_open, "what was aborted is in the log"


def test_exactly_once_shows_records_and_offsets_together(story: Story) -> None:
    process = story.worker_at(OFFSETS_SENT)
    done, position = len(story.copied()), story.position()
    assert 0 < done == position
    assert len(story.copied(committed=False)) > done, "the open transaction's records are in the log"
    process.go_on()
    process.wait_for(OFFSETS_SENT, TIMEOUT_S)  # of the next batch
    assert len(story.copied()) == story.position() > done


@pytest.mark.parametrize("point", [PROCESSED, OFFSETS_SENT])
def test_exactly_once_fences_a_worker_that_wakes_after_its_successor(story: Story, point: str) -> None:
    zombie = story.worker_at(point)
    story.finish()
    assert story.copied() == RECORDS
    zombie.go_on()
    assert zombie.wait(TIMEOUT_S) == FENCED, zombie.why()
    assert story.copied() == RECORDS
    assert story.position() == len(RECORDS)


def test_exactly_once_lives_through_a_kill_in_the_midst_of_a_commit(story: Story) -> None:
    story.needs_markers_after_a_kill()
    process = story.worker_at(OFFSETS_SENT)
    for delay_s in (0.0, 0.0005, 0.001, 0.002, 0.004):
        process.go_on()
        time.sleep(delay_s)
        story.broker.stop(signal.SIGKILL)
        story.broker.start()
        process.wait_for(OFFSETS_SENT, TIMEOUT_S)
    process.kill()
    story.finish()
    assert story.copied() == RECORDS
    assert story.position() == len(RECORDS)
