"""Updates from image to image: that they lead to the same image, in parts too, and what does not fit is left out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.metadata import update as update_module
from barnabas.metadata.delta import MetadataChange, MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE, BrokerImage, MetadataImage
from barnabas.metadata.update import MetadataUpdate, TopicEntry, UpdateReceiver, parts_of_update
from metadata.images import image, topic

NAMES = st.sampled_from(["a", "b", "c", "d"])
CONFIG = st.dictionaries(st.sampled_from(["retention.ms", "segment.bytes"]), st.sampled_from(["1", "2"]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("topic"), NAMES, st.integers(1, 5)),
        st.tuples(st.just("no topic"), NAMES),
        st.tuples(st.just("topic config"), NAMES, CONFIG),
        st.tuples(st.just("broker config"), st.sampled_from(["", "1"]), CONFIG),
        st.tuples(st.just("broker"), st.integers(1, 3), st.integers(1, 9)),
        st.tuples(st.just("no broker"), st.integers(1, 3)),
    ),
    max_size=20,
)


def content(image: MetadataImage) -> dict[str, Any]:
    """Returns the values of an image, without what it has computed from them."""
    names = ("cluster_id", "version", "controller_id", "controller_epoch", "brokers", "topics")
    return {name: getattr(image, name) for name in (*names, "topic_configs", "broker_configs")}


def changed(base: MetadataImage, steps: list[tuple[Any, ...]], *, controller_epoch: int = 1) -> MetadataChange:
    """Returns the image after the steps, with its difference."""
    delta = MetadataDelta(base)
    delta.cluster_id, delta.controller_id, delta.controller_epoch = "cluster", 1, controller_epoch  # type: ignore[assignment]
    for what, name, *rest in steps:
        if what == "topic":
            delta.put_topic(topic(name, rest[0], partitions=rest[0]))
        elif what == "no topic":
            delta.remove_topic(name)
        elif what == "topic config":
            delta.set_topic_config(name, rest[0])
        elif what == "broker config":
            delta.set_broker_config(name, rest[0])
        elif what == "broker":
            delta.put_broker(BrokerImage(name, rest[0], ()))
        else:
            delta.remove_broker(name)
    return delta.apply(base.version + 1)


@given(STEPS, STEPS, st.integers(1, 6))
def test_an_update_leads_to_the_same_image_in_parts_of_any_size(
    first: list[tuple[Any, ...]], second: list[tuple[Any, ...]], weight: int
) -> None:
    base = changed(EMPTY_IMAGE, first).image
    change = changed(base, second)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update_module, "PART_WEIGHT_MAX", weight)
        for start, since in ((EMPTY_IMAGE, None), (base, change._replace(image=base)), (base, None)):
            receiver = UpdateReceiver(start)
            found = [receiver.receive(part) for part in parts_of_update(change.image, since)]
            assert found[:-1] == [None] * (len(found) - 1), "the image changes with the last part"
            assert content(receiver.image) == content(change.image)
            assert found[-1] is not None
            topics = {name for name in "abcd" if start.topics.get(name) != change.image.topics.get(name)}
            assert found[-1].topics >= topics


def test_parts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_module, "PART_WEIGHT_MAX", 10)
    topics = [topic(f"t{number}", number, partitions=4) for number in range(10)]
    large = image(*topics, topic("huge", 99, partitions=50))
    parts = list(parts_of_update(large, None))
    assert [part.part for part in parts] == list(range(len(parts)))
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
    topics_of = [[entry.topic for entry in part.entries if isinstance(entry, TopicEntry)] for part in parts]
    weights = [sum(len(topic.partitions) for topic in topics if topic is not None) for topics in topics_of]
    assert max(weights) == 50
    assert all(weight <= 10 for weight in weights if weight != 50)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[MetadataUpdate]:
    monkeypatch.setattr(update_module, "PART_WEIGHT_MAX", 1)
    parts = list(parts_of_update(image(topic("a"), topic("b", 2)), None))
    assert len(parts) == 4
    return parts


def test_a_lost_part_leaves_the_image(parts: list[MetadataUpdate]) -> None:
    receiver = UpdateReceiver(EMPTY_IMAGE)
    assert [receiver.receive(part) for part in (*parts[:1], *parts[2:])] == [None] * 3
    assert receiver.image is EMPTY_IMAGE
    assert [receiver.receive(part) is not None for part in parts] == [False, False, False, True]


def test_a_part_that_comes_twice_or_late_changes_nothing_more(parts: list[MetadataUpdate]) -> None:
    receiver = UpdateReceiver(EMPTY_IMAGE)
    for part in parts:
        receiver.receive(part)
    after = receiver.image
    for part in (parts[-1], *parts):
        assert receiver.receive(part) is None
    assert receiver.image is after


def test_an_update_from_another_version_is_left_out() -> None:
    base = image(topic("a"))
    change = changed(changed(base, []).image, [("topic", "b", 1)])
    receiver = UpdateReceiver(base)
    (part,) = parts_of_update(change.image, change._replace(image=changed(base, []).image))
    assert receiver.receive(part) is None
    assert receiver.image is base


def test_parts_of_the_controller_before_are_not_mixed_with_those_of_the_next(parts: list[MetadataUpdate]) -> None:
    receiver = UpdateReceiver(EMPTY_IMAGE)
    receiver.receive(parts[0])
    successor = parts[1]._replace(controller_epoch=parts[1].controller_epoch + 1)
    assert receiver.receive(successor) is None
    assert receiver.controller_epoch == successor.controller_epoch
    with pytest.raises(AssertionError):
        receiver.receive(parts[2])
