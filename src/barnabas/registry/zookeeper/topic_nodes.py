"""The operations that bring the znodes of topics and settings from one image to the next.

A topic is there when its `partitions` node has a marker, so the nodes of many partitions may be made by several
transactions before the one that sets it, and deleted after the one that removes it.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Final

from barnabas.metadata.image import MetadataImage, TopicImage
from barnabas.registry.zookeeper import znodes
from barnabas.registry.zookeeper.session import Create, Delete, Operation, Set
from barnabas.registry.zookeeper.znodes import TopicMarker, Touched

__all__ = [
    "TopicOperations",
    "batches",
    "image_nodes",
    "notifications",
    "removal",
    "topic_operations",
    "uncertain_paths",
]

_BATCH_BYTES_MAX: Final = 512 * 1024
"""The bound of a transaction, which ZooKeeper's jute.maxbuffer of 1 MB has to hold with its frame."""
_FRAME_BYTES: Final = 48
"""The bytes of an operation beside its path and data, with the ACL of a new node."""


class TopicOperations:
    """The operations of a write, in their order."""

    def __init__(self) -> None:
        self.left_over: list[str] = []
        """The nodes to delete first, with all below them: a former write was interrupted."""
        self.answered: list[str] = []
        """The requests of other programs that `decisive` removes."""
        self.prepared: list[Operation] = []
        """Nobody sees them before `decisive`."""
        self.decisive: list[Operation] = []
        self.descriptive: list[Operation] = []
        """Tells other programs of what is decided."""
        self.removed: list[TopicImage] = []
        """The topics of which nothing is to be left."""


def uncertain_paths(before: MetadataImage, after: MetadataImage, touched: Touched) -> list[str]:
    """Returns the nodes of which `topic_operations` must know whether they are there."""
    paths = [*map(znodes.broker_config_path, touched.broker_configs)]
    paths += map(znodes.topic_config_path, touched.topic_configs)
    for name in touched.topics:
        old, new = before.topics.get(name), after.topics.get(name)
        if old is None or new is None:
            paths += (znodes.topic_path(name), znodes.partitions_path(name), znodes.topic_config_path(name))
            paths.append(znodes.delete_topic_path(name))
        else:
            paths += (znodes.partition_path(name, index) for index in range(len(old.partitions), len(new.partitions)))
    return paths


def topic_operations(
    before: MetadataImage, after: MetadataImage, touched: Touched, exists: Callable[[str], bool]
) -> TopicOperations:
    """`exists` says whether one of the `uncertain_paths` is there."""
    found = TopicOperations()
    for name in sorted(touched.topics):
        old, new = before.topics.get(name), after.topics.get(name)
        if old is not None and new is not None:
            assert old.topic_id == new.topic_id, "a topic is not deleted and created by one write"
            _change(old, new, after.controller_epoch, found, exists)
        elif new is not None:
            _create(new, after.controller_epoch, found, exists)
        elif old is not None:
            found.decisive.append(Set(znodes.partitions_path(name), b""))
            found.removed.append(old)
            if exists(request := znodes.delete_topic_path(name)):  # it must not hit the next topic of that name
                found.answered.append(request)
                found.decisive.append(Delete(request))
    created = touched.topics & (after.topics.keys() - before.topics.keys())
    for name in sorted(touched.topic_configs | touched.topics):
        path = znodes.topic_config_path(name)
        if name not in after.topics:
            if exists(path):
                found.decisive.append(Delete(path))
        elif name in touched.topic_configs or name in created:
            found.decisive.append(_config(path, after.topic_config(name), exists))
    for name in sorted(touched.broker_configs):
        found.decisive.append(_config(znodes.broker_config_path(name), after.broker_config(name), exists))
    return found


def _create(topic: TopicImage, controller_epoch: int, found: TopicOperations, exists: Callable[[str], bool]) -> None:
    path, partitions = znodes.topic_path(topic.name), znodes.partitions_path(topic.name)
    if exists(partitions):
        found.left_over.append(partitions)
    assignment = znodes.encode_assignment(topic)
    if exists(path):  # another program asks for this topic, and must not have to ask again if the write is interrupted
        found.decisive.append(Set(path, assignment))
    else:
        found.prepared.append(Create(path, assignment))
    found.prepared.append(Create(partitions))
    found.prepared.extend(_new_partitions(topic, 0, controller_epoch))
    found.decisive.append(Set(partitions, TopicMarker.of(topic).encoded()))


def _change(
    old: TopicImage, new: TopicImage, controller_epoch: int, found: TopicOperations, exists: Callable[[str], bool]
) -> None:
    name, first = new.name, len(old.partitions)
    found.decisive.extend(
        Set(znodes.state_path(name, index), znodes.encode_partition(partition, controller_epoch))
        for index, (partition, former) in enumerate(zip(new.partitions, old.partitions))
        if partition is not former
    )
    if len(new.partitions) > first:
        added = (znodes.partition_path(name, index) for index in range(first, len(new.partitions)))
        found.left_over.extend(filter(exists, added))
        found.prepared.extend(_new_partitions(new, first, controller_epoch))
        found.decisive.append(Set(znodes.partitions_path(name), TopicMarker.of(new).encoded()))
    assignment = znodes.encode_assignment(new)
    if assignment != znodes.encode_assignment(old):
        found.descriptive.append(Set(znodes.topic_path(name), assignment))


def _new_partitions(topic: TopicImage, first: int, controller_epoch: int) -> Iterable[Create]:
    return chain.from_iterable(
        (
            Create(znodes.partition_path(topic.name, index)),
            Create(
                znodes.state_path(topic.name, index),
                znodes.encode_partition(topic.partitions[index], controller_epoch),
            ),
        )
        for index in range(first, len(topic.partitions))
    )


def image_nodes(image: MetadataImage) -> list[Create]:
    """Returns the nodes of all that an image has, each after its parent."""
    found = [
        Create(znodes.registration_path(node_id), znodes.encode_registration(broker))
        for node_id, broker in image.brokers.items()
    ]
    for name, topic in image.topics.items():
        partitions = znodes.partitions_path(name)
        found.append(Create(znodes.topic_path(name), znodes.encode_assignment(topic)))
        found.append(Create(partitions, TopicMarker.of(topic).encoded()))
        found += _new_partitions(topic, 0, image.controller_epoch)
        found.append(Create(znodes.topic_config_path(name), znodes.encode_config(image.topic_config(name))))
    found += (
        Create(znodes.broker_config_path(name), znodes.encode_config(config))
        for name, config in image.broker_configs.items()
    )
    return found


def removal(topic: TopicImage) -> list[Operation]:
    """Returns the operations that delete the nodes of a topic."""
    found: list[Operation] = []
    for index in range(len(topic.partitions)):
        found += (Delete(znodes.state_path(topic.name, index)), Delete(znodes.partition_path(topic.name, index)))
    return [*found, Delete(znodes.partitions_path(topic.name)), Delete(znodes.topic_path(topic.name))]


def _config(path: str, config: Mapping[str, str], exists: Callable[[str], bool]) -> Operation:
    data = znodes.encode_config(config)
    return Set(path, data) if exists(path) else Create(path, data)


def notifications(before: MetadataImage, after: MetadataImage, touched: Touched) -> Iterable[Operation]:
    """Yields the operations that tell other programs of changed settings. As with Kafka, those of a topic that is made
    or deleted are no change."""
    names = touched.topic_configs & before.topics.keys() & after.topics.keys()
    paths = (
        *map(znodes.topic_config_path, sorted(names)),
        *map(znodes.broker_config_path, sorted(touched.broker_configs)),
    )
    for path in paths:
        yield Create(znodes.CONFIG_CHANGE, znodes.encode_config_change(path, after.controller_epoch), numbered=True)


def batches(operations: Iterable[Operation]) -> list[list[Operation]]:
    """Returns the operations in parts, each of which fits into one transaction."""
    found: list[list[Operation]] = [[]]
    size = 0
    for operation in operations:
        size += _size_of(operation)
        if size > _BATCH_BYTES_MAX and found[-1]:
            found.append([])
            size = _size_of(operation)
        found[-1].append(operation)
    return found


def _size_of(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | Set) else b""
    return len(operation.path) + len(data) + _FRAME_BYTES
