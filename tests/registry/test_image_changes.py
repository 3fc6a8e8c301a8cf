"""Changes upon an image: what the conformance suite does not tell apart."""

from uuid import UUID

from barnabas.metadata.image import MetadataImage, PartitionImage
from barnabas.registry.image_changes import apply_changes
from barnabas.registry.registry import AddPartitions, CreateTopic, DeleteTopic, SetPartition, SetTopicConfig

PARTITION = PartitionImage(1, 0, (1,), (1,), 0)
CHANGED = PARTITION._replace(leader=2, partition_epoch=1)
ID = UUID(int=1)


def test_changes_build_upon_each_other() -> None:
    changes = [
        CreateTopic("t", ID, (PARTITION,), {"a": "1"}),
        AddPartitions("t", ID, 1, (PARTITION,)),
        SetPartition("t", ID, 1, CHANGED, 0),
        SetTopicConfig("t", {"b": "2"}),
    ]
    done = apply_changes(MetadataImage("id", version=7), changes)
    assert done is not None
    assert done.image.version == 8
    assert done.image.topics["t"].partitions == (PARTITION, CHANGED)
    assert done.image.topic_config("t") == {"b": "2"}
    assert (done.topics, done.topics_configured) == ({"t"}, {"t"})


def test_a_refused_change_undoes_those_before_it() -> None:
    image = MetadataImage("id", version=7)
    assert apply_changes(image, [CreateTopic("t", ID, (PARTITION,), {}), DeleteTopic("u", ID)]) is None
    assert image.topics == {}


def test_a_number_of_a_partition_is_not_negative() -> None:
    image = apply_changes(MetadataImage("id"), [CreateTopic("t", ID, (PARTITION,), {})])
    assert image is not None
    assert apply_changes(image.image, [SetPartition("t", ID, -1, CHANGED, 0)]) is None
