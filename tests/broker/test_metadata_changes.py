"""Changes of the metadata that come together, and the order in which a broker applies them."""

from typing import Any

from barnabas.broker.server import Broker
from barnabas.metadata.delta import MetadataDelta
from broker.admin_rig import broker as broker
from broker.admin_rig import create, produce


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
