"""MetadataDelta: a changed image beside the one that it came from."""

from barnabas.metadata.delta import MetadataChange, MetadataDelta, change_between
from barnabas.metadata.image import EMPTY_IMAGE
from metadata.images import PARTITION, image, topic


def test_a_delta_leaves_its_image_alone_and_shares_what_is_the_same() -> None:
    before = image(topic("a", 1), topic("b", 2))
    delta = MetadataDelta(before)
    delta.put_topic(topic("c", 3))
    delta.remove_topic("b")
    delta.remove_topic("never there")
    change = delta.apply(2)
    assert set(before.topics) == {"a", "b"}
    assert set(change.image.topics) == {"a", "c"}
    assert change.topics == {"b", "c"}
    assert change.image.brokers is before.brokers
    assert change.image.topic_configs is before.topic_configs
    assert change.image.topics["a"] is before.topics["a"]
    assert (change.image.version, change.image.cluster_id) == (2, "cluster")


def test_partitions_change_and_follow() -> None:
    delta = MetadataDelta(image(topic("a", 1, 2)))
    changed = PARTITION._replace(leader=2, partition_epoch=1)
    delta.put_partitions("a", [(2, PARTITION), (0, changed)])
    change = delta.apply(2)
    assert change.image.topics["a"].partitions == (changed, PARTITION, PARTITION)
    assert change.topics == {"a"}


def test_settings_come_and_go_with_their_topic() -> None:
    delta = MetadataDelta(image(topic("a", 1)))
    delta.set_topic_config("a", {"segment.bytes": "1"})
    delta.set_broker_config("", {"x": "1"})
    configured = delta.apply(2)
    assert configured.topics_configured == {"a"}
    assert configured.brokers_configured == {""}
    assert configured.topics == frozenset()
    delta = MetadataDelta(configured.image)
    delta.remove_topic("a")
    delta.set_broker_config("", {})
    gone = delta.apply(3)
    assert gone.image.topic_configs == {}
    assert gone.image.broker_configs == {}
    assert configured.image.topic_config("a") == {"segment.bytes": "1"}


def test_clear_names_everything_that_was_there() -> None:
    delta = MetadataDelta(image(topic("a", 1)))
    delta.clear()
    delta.put_topic(topic("b", 2))
    change = delta.apply(2)
    assert change.topics == {"a", "b"}
    assert change.brokers == {1, 2}
    assert change.image.brokers == {}


def test_brokers() -> None:
    delta = MetadataDelta(image())
    delta.remove_broker(1)
    delta.remove_broker(9)
    delta.controller_id = 2
    change = delta.apply(2)
    assert change.brokers == {1}
    assert change.image.controller_id == 2
    assert EMPTY_IMAGE.controller_id == -1
    assert repr(change.image) == "MetadataImage(version=2, controller=2, brokers=1, topics=0)"


def test_the_change_between_two_images_is_that_of_the_delta() -> None:
    before = image(topic("a", 1), topic("b", 2), topic("c", 3))
    delta = MetadataDelta(before)
    delta.remove_topic("a")
    delta.put_partitions("b", [(0, PARTITION._replace(leader=2))])
    delta.put_topic(topic("d", 4))
    delta.set_topic_config("c", {"segment.bytes": "1"})
    delta.set_broker_config("", {"x": "1"})
    delta.remove_broker(1)
    delta.put_broker(before.brokers[2]._replace(fenced=False))  # type: ignore[index]
    change = delta.apply(7)
    assert change_between(before, change.image) == change
    assert change.since == before.version
    assert change_between(change.image, before) == change._replace(image=before, since=7)
    assert change_between(before, before) == MetadataChange(before, since=before.version)
