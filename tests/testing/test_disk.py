"""Disks that are full, slow, broken, or stop in the middle of a write, as producers meet them."""

import time
from collections.abc import Callable, Iterator

import pytest

import barnabas
from barnabas.errors import KafkaStorageError, UsageError
from barnabas.testing import Broker
from barnabas.testing.disk import DiskFault, FaultyDisk

FAST = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t")
        broker.produce("t", b"before")
        yield broker


def values(broker: Broker) -> list[bytes | None]:
    return [record.value for record in broker.records("t")]


def test_a_full_disk_lets_producers_wait_for_room(broker: Broker) -> None:
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, **FAST) as producer:
        with broker.disk.full():
            with pytest.raises(KafkaStorageError):
                broker.produce("t", b"refused")
            sent = producer.send("t", b"waits")
            assert values(broker) == [b"before"]
        assert sent.result(60).offset == 1
    broker.restart()
    assert values(broker) == [b"before", b"waits"]


@pytest.mark.parametrize("fault", [FaultyDisk.fail, FaultyDisk.torn_write])
def test_a_disk_that_is_mended_takes_writes_again(broker: Broker, fault: Callable[[FaultyDisk], DiskFault]) -> None:
    with fault(broker.disk):
        for _ in range(2):
            with pytest.raises(KafkaStorageError):
                broker.produce("t", b"refused")
        assert values(broker) == [b"before"], "what is there can be read"
    broker.produce("t", b"after")
    broker.restart()
    assert values(broker) == [b"before", b"after"]


def test_a_failed_sync_stops_a_log_until_a_restart(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("synced", configs={"flush.messages": "1"})
    broker.disk.fail()
    monkeypatch.delattr(broker.disk, "pwritev")
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="restart the broker"):
            broker.produce("synced", b"refused")
        broker.disk.heal()
    broker.restart()
    broker.produce("synced", b"after")
    assert b"after" in [record.value for record in broker.records("synced")]


def test_a_restart_on_a_mended_disk_takes_writes_again(broker: Broker) -> None:
    broker.disk.fail()
    with pytest.raises(KafkaStorageError):
        broker.produce("t", b"refused")
    broker.stop()
    broker.disk.heal()
    broker.start()
    broker.produce("t", b"after")
    assert values(broker) == [b"before", b"after"]


def test_a_torn_write_is_cut_off_by_a_restart(broker: Broker) -> None:
    with broker.disk.torn_write():
        for value in (b"torn" * 100, b"refused"):
            with pytest.raises(KafkaStorageError):
                broker.produce("t", value)
        size = (broker.data_dir / "t-0" / f"{0:020}.log").stat().st_size
        broker.stop()
        assert (broker.data_dir / "t-0" / f"{0:020}.log").stat().st_size == size
    broker.start()
    assert values(broker) == [b"before"]
    broker.produce("t", b"after")
    assert values(broker) == [b"before", b"after"]
    assert (broker.data_dir / "t-0" / f"{0:020}.log").stat().st_size < size, "half a batch was there"


def test_a_slow_disk_takes_its_time(broker: Broker) -> None:
    for seconds in (0.2, None):
        with broker.disk.slow() if seconds is None else broker.disk.slow(seconds):
            began = time.monotonic()
            broker.produce("t", b"late")
            assert time.monotonic() - began >= (seconds or 0.1)
    with pytest.raises(UsageError, match="0 to 3600 seconds, not -1"):
        broker.disk.slow(-1)


def test_reset_mends_the_disk(broker: Broker) -> None:
    broker.disk.full()
    broker.reset()
    broker.create_topic("t")
    broker.produce("t", b"x")
    assert values(broker) == [b"x"]
