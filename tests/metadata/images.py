"""Topics and images for tests."""

from uuid import UUID

from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage

PARTITION = PartitionImage(leader=1, leader_epoch=0, replicas=(1, 2), isr=(1, 2))


def topic(name: str, number: int = 1, partitions: int = 1) -> TopicImage:
    return TopicImage(name, UUID(int=number), (PARTITION,) * partitions)


def image(*topics: TopicImage) -> MetadataImage:
    delta = MetadataDelta(MetadataImage("cluster"))
    for one in topics:
        delta.put_topic(one)
    delta.put_broker(BrokerImage(1, 5, ()))
    delta.put_broker(BrokerImage(2, 6, (), fenced=True))
    return delta.apply(1).image
