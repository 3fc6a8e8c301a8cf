"""durability=fsync as producers see it: what the disk refuses is an error at once, never an acknowledgement."""

import errno
import threading
import time

import pytest

from barnabas.errors import KafkaStorageError, NotLeaderOrFollower
from barnabas.log.directories.disk import Disk
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.testing import Broker
from broker.wire import Wire, on_loop, server_of


class Slow(Disk):
    """Syncs when it is told to, with what it is told to answer."""

    __slots__ = ("error", "released")

    def __init__(self, error: int | None = None) -> None:
        self.released = threading.Event()
        self.error = error

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]
        self.released.wait(60)
        if self.error is not None:
            raise OSError(self.error, "no")


def request(topic: str = "t", timeout_ms: int = 30_000) -> ProduceRequest:
    batch = build_batch([Record(0, int(time.time() * 1000), None, b"x", ())])
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    return ProduceRequest(transactional_id=None, acks=1, timeout_ms=timeout_ms, topic_data=data)


@pytest.fixture
def broker():
    with Broker(settings={"durability": "fsync"}) as broker:
        broker.create_topic("t")
        yield broker


def use(broker: Broker, disk: Disk) -> None:
    log = server_of(broker).replica_manager.get("t", 0).log
    on_loop(broker, lambda: setattr(log, "disk", disk))


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failing_sync_is_told_at_once(broker: Broker, code: int, caplog: pytest.LogCaptureFixture) -> None:
    disk = Slow(code)
    disk.released.set()
    use(broker, disk)
    with Wire(broker, timeout_s=30) as wire:
        answer = wire.ask(request(), 8).responses[0].partition_responses[0]
        assert answer.error_code == KafkaStorageError.code
        assert broker.end_offsets("t") == [0]
        use(broker, Disk())
        second = wire.ask(request(), 8).responses[0].partition_responses[0]
    # A further sync may succeed without what the first one lost: nothing is acknowledged upon it.
    assert (second.error_code, broker.end_offsets("t")) == (KafkaStorageError.code, [0])
    broker.stop()
    assert "not all logs could be closed, the next start recovers them: t-0 takes no more writes" in caplog.text


def test_deleting_the_topic_answers_who_waits_for_the_disk(broker: Broker) -> None:
    disk = Slow()
    use(broker, disk)
    with Wire(broker, timeout_s=30) as wire:
        wire.send(request(), 8)
        broker.wait_for(lambda: server_of(broker).purgatory.size == 1)
        broker.delete_topic("t")
        assert wire.receive().responses[0].partition_responses[0].error_code == NotLeaderOrFollower.code
        disk.released.set()
        broker.create_topic("t")
        assert wire.ask(request(), 8).responses[0].partition_responses[0].error_code == 0


def test_the_timeout_of_the_request_holds(broker: Broker) -> None:
    disk = Slow()
    use(broker, disk)
    with Wire(broker, timeout_s=30) as wire:
        wire.send(request(timeout_ms=50), 8)
        assert wire.receive().responses[0].partition_responses[0].error_code == 7
        disk.released.set()


def test_stopping_with_parked_produce_keeps_what_was_written(tmp_path) -> None:
    broker = Broker(data_dir=tmp_path, settings={"durability": "fsync"}).start()
    broker.create_topic("t")
    disk = Slow()
    use(broker, disk)
    with Wire(broker, timeout_s=30) as wire:
        wire.send(request(), 8)
        broker.wait_for(lambda: server_of(broker).purgatory.size == 1)
        disk.released.set()
        broker.restart()
        assert wire.is_closed()
    assert broker.end_offsets("t") == [1]
    broker.close()
