"""Any sequence of writes: what a session that catches up step by step sees is what a fresh one reads, and what a plain
dictionary would hold."""

import tempfile
from pathlib import Path
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.registry import (
    AddPartitions,
    BrokerRegistration,
    CreateTopic,
    DeleteTopic,
    Registry,
    SetBrokerConfig,
    SetPartition,
    SetTopicConfig,
)

names = st.sampled_from(["a", "b", "c"])
configs = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["", "1", "ü"]), max_size=2)
ids = st.lists(st.integers(1, 5), unique=True, min_size=1, max_size=3).map(tuple)
unsettled = st.just(()) | ids
partitions = st.builds(
    PartitionImage,
    *(st.integers(-1, 5), st.integers(0, 9), ids, ids | st.just(()), st.integers(0, 9)),
    *(unsettled, unsettled, unsettled, unsettled),
)


class RegistryModel(RuleBasedStateMachine):
    """Subclasses have a store."""

    def open(self) -> Registry:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.writer = self.open()
        self.follower = self.open()
        assert self.writer.register_broker(BrokerRegistration(1, {UUID(int=1): "/data"}, ())) is not None
        self.epoch = self.writer.elect_controller() or 0
        self.followed: MetadataImage = self.follower.load().image
        self.topics: dict[str, TopicImage] = {}
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.next_id = 0

    def write(self, *changes: object, expected: bool) -> None:
        assert self.writer.write(changes, controller_epoch=self.epoch) is expected  # type: ignore[arg-type]

    @rule(name=names, given=st.lists(partitions, min_size=1, max_size=3).map(tuple), config=configs)
    def create(self, name: str, given: tuple[PartitionImage, ...], config: dict[str, str]) -> None:
        self.next_id += 1
        topic = TopicImage(name, UUID(int=self.next_id), given)
        free = name not in self.topics
        self.write(CreateTopic(name, topic.topic_id, given, config), expected=free)
        if free:
            self.topics[name] = topic
            self.topic_configs[name] = config

    @rule(name=names)
    def delete(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        self.topic_configs.pop(name, None)
        self.write(DeleteTopic(name, topic.topic_id if topic else UUID(int=0)), expected=topic is not None)

    @rule(name=names, given=st.lists(partitions, min_size=1, max_size=2).map(tuple), off=st.sampled_from([0, 0, 1]))
    def grow(self, name: str, given: tuple[PartitionImage, ...], off: int) -> None:
        topic = self.topics.get(name)
        first = len(topic.partitions) + off if topic else 0
        fits = topic is not None and not off
        self.write(AddPartitions(name, topic.topic_id if topic else UUID(int=0), first, given), expected=fits)
        if topic is not None and fits:
            self.topics[name] = topic._replace(partitions=topic.partitions + given)

    @rule(name=names, given=partitions, number=st.integers(0, 2), off=st.sampled_from([0, 0, 1]))
    def change(self, name: str, given: PartitionImage, number: int, off: int) -> None:
        topic = self.topics.get(name)
        if topic is None or number >= len(topic.partitions):
            self.write(SetPartition(name, UUID(int=0), number, given, 0), expected=False)
            return
        epoch = topic.partitions[number].partition_epoch + off
        self.write(SetPartition(name, topic.topic_id, number, given, epoch), expected=not off)
        if not off:
            changed = list(topic.partitions)
            changed[number] = given
            self.topics[name] = topic._replace(partitions=tuple(changed))

    @rule(name=names, config=configs)
    def configure_topic(self, name: str, config: dict[str, str]) -> None:
        self.write(SetTopicConfig(name, config), expected=name in self.topics)
        if name in self.topics:
            self.topic_configs[name] = config

    @rule(name=st.sampled_from(["", "1"]), config=configs)
    def configure_broker(self, name: str, config: dict[str, str]) -> None:
        self.write(SetBrokerConfig(name, config), expected=True)
        self.broker_configs[name] = config

    @rule(config=configs)
    def fail_in_the_middle(self, config: dict[str, str]) -> None:
        self.write(SetBrokerConfig("", config), DeleteTopic("missing", UUID(int=0)), expected=False)

    @rule()
    def follow(self) -> None:
        change = self.follower.load(self.followed)
        before, self.followed = self.followed, change.image
        for name in {*before.topics, *self.followed.topics} - change.topics:
            assert before.topics[name] == self.followed.topics[name], "a change that is not named"
        self.check(self.followed)

    @precondition(lambda self: self.next_id)
    @rule()
    def restart(self) -> None:
        self.writer.abandon()
        self.writer = self.open()
        assert self.writer.register_broker(BrokerRegistration(1, {UUID(int=1): "/data"}, ())) is not None
        epoch = self.writer.elect_controller()
        assert epoch == self.epoch + 1
        self.epoch = epoch

    @precondition(lambda self: self.next_id)
    @rule()
    def resign(self) -> None:
        self.writer.resign()
        assert self.follower.load().image.controller_id == -1
        epoch = self.writer.elect_controller()
        assert epoch == self.epoch + 1
        self.epoch = epoch

    @invariant()
    def a_fresh_look_shows_the_model(self) -> None:
        self.check(self.writer.load().image)

    def check(self, image: MetadataImage) -> None:
        assert image.topics == self.topics
        assert image.topic_configs == {name: config for name, config in self.topic_configs.items() if config}
        assert image.broker_configs == {name: config for name, config in self.broker_configs.items() if config}

    def teardown(self) -> None:
        self.writer.close()
        self.follower.close()


class EmbeddedModel(RegistryModel):
    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        super().__init__()

    def open(self) -> Registry:
        return EmbeddedRegistry(Path(self.directory.name) / "registry.db")

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


TestEmbeddedModel = EmbeddedModel.TestCase
TestEmbeddedModel.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
