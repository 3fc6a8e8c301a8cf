"""A broker whose metadata say that partitions have leaders on other brokers, which the test plays."""

from types import SimpleNamespace

from barnabas.broker.server import Broker
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.types import BrokerId, LeaderEpoch
from broker.cluster.fake_peers import FakePeers

OTHER = BrokerId(2)


def connect(broker: Broker, *, fenced: bool = False) -> FakePeers:
    """Registers another broker. `disconnect` has to follow."""
    peers = FakePeers()
    broker._cluster = SimpleNamespace(peers=peers, may_be_replaced=lambda: False)  # type: ignore[assignment]
    other = BrokerImage(OTHER, 7, (), fenced=fenced)
    _change(broker, brokers={**broker.image.brokers, OTHER: other})
    return peers


def disconnect(broker: Broker) -> None:
    broker._cluster = None


def move(broker: Broker, topic: str, index: int, leader: int = OTHER) -> None:
    """Gives a partition a leader. The log of this broker stays as it was."""
    known = broker.image.topics[topic]
    partitions = list(known.partitions)
    moved = PartitionImage(BrokerId(leader), LeaderEpoch(partitions[index].leader_epoch + 1), (OTHER,), (OTHER,))
    partitions[index] = moved
    _change(broker, topics={**broker.image.topics, topic: known._replace(partitions=tuple(partitions))})


def remove(broker: Broker, topic: str) -> None:
    _change(broker, topics={name: known for name, known in broker.image.topics.items() if name != topic})


def add(broker: Broker, topic: TopicImage) -> None:
    _change(broker, topics={**broker.image.topics, topic.name: topic})


def turn(broker: Broker) -> None:
    """Runs the callbacks that are due, and those that they make due."""

    async def nothing() -> None: ...

    for _ in range(3):
        broker.loop.run_until_complete(nothing())


def _change(broker: Broker, **parts: object) -> None:
    image = broker.image
    fields = {"brokers": image.brokers, "topics": image.topics, **parts}
    broker._image = MetadataImage(
        image.cluster_id,
        version=image.version + 1,
        controller_id=image.controller_id,
        **fields,  # type: ignore[arg-type]
    )
