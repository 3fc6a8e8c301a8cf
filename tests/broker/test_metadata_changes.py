"""Changes of the metadata that come together, and the order in which a broker applies them."""

from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from barnabas.broker.server import Broker
from barnabas.metadata.delta import MetadataDelta
from barnabas.replication import replica_manager
from broker.admin_rig import broker as broker
from broker.admin_rig import create, produce, running_broker


def change(broker: Broker, config: dict[str, str], **fields: Any) -> None:
    image = broker.image
    delta = MetadataDelta(image)
    partition = image.topics["a"].partitions[0]
    delta.put_partitions("a", [(0, partition._replace(partition_epoch=partition.partition_epoch + 1, **fields))])
    if config:
        delta.set_topic_config("a", config)
    broker.metadata_changed(delta.apply(image.version + 1))


def test_a_smaller_isr_commits_nothing_by_the_settings_of_before(broker: Broker) -> None:
    create(broker, "a")
    change(broker, {}, replicas=(1, 2), isr=(1, 2))
    produce(broker, "a", 0)
    partition = broker.replica_manager.leader_of("a", 0)
    assert partition.log.high_watermark == 0
    change(broker, {"min.insync.replicas": "2"}, isr=(1,))
    assert partition.log.high_watermark == 0
    change(broker, {"min.insync.replicas": "1"})
    assert partition.log.high_watermark == 2


def test_a_change_from_another_image_than_the_present_one_leaves_no_topic_behind(broker: Broker) -> None:
    """The controller of this broker has not seen a topic that others have created, told this broker, and deleted."""
    create(broker, "a")
    told, seen = broker.image, broker.image.topics["a"]
    produce(broker, "a", 0)
    before = MetadataDelta(told)
    before.remove_topic("a")
    unseen = before.apply(told.version - 1).image
    broker.metadata_changed(MetadataDelta(unseen).apply(told.version + 1))
    assert (broker.replica_manager.get("a", 0), dict(broker.log_manager.logs)) == (None, {})
    again = MetadataDelta(unseen)
    again.put_topic(seen._replace(topic_id=UUID(int=7)))
    broker.metadata_changed(again.apply(told.version + 2))
    assert broker.replica_manager.leader_of("a", 0).log.log_end_offset == 0


def test_a_large_topic_gives_the_loop_back_and_newer_metadata_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_manager, "AT_ONCE_MAX", 2)
    with running_broker(tmp_path) as broker:
        create(broker, "large", partitions=8)
        assert len(broker.log_manager.logs) == 2
        create(broker, "a")
        assert broker.replica_manager.leader_of("a", 0).is_leader
        monkeypatch.setattr(broker.loop, "time", count().__next__)  # each look at the clock ends a turn
        for made in (4, 5):
            broker.loop.call_soon(broker.loop.stop)
            broker.loop.run_forever()
            assert len(broker.log_manager.logs) == made
    with running_broker(tmp_path) as broker:  # the stop has made the others
        assert [broker.replica_manager.leader_of("large", index).leader_epoch for index in range(8)] == [0] * 8
