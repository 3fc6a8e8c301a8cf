"""The publisher and brokers that restart, whose messages are lost, doubled and late: all end with its image."""

import random
from typing import Any

import pytest

from barnabas.controller.metadata_publisher import MetadataPublisher
from barnabas.metadata import update as update_module
from barnabas.metadata.delta import MetadataChange
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.update import MetadataUpdate, UpdateReceiver
from metadata.test_update import changed, content

BROKERS = (1, 2, 3)


def registered(*node_ids: int) -> MetadataImage:
    return changed(EMPTY_IMAGE, [("broker", node_id, 1) for node_id in node_ids]).image


def deliver(publisher: MetadataPublisher, receiver: UpdateReceiver, node_id: Any) -> list[MetadataUpdate]:
    """Sends updates until the broker needs none, and returns them."""
    sent = []
    while (update := publisher.next_update(node_id)) is not None:
        sent.append(update)
        receiver.receive(update)
        publisher.acknowledged(node_id, update, receiver.image.version)
    return sent


def test_a_new_broker_gets_everything_and_then_differences() -> None:
    first = changed(registered(1), [("topic", "a", 3), ("topic", "b", 1)])
    publisher, receiver = MetadataPublisher(first.image), UpdateReceiver(EMPTY_IMAGE)
    assert [update.from_version for update in deliver(publisher, receiver, 1)] == [0]
    second = changed(first.image, [("topic", "c", 1)])
    publisher.image_changed(second)
    (update,) = deliver(publisher, receiver, 1)
    assert (update.from_version, [entry.name for entry in update.entries]) == (first.image.version, ["c"])  # type: ignore[union-attr]
    assert content(receiver.image) == content(second.image)


def test_a_slow_broker_gets_the_newest_state_of_all_changes_at_once() -> None:
    image = registered(1)
    publisher, receiver = MetadataPublisher(image), UpdateReceiver(EMPTY_IMAGE)
    slow = publisher.next_update(1)  # type: ignore[arg-type]
    assert slow is not None
    for number in range(100):
        change = changed(image, [("topic", "a", number % 4 + 1), ("topic", "b" if number % 2 else "c", 1)])
        image = change.image
        publisher.image_changed(change)
        assert publisher.next_update(1) is None, "one update is in flight at a time"  # type: ignore[arg-type]
    receiver.receive(slow)
    publisher.acknowledged(1, slow, receiver.image.version)  # type: ignore[arg-type]
    (update,) = deliver(publisher, receiver, 1)
    assert len(update.entries) == 3
    assert content(receiver.image) == content(image)


def test_a_broker_with_another_version_gets_everything() -> None:
    change = changed(registered(1), [("topic", "a", 1)])
    publisher, receiver = MetadataPublisher(change.image), UpdateReceiver(EMPTY_IMAGE)
    deliver(publisher, receiver, 1)
    change = changed(change.image, [("topic", "b", 1)])
    publisher.image_changed(change)
    receiver = UpdateReceiver(EMPTY_IMAGE)  # it has lost its image without a new registration
    assert [update.from_version for update in deliver(publisher, receiver, 1)] == [change.image.version - 1, 0]
    assert content(receiver.image) == content(change.image)


def test_who_is_not_registered_gets_nothing() -> None:
    publisher = MetadataPublisher(registered(1))
    assert publisher.next_update(2) is None  # type: ignore[arg-type]
    publisher.image_changed(changed(registered(1), [("no broker", 1)]))
    assert publisher.next_update(1) is None  # type: ignore[arg-type]


def test_an_answer_to_the_registration_before_is_ignored() -> None:
    image = registered(1)
    publisher = MetadataPublisher(image)
    old = publisher.next_update(1)  # type: ignore[arg-type]
    assert old is not None
    change = changed(image, [("broker", 1, 2)])
    publisher.image_changed(change)
    publisher.acknowledged(1, old, old.version)  # type: ignore[arg-type]
    update = publisher.next_update(1)  # type: ignore[arg-type]
    assert update is not None
    assert (update.from_version, update.version) == (0, change.image.version)


class Network:
    """Messages between a publisher and brokers, each of which may be lost, doubled or late."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.epochs = dict.fromkeys(BROKERS, 1)
        self.image = registered(*BROKERS)
        self.publisher = MetadataPublisher(self.image)
        self.receivers = {node_id: UpdateReceiver(EMPTY_IMAGE) for node_id in BROKERS}
        self.requests: list[tuple[int, MetadataUpdate]] = []
        self.answers: list[tuple[int, MetadataUpdate, int | None]] = []

    def change(self, steps: list[tuple[Any, ...]]) -> None:
        change: MetadataChange = changed(self.image, steps)
        self.image = change.image
        self.publisher.image_changed(change)

    def step(self) -> None:
        choice = self.random.random()
        node_id = self.random.choice(BROKERS)
        if choice < 0.3:
            name = self.random.choice("abcdef")
            steps = [("topic", name, self.random.randint(1, 6)), ("no topic", self.random.choice("abcdef"))]
            self.change(self.random.sample(steps, self.random.randint(1, 2)))
        elif choice < 0.33:  # a restart: the process has no image and registers again
            self.epochs[node_id] += 1
            self.receivers[node_id] = UpdateReceiver(EMPTY_IMAGE)
            self.change([("broker", node_id, self.epochs[node_id])])
        elif choice < 0.6:
            self.send(node_id)
        elif choice < 0.8 and self.requests:
            self.arrive(doubled=self.random.random() < 0.1, lost=self.random.random() < 0.1)
        elif self.answers:
            self.answered(self.random.randrange(len(self.answers)))

    def send(self, node_id: Any) -> None:
        update = self.publisher.next_update(node_id)
        if update is not None:
            self.requests.append((node_id, update))

    def arrive(self, *, doubled: bool = False, lost: bool = False) -> None:
        index = self.random.randrange(len(self.requests))
        node_id, update = self.requests[index]
        if not doubled:
            del self.requests[index]
        if lost:
            self.answers.append((node_id, update, None))
            return
        receiver = self.receivers[node_id]
        before = receiver.image.version
        receiver.receive(update)
        assert receiver.image.version >= before, "a broker's image never goes back"
        if not doubled:
            self.answers.append((node_id, update, receiver.image.version))

    def answered(self, index: int) -> None:
        node_id, update, version = self.answers.pop(index)
        if version is None:
            self.publisher.failed(node_id, update)  # type: ignore[arg-type]
        else:
            self.publisher.acknowledged(node_id, update, version)  # type: ignore[arg-type]

    def calm_down(self) -> None:
        """Delivers all that is under way, and what is sent then."""
        while True:
            while self.requests:
                self.arrive()
            while self.answers:
                self.answered(0)
            for node_id in BROKERS:
                self.send(node_id)
            if not self.requests:
                return


@pytest.mark.parametrize("seed", range(200))
def test_every_broker_ends_with_the_image_of_the_publisher(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_module, "PART_WEIGHT_MAX", 4)
    network = Network(seed)
    for _ in range(300):
        network.step()
    network.calm_down()
    for receiver in network.receivers.values():
        assert content(receiver.image) == content(network.image)
