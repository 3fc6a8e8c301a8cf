"""The only replica of a coordinator's partition has a damaged batch: that is said once, and the way out leads out."""

import logging
from pathlib import Path

import pytest

from barnabas import Consumer
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from broker.wire import server_of

OFFSETS = TopicPartition("__consumer_offsets", 0)


def commit(broker: Broker) -> None:
    with Consumer(
        "t", group_id="g", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        assert next(iter(consumer)).value == b"record"
        consumer.commit()


@pytest.mark.parametrize("what", ["records", "header"])
def test_a_damaged_batch_of_the_only_replica_is_named_with_the_way_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    settings = {"offsets.topic.num.partitions": 1}
    with Broker(data_dir=tmp_path / "data", settings=settings) as broker:
        broker.create_topic("t")
        broker.produce("t", b"record")
        commit(broker)
        broker.stop()
        path = tmp_path / f"data/{OFFSETS}/{0:020d}.log"
        with path.open("r+b") as file:
            file.seek(5 if what == "header" else 80)
            file.write(b"\xff" * 20)
        with caplog.at_level(logging.ERROR):
            broker.start()
            broker.wait_for(lambda: "Loading __consumer_offsets-0 failed" in caplog.text, what="the load fails")
        (said,) = [record.getMessage() for record in caplog.records if "Loading" in record.getMessage()]
        assert f"{path}: byte 0" in said or "offset 0" in said
        assert f"move {path.parent} away while the broker is stopped" in said
        assert server_of(broker).log_manager.logs[OFFSETS].damage.found
        broker.stop()
        path.parent.rename(tmp_path / "aside")
        broker.start()
        commit(broker)
        assert broker.committed("g") == {("t", 0): 1}
