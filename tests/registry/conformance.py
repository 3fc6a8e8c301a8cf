"""The contract of every registry, as functions that a test runs against each implementation.

    @pytest.mark.parametrize("check", CHECKS)
    def test_conforms(check, tmp_path):
        check(MyHarness(tmp_path))

Each check gets a harness over an empty store. It speaks only of what the interface promises, so that a store with
ephemeral nodes, one-shot watches and versioned writes passes as well as one with rows.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol
from uuid import UUID

import pytest

from barnabas.config.endpoints import Endpoint
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage
from barnabas.registry.registry import (
    AddPartitions,
    BrokerRegistration,
    Change,
    CreateTopic,
    DeleteTopic,
    LastRegistration,
    LeaderChange,
    Registry,
    RegistryOutdated,
    RemoveBroker,
    SetBrokerConfig,
    SetFenced,
    SetPartition,
    SetTopicConfig,
    Superseded,
)
from barnabas.types import BrokerId, LeaderEpoch

__all__ = ["CHECKS", "Harness"]


class Harness(Protocol):
    """One store and the means to let its sessions end."""

    def open(self) -> Registry:
        """Another session with the same store, as another broker process would have."""

    def kill(self, process: str) -> None:
        """Let the sessions of the brokers that registered with this process end, so that the store is certain of it."""


class Processes:
    """The processes of brokers, which end as a test says."""

    def __init__(self) -> None:
        self.killed: set[str] = set()

    def is_running(self, process: str) -> bool:
        return process not in {"", *self.killed}

    def kill(self, process: str) -> None:
        self.killed.add(process)


_ID = UUID(int=1)
_OTHER_ID = UUID(int=2)
_ONE, _TWO = BrokerId(1), BrokerId(2)
_PARTITION = PartitionImage(
    leader=_ONE, leader_epoch=LeaderEpoch(0), replicas=(_ONE, _TWO), isr=(_ONE, _TWO), partition_epoch=0
)


_INTERNAL = Endpoint("INTERNAL", "SASL_PLAINTEXT", "127.0.0.1", 9094)


def _registration(node_id: int, *directory_ids: UUID, process: str = "", unclean: bool = False) -> BrokerRegistration:
    endpoints = (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092), Endpoint("V6", "PLAINTEXT", "::1", 9093))
    directories = {directory_id: f"/data/{directory_id}" for directory_id in directory_ids or (UUID(int=node_id),)}
    process = process or f"process {node_id}"
    return BrokerRegistration(node_id, directories, endpoints, f"rack {node_id}", _INTERNAL, process, unclean)


def _registered(harness: Harness, registration: BrokerRegistration) -> tuple[Registry, int]:
    """Returns a session and the epoch of its broker."""
    registry = harness.open()
    epoch = registry.register_broker(registration)
    assert epoch is not None
    return registry, epoch


def _controller(harness: Harness, node_id: int = 1) -> tuple[Registry, int]:
    registry, _ = _registered(harness, _registration(node_id))
    epoch = registry.elect_controller()
    assert epoch is not None
    return registry, epoch


def _image(registry: Registry, previous: MetadataImage | None = None) -> MetadataImage:
    return registry.load(previous).image


def _broker(registry: Registry, node_id: BrokerId = _ONE) -> BrokerImage:
    return _image(registry).brokers[node_id]


# -- identity and sessions --------------------------------------------------------------------------------------------


def cluster_id_is_one_for_all_and_for_ever(harness: Harness) -> None:
    first = harness.open()
    cluster_id = _image(first).cluster_id
    assert len(cluster_id) == 22
    assert _image(harness.open()).cluster_id == cluster_id
    first.close()
    assert _image(harness.open()).cluster_id == cluster_id


def the_secret_is_one_for_all_and_for_ever(harness: Harness) -> None:
    first = harness.open()
    secret = first.cluster_secret()
    assert len(secret) == 32
    assert harness.open().cluster_secret() == secret
    first.close()
    assert harness.open().cluster_secret() == secret


def a_registered_broker_is_seen_by_all(harness: Harness) -> None:
    two = harness.open()
    before = _image(two)
    _, epoch = _registered(harness, _registration(1))
    change = two.load(before)
    assert change.brokers == {1}
    assert change.image.brokers == {
        1: BrokerImage(_ONE, epoch, _registration(1).endpoints, "rack 1", False, _INTERNAL, "process 1")
    }
    assert _image(harness.open()).brokers == change.image.brokers


def a_broker_without_rack_and_peers_is_one(harness: Harness) -> None:
    one, _ = _registered(harness, _registration(1)._replace(rack=None, peer_endpoint=None))
    assert (_broker(one).rack, _broker(one).peer_endpoint) == (None, None)


def a_broker_beside_others_is_fenced_until_the_controller_ends_that(harness: Harness) -> None:
    one, controller_epoch = _controller(harness)
    assert not _broker(one).fenced, "nobody else could lead"
    two, epoch = _registered(harness, _registration(2))
    assert _broker(one, _TWO).fenced
    before = _image(two)
    assert not one.write([SetFenced(_TWO, epoch - 1, False)], controller_epoch=controller_epoch)
    assert not one.write([SetFenced(BrokerId(3), epoch, False)], controller_epoch=controller_epoch)
    assert one.load(before).image is before
    assert one.write([SetFenced(_TWO, epoch, False)], controller_epoch=controller_epoch)
    change = two.load(before)
    assert change.brokers == {2}
    assert not change.image.brokers[_TWO].fenced
    assert one.write([SetFenced(_TWO, epoch, True)], controller_epoch=controller_epoch)
    assert _broker(two, _TWO) == before.brokers[_TWO]


def a_broker_that_returns_beside_others_is_fenced(harness: Harness) -> None:
    one, _ = _controller(harness)
    _registered(harness, _registration(2))
    again, _ = _registered(harness, _registration(1))
    assert _broker(again).fenced, "another one may have led meanwhile"
    one.close()
    again.close()
    two, _ = _registered(harness, _registration(2))
    assert _broker(two, _TWO).fenced


def a_node_id_belongs_to_one_broker_at_a_time(harness: Harness) -> None:
    one, epoch = _registered(harness, _registration(1, _ID))
    two = harness.open()
    other = _registration(1, _OTHER_ID, process="process of another")
    assert two.register_broker(other) is None
    assert _broker(one).epoch == epoch
    assert one.directories(1).keys() == {_ID}
    harness.kill("process 1")
    assert two.register_broker(other) is not None


def a_copy_of_its_directory_is_not_the_broker(harness: Harness) -> None:
    one, epoch = _registered(harness, _registration(1))
    two = harness.open()
    assert two.register_broker(_registration(1, process="process in a copy")) is None
    assert _broker(one) == _broker(two)
    assert _broker(one).epoch == epoch


def the_incarnation_is_one_for_all(harness: Harness) -> None:
    one, two = harness.open(), harness.open()
    assert one.incarnation() == two.incarnation() != ""
    one.register_broker(_registration(1))
    two.close()
    assert harness.open().incarnation() == one.incarnation()


def a_node_id_is_free_after_its_session(harness: Harness) -> None:
    one, _ = _registered(harness, _registration(1, _ID))
    one.end_session()
    _registered(harness, _registration(1, _OTHER_ID))


def a_broker_is_known_by_any_of_its_directories(harness: Harness) -> None:
    one, first = _registered(harness, _registration(1, _ID, _OTHER_ID))
    _, second = _registered(harness, _registration(1, _OTHER_ID))
    assert second > first
    assert _broker(one).epoch == second


def directories_are_remembered_after_the_session(harness: Harness) -> None:
    one, two = harness.open(), harness.open()
    assert one.directories(1) == {}
    assert one.register_broker(_registration(1, _ID, _OTHER_ID)) is not None
    one.end_session()
    assert two.directories(1) == {_ID: f"/data/{_ID}", _OTHER_ID: f"/data/{_OTHER_ID}"}
    assert two.directories(2) == {}
    assert two.register_broker(_registration(1, _OTHER_ID)) is not None
    assert one.directories(1) == {_OTHER_ID: f"/data/{_OTHER_ID}"}, "those of the last registration"


def the_last_registration_is_remembered_after_the_session(harness: Harness) -> None:
    one, two = harness.open(), harness.open()
    assert one.last_registration(1) == LastRegistration()
    epoch = one.register_broker(_registration(1)._replace(registration_id="first"))
    assert epoch is not None
    one.end_session()
    assert two.last_registration(1) == LastRegistration("first", epoch)
    assert two.last_registration(2) == LastRegistration()
    following = two.register_broker(_registration(1)._replace(registration_id="second"))
    assert following is not None
    assert two.last_registration(1) == LastRegistration("second", following)


def a_registration_may_be_bound_to_the_state_that_it_was_decided_upon(harness: Harness) -> None:
    one, controller_epoch = _controller(harness)
    two = harness.open()
    seen = _image(two).version
    assert one.write([SetBrokerConfig("", {"a": "1"})], controller_epoch=controller_epoch)
    before = _image(one)
    with pytest.raises(Superseded):
        two.register_broker(_registration(2), upon=seen)
    assert one.load(before).image is before, "nothing is written"
    assert two.register_broker(_registration(2), upon=_image(two).version) is not None


def a_broker_with_an_old_directory_names_its_replicas(harness: Harness) -> None:
    one, _ = _controller(harness)
    registration = _registration(2, _ID)._replace(lost_replicas=("t-1",), lacks_records=True)
    _registered(harness, registration)
    assert _broker(one, _TWO).returned == "lost:t-1", "although no directory is missing"


def a_removed_broker_is_gone_until_it_registers_again(harness: Harness) -> None:
    one, controller_epoch = _controller(harness)
    two, epoch = _registered(harness, _registration(2))
    assert one.write([SetFenced(_TWO, epoch, False)], controller_epoch=controller_epoch)
    assert not one.write([RemoveBroker(_TWO, epoch)], controller_epoch=controller_epoch), "it is live"
    two.end_session()
    before = _image(one)
    assert not one.write([RemoveBroker(_TWO, epoch - 1)], controller_epoch=controller_epoch)
    assert not one.write([RemoveBroker(BrokerId(3), epoch)], controller_epoch=controller_epoch)
    assert one.load(before).image is before
    assert one.write([RemoveBroker(_TWO, epoch)], controller_epoch=controller_epoch)
    change = one.load(before)
    assert (set(change.image.brokers), change.brokers) == ({1}, {2})
    assert two.directories(2) == {UUID(int=2): f"/data/{UUID(int=2)}"}
    _, following = _registered(harness, _registration(2, UUID(int=9)))
    assert following > epoch
    assert _broker(one, _TWO).returned == "lost"


def a_broker_that_may_have_lost_records_says_so_until_it_is_taken_in(harness: Harness) -> None:
    one, controller_epoch = _controller(harness)
    _registered(harness, _registration(2, _ID, _OTHER_ID))
    assert _broker(one, _TWO).returned == ""
    _, epoch = _registered(harness, _registration(2, _ID, _OTHER_ID, unclean=True))
    assert _broker(one, _TWO).returned == "unclean"
    assert one.write([SetFenced(_TWO, epoch, True)], controller_epoch=controller_epoch)
    assert _broker(one, _TWO).returned == "unclean"
    assert one.write([SetFenced(_TWO, epoch, False)], controller_epoch=controller_epoch)
    assert _broker(one, _TWO).returned == ""
    _registered(harness, _registration(2, _ID))
    assert _broker(one, _TWO).returned == "lost"
    harness.kill("process 2")
    _registered(harness, _registration(2, UUID(int=9), unclean=True))
    assert _broker(one, _TWO).returned == "lost", "that is the worse of both"


def a_broker_that_has_lost_a_directory_names_the_replicas_until_it_is_taken_in(harness: Harness) -> None:
    one, controller_epoch = _controller(harness)
    _registered(harness, _registration(2, _ID, _OTHER_ID)._replace(lost_replicas=("t-1",)))
    assert _broker(one, _TWO).returned == "", "no directory is missing"
    _registered(harness, _registration(2, _ID)._replace(lost_replicas=("t-0",)))
    assert _broker(one, _TWO).returned == "lost:t-0"
    _, epoch = _registered(harness, _registration(2, _ID)._replace(lost_replicas=()))
    assert _broker(one, _TWO).returned == "lost:t-0", "nobody has taken notice yet"
    assert one.write([SetFenced(_TWO, epoch, False)], controller_epoch=controller_epoch)
    _registered(harness, _registration(2, _ID))
    assert _broker(one, _TWO).returned == ""


def a_restarted_broker_takes_over_its_registration(harness: Harness) -> None:
    one, first = _registered(harness, _registration(1))
    harness.kill("process 1")
    two, second = _registered(harness, _registration(1, process="process of today"))
    assert second > first
    assert one.elect_controller() is None, "the older life of the broker has no session"
    assert two.elect_controller() is not None
    assert (_broker(one).epoch, _broker(one).process) == (second, "process of today")


def a_broker_that_leaves_is_fenced_at_once(harness: Harness) -> None:
    one, _ = _registered(harness, _registration(1))
    two = harness.open()
    before = _image(two)
    one.end_session()
    one.end_session()
    change = two.load(before)
    assert change.brokers == {1}
    assert change.image.brokers[_ONE].fenced
    assert change.image.brokers[_ONE].endpoints == _registration(1).endpoints
    assert one.register_broker(_registration(1)) is not None
    assert not _broker(two).fenced
    one.close()
    assert _broker(two).fenced


def an_older_life_cannot_end_the_newer(harness: Harness) -> None:
    one, _ = _registered(harness, _registration(1))
    two, epoch = _registered(harness, _registration(1))
    controller_epoch = two.elect_controller()
    one.set_peer_endpoint(_INTERNAL._replace(port=1))
    one.end_session()
    assert (_broker(two).epoch, _broker(two).fenced, _broker(two).peer_endpoint) == (epoch, False, _INTERNAL)
    assert two.elect_controller() == controller_epoch


def a_dead_broker_is_found_until_it_is_fenced(harness: Harness) -> None:
    one, controller_epoch = _controller(harness)
    _, epoch = _registered(harness, _registration(2))
    assert one.write([SetFenced(_TWO, epoch, False)], controller_epoch=controller_epoch)
    assert one.dead_brokers() == []
    harness.kill("process 2")
    assert one.dead_brokers() == [(_TWO, epoch)]
    assert one.write([SetFenced(_TWO, epoch, True)], controller_epoch=controller_epoch)
    assert one.dead_brokers() == []


def a_session_is_of_one_registration(harness: Harness) -> None:
    one, first = _registered(harness, _registration(1))
    assert one.has_session(_ONE, first)
    assert not one.has_session(_TWO, first)
    two, second = _registered(harness, _registration(1))
    assert (two.has_session(_ONE, first), two.has_session(_ONE, second)) == (False, True)
    harness.kill("process 1")
    assert not harness.open().has_session(_ONE, second)


def a_broker_tells_its_address_later(harness: Harness) -> None:
    one, _ = _registered(harness, _registration(1)._replace(peer_endpoint=None))
    two = harness.open()
    before = _image(two)
    one.set_peer_endpoint(_INTERNAL)
    change = two.load(before)
    assert change.brokers == {1}
    assert change.image.brokers[_ONE] == before.brokers[_ONE]._replace(peer_endpoint=_INTERNAL)


def brokers_are_announced(harness: Harness) -> None:
    one, _ = _controller(harness)
    before = _image(one)
    one.announce_brokers([1, 2, 3])
    change = one.load(before)
    assert change.brokers == {2, 3}
    assert change.image.brokers[_TWO] == BrokerImage(_TWO, 0, (), None, fenced=True)
    assert change.image.brokers[_ONE] == before.brokers[_ONE]
    one.announce_brokers([1, 2, 3])
    assert _image(one).brokers == change.image.brokers
    assert one.dead_brokers() == []
    _, epoch = _registered(harness, _registration(2))
    assert epoch > 0
    assert _broker(one, _TWO).returned == ""
    one.announce_brokers([2])
    assert _broker(one, _TWO).epoch == epoch


def the_first_of_announced_brokers_is_not_alone(harness: Harness) -> None:
    registry = harness.open()
    registry.announce_brokers([1, 2])
    assert registry.register_broker(_registration(1)) is not None
    assert _broker(registry).fenced
    assert registry.elect_controller() is not None, "an announced broker is no controller"


# -- controller -------------------------------------------------------------------------------------------------------


def one_controller_at_a_time(harness: Harness) -> None:
    one, epoch = _controller(harness)
    two = harness.open()
    assert two.elect_controller() is None, "without a session there is no election"
    assert two.register_broker(_registration(2)) is not None
    assert two.elect_controller() is None
    assert one.elect_controller() == epoch
    image = _image(two)
    assert (image.controller_id, image.controller_epoch) == (1, epoch)


def a_fenced_controller_keeps_its_role(harness: Harness) -> None:
    one, epoch = _controller(harness)
    two, _ = _registered(harness, _registration(2))
    assert one.write([SetFenced(_ONE, _broker(one).epoch, True)], controller_epoch=epoch)
    assert two.elect_controller() is None, "it may still be alive"
    assert one.elect_controller() == epoch


def a_dead_controller_is_followed_with_a_larger_epoch(harness: Harness) -> None:
    one, epoch = _controller(harness)
    two, _ = _registered(harness, _registration(2))
    before = _image(two)
    harness.kill("process 1")
    following = two.elect_controller()
    assert following is not None
    assert following > epoch
    image = _image(two, before)
    assert (image.controller_id, image.controller_epoch) == (2, following)
    assert one.elect_controller() is None


def a_controller_that_leaves_frees_the_role(harness: Harness) -> None:
    one, epoch = _controller(harness)
    two, _ = _registered(harness, _registration(2))
    one.end_session()
    assert _image(two).controller_id == -1
    following = two.elect_controller()
    assert following is not None
    assert following > epoch
    assert one.register_broker(_registration(1)) is not None
    one.end_session()
    assert _image(two).controller_id == 2, "only its own role"


def a_controller_that_resigns_frees_the_role(harness: Harness) -> None:
    one, epoch = _controller(harness)
    two, broker_epoch = _registered(harness, _registration(2))
    two.resign()
    assert _image(two).controller_id == 1, "only its own role"
    one.resign()
    assert _image(two).controller_id == -1
    assert one.has_session(BrokerId(2), broker_epoch)
    following = two.elect_controller()
    assert following is not None
    assert following > epoch
    assert not one.write([SetBrokerConfig("", {"a": "1"})], controller_epoch=epoch)
    one.resign()
    assert _image(one).controller_id == 2
    two.resign()
    assert (one.elect_controller() or 0) > following, "the role may come back"


def a_restarted_controller_gets_a_larger_epoch(harness: Harness) -> None:
    _, epoch = _controller(harness)
    _, following = _controller(harness)
    assert following > epoch


def a_controller_that_has_registered_again_is_followed(harness: Harness) -> None:
    """It has the role no longer that it had by its former registration, and not yet by the present one."""
    _, epoch = _controller(harness)
    two, _ = _registered(harness, _registration(2))
    one, _ = _registered(harness, _registration(1))
    following = two.elect_controller()
    assert following is not None
    assert following > epoch
    assert one.elect_controller() is None


def the_former_controller_writes_nothing(harness: Harness) -> None:
    one, epoch = _controller(harness)
    one.end_session()
    two, following = _controller(harness, 2)
    assert not one.write([CreateTopic("t", _ID, (_PARTITION,), {})], controller_epoch=epoch)
    assert _image(one).topics == {}
    assert two.write([CreateTopic("t", _ID, (_PARTITION,), {})], controller_epoch=following)


# -- topics, partitions, settings -------------------------------------------------------------------------------------


def a_topic_is_there_for_all_with_everything(harness: Harness) -> None:
    one, epoch = _controller(harness)
    two = harness.open()
    before = _image(two)
    leaderless = PartitionImage(BrokerId(-1), LeaderEpoch(3), (_TWO, _ONE), (), 7)
    topic = CreateTopic("t", _ID, (_PARTITION, leaderless), {"segment.bytes": "100", "cleanup.policy": ""})
    assert one.write([topic], controller_epoch=epoch)
    for image in (_image(two), _image(two, before), _image(harness.open())):
        assert image.topics["t"].topic_id == _ID
        assert image.topics["t"].partitions == (_PARTITION, leaderless)
        assert image.topic_config("t") == {"segment.bytes": "100", "cleanup.policy": ""}
        assert image.topic_by_id(_ID) == image.topics["t"]
    assert two.load(before).topics == {"t"}


def a_name_is_taken_once(harness: Harness) -> None:
    one, epoch = _controller(harness)
    assert one.write([CreateTopic("t", _ID, (_PARTITION,), {})], controller_epoch=epoch)
    assert not one.write([CreateTopic("t", _OTHER_ID, (_PARTITION,), {})], controller_epoch=epoch)
    assert _image(one).topics["t"].topic_id == _ID


def a_write_is_all_or_nothing(harness: Harness) -> None:
    one, epoch = _controller(harness)
    changes: list[Change] = [CreateTopic("a", _ID, (_PARTITION,), {}), DeleteTopic("missing", _OTHER_ID)]
    before = _image(one)
    assert not one.write(changes, controller_epoch=epoch)
    assert _image(one).topics == {}
    assert one.load(before).image is before


def a_deleted_topic_leaves_nothing(harness: Harness) -> None:
    one, epoch = _controller(harness)
    assert one.write([CreateTopic("t", _ID, (_PARTITION,), {"segment.bytes": "100"})], controller_epoch=epoch)
    before = _image(one)
    assert not one.write([DeleteTopic("t", _OTHER_ID)], controller_epoch=epoch), "another topic of that name"
    assert one.write([DeleteTopic("t", _ID)], controller_epoch=epoch)
    change = one.load(before)
    assert change.image.topics == {}
    assert change.image.topic_config("t") == {}
    assert change.topics == {"t"}
    assert one.write([CreateTopic("t", _OTHER_ID, (_PARTITION,), {})], controller_epoch=epoch)
    assert _image(one).topic_config("t") == {}
    assert _image(one, before).topics["t"].topic_id == _OTHER_ID


def partitions_are_added_behind_the_last(harness: Harness) -> None:
    one, epoch = _controller(harness)
    assert one.write([CreateTopic("t", _ID, (_PARTITION,), {})], controller_epoch=epoch)
    assert not one.write([AddPartitions("t", _ID, 2, (_PARTITION,))], controller_epoch=epoch)
    assert not one.write([AddPartitions("t", _OTHER_ID, 1, (_PARTITION,))], controller_epoch=epoch)
    assert one.write([AddPartitions("t", _ID, 1, (_PARTITION, _PARTITION))], controller_epoch=epoch)
    assert len(_image(one).topics["t"].partitions) == 3


def a_partition_changes_only_at_its_expected_epoch(harness: Harness) -> None:
    one, epoch = _controller(harness)
    assert one.write([CreateTopic("t", _ID, (_PARTITION,), {})], controller_epoch=epoch)
    changed = _PARTITION._replace(leader=_TWO, leader_epoch=LeaderEpoch(1), isr=(_TWO,), partition_epoch=1)
    # Epoch 0 must be a condition like any other, not "no condition".
    assert one.write([SetPartition("t", _ID, 0, changed, 0)], controller_epoch=epoch)
    assert not one.write([SetPartition("t", _ID, 0, _PARTITION, 0)], controller_epoch=epoch)
    assert not one.write([SetPartition("t", _ID, 1, _PARTITION, 0)], controller_epoch=epoch)
    assert not one.write([SetPartition("t", _OTHER_ID, 0, _PARTITION, 1)], controller_epoch=epoch)
    assert _image(one).topics["t"].partitions == (changed,)


def reassignments_and_eligible_leaders_are_kept(harness: Harness) -> None:
    one, epoch = _controller(harness)
    lists = ((_TWO, _ONE), (_ONE,), (_TWO,), (BrokerId(12),))
    unsettled = [_PARTITION._replace(**{name: ids}) for name in PartitionImage._fields[5:] for ids in lists]
    unsettled.append(PartitionImage(*_PARTITION[:5], *lists))
    assert one.write([CreateTopic("t", _ID, tuple(unsettled), {})], controller_epoch=epoch)
    before = _image(one)
    for image in (before, _image(harness.open())):
        assert image.topics["t"].partitions == tuple(unsettled)
    settled = _PARTITION._replace(partition_epoch=1)
    last = len(unsettled) - 1
    assert one.write(
        [SetPartition("t", _ID, 0, unsettled[last]._replace(partition_epoch=1), 0)], controller_epoch=epoch
    )
    assert one.write([SetPartition("t", _ID, last, settled, 0)], controller_epoch=epoch)
    for image in (_image(one, before), _image(harness.open())):
        assert image.topics["t"].partitions[0] == unsettled[last]._replace(partition_epoch=1)
        assert image.topics["t"].partitions[last] == settled


def settings_are_replaced_whole(harness: Harness) -> None:
    one, epoch = _controller(harness)
    assert not one.write([SetTopicConfig("t", {"a": "1"})], controller_epoch=epoch)
    assert one.write([CreateTopic("t", _ID, (_PARTITION,), {"a": "1", "b": "2"})], controller_epoch=epoch)
    changes: list[Change] = [
        SetTopicConfig("t", {"b": "3"}),
        SetBrokerConfig("", {"c": "4"}),
        SetBrokerConfig("1", {"d": "5"}),
    ]
    before = _image(one)
    assert one.write(changes, controller_epoch=epoch)
    change = one.load(before)
    for image in (change.image, _image(harness.open())):
        assert image.topic_config("t") == {"b": "3"}
        assert image.broker_config("") == {"c": "4"}
        assert image.broker_config("1") == {"d": "5"}
    assert change.topics_configured == {"t"}
    assert change.brokers_configured == {"", "1"}
    assert one.write([SetTopicConfig("t", {}), SetBrokerConfig("1", {})], controller_epoch=epoch)
    assert _image(one, change.image).topic_config("t") == {}
    assert _image(harness.open()).broker_config("1") == {}


def an_image_never_changes(harness: Harness) -> None:
    one, epoch = _controller(harness)
    before = _image(one)
    assert one.write([CreateTopic("t", _ID, (_PARTITION,), {"a": "1"})], controller_epoch=epoch)
    after = _image(one, before)
    assert (len(before.topics), len(after.topics)) == (0, 1)
    assert after.version > before.version
    assert one.load(after).image is after, "nothing new is the same image"


def others_hear_of_changes(harness: Harness) -> None:
    one, epoch = _controller(harness)
    two, _ = _registered(harness, _registration(2))
    two.check()
    image = _image(two)
    hints: list[int] = []
    two.watch(lambda: hints.append(1))
    assert one.write([CreateTopic("t", _ID, (_PARTITION,), {})], controller_epoch=epoch)
    two.check()
    assert hints
    assert "t" in _image(two, image).topics


# -- producer ids -----------------------------------------------------------------------------------------------------


def _moved(number: int) -> LeaderChange:
    return LeaderChange(1_000 + number, "t", number, _ONE, _TWO, number, "broker 1: it stops", 7, 9000)


def a_history_of_leaders_is_kept_with_what_moved_them(harness: Harness) -> None:
    one, epoch = _controller(harness)
    assert one.leader_changes(10) == []
    assert one.write([CreateTopic("t", _ID, (_PARTITION,), {})], controller_epoch=epoch, leader_changes=[_moved(1)])
    taken = [CreateTopic("t", _OTHER_ID, (_PARTITION,), {})]
    assert not one.write(taken, controller_epoch=epoch, leader_changes=[_moved(2)])
    assert one.write([DeleteTopic("t", _ID)], controller_epoch=epoch, leader_changes=[_moved(3), _moved(4)])
    two = harness.open()
    assert two.leader_changes(10) == [_moved(1), _moved(3), _moved(4)], "any session reads it"
    assert two.leader_changes(2) == [_moved(3), _moved(4)]


def the_history_of_leaders_is_bounded(harness: Harness) -> None:
    one, epoch = _controller(harness)
    kept = one.max_leader_changes
    for first in (0, kept - 1):
        rows = [_moved(number) for number in range(first, first + kept)]
        assert one.write([SetBrokerConfig("", {"a": str(first)})], controller_epoch=epoch, leader_changes=rows)
    assert one.leader_changes(kept + 1) == [_moved(number) for number in range(kept - 1, 2 * kept - 1)]
    too_many = [_moved(number) for number in range(kept + 1)]
    assert one.write([SetBrokerConfig("", {"a": "1"})], controller_epoch=epoch, leader_changes=too_many)
    assert one.leader_changes(kept + 1) == too_many[1:]


def producer_ids_are_handed_out_once(harness: Harness) -> None:
    one, two = harness.open(), harness.open()
    blocks = [one.allocate_producer_ids(), two.allocate_producer_ids(), one.allocate_producer_ids(10)]
    one.close()
    blocks.append(harness.open().allocate_producer_ids())
    handed_out = [number for block in blocks for number in range(block.first, block.first + block.size)]
    assert len(handed_out) == 3010
    assert len(set(handed_out)) == 3010
    assert min(handed_out) >= 0


def a_block_of_producer_ids_counts_as_a_write(harness: Harness) -> None:
    registry = harness.open()
    before = _image(registry)
    registry.allocate_producer_ids()
    change = registry.load(before)
    assert change.image.version > before.version
    assert (change.topics, change.brokers) == (frozenset(), frozenset())


def one_that_goes_back_is_used_no_more(harness: Harness) -> None:
    """It shows an older version, or an older controller epoch, than others have told of."""
    one, epoch = _controller(harness)
    two, _ = _registered(harness, _registration(2))
    image = _image(one)
    one.note_version(image.version + 1, image.controller_epoch)
    two.note_version(image.version, image.controller_epoch + 1)
    for registry in (one, two):
        for call in (
            partial(registry.load, image),
            registry.elect_controller,
            registry.allocate_producer_ids,
            partial(registry.write, [SetBrokerConfig("", {"a": "1"})], controller_epoch=epoch),
            registry.resign,
            partial(registry.register_broker, _registration(1)),
        ):
            with pytest.raises(RegistryOutdated, match="it was put back from a copy"):
                call()
    found = _image(harness.open())
    assert (found.version, found.broker_configs) == (image.version, {})


def a_store_that_only_brokers_write_asks_for_nothing(harness: Harness) -> None:
    registry, epoch = _controller(harness)
    assert registry.write([CreateTopic("a", _ID, (_PARTITION,), {"b": "1"})], controller_epoch=epoch)
    assert registry.write([AddPartitions("a", _ID, 1, (_PARTITION,))], controller_epoch=epoch)
    assert registry.write([SetBrokerConfig("", {"b": "1"})], controller_epoch=epoch)
    assert not registry.outside_requests()
    assert registry.settle_requests((), controller_epoch=epoch)
    assert registry.write([DeleteTopic("a", _ID)], controller_epoch=epoch)
    assert not registry.outside_requests()


CHECKS: Final[tuple[Callable[[Harness], None], ...]] = (
    cluster_id_is_one_for_all_and_for_ever,
    the_secret_is_one_for_all_and_for_ever,
    a_registered_broker_is_seen_by_all,
    a_broker_without_rack_and_peers_is_one,
    a_broker_beside_others_is_fenced_until_the_controller_ends_that,
    a_broker_that_returns_beside_others_is_fenced,
    a_node_id_belongs_to_one_broker_at_a_time,
    a_copy_of_its_directory_is_not_the_broker,
    the_incarnation_is_one_for_all,
    a_node_id_is_free_after_its_session,
    a_broker_is_known_by_any_of_its_directories,
    directories_are_remembered_after_the_session,
    the_last_registration_is_remembered_after_the_session,
    a_registration_may_be_bound_to_the_state_that_it_was_decided_upon,
    a_broker_with_an_old_directory_names_its_replicas,
    a_broker_that_may_have_lost_records_says_so_until_it_is_taken_in,
    a_broker_that_has_lost_a_directory_names_the_replicas_until_it_is_taken_in,
    a_restarted_broker_takes_over_its_registration,
    a_broker_that_leaves_is_fenced_at_once,
    an_older_life_cannot_end_the_newer,
    a_dead_broker_is_found_until_it_is_fenced,
    a_session_is_of_one_registration,
    a_broker_tells_its_address_later,
    brokers_are_announced,
    the_first_of_announced_brokers_is_not_alone,
    one_controller_at_a_time,
    a_fenced_controller_keeps_its_role,
    a_removed_broker_is_gone_until_it_registers_again,
    a_dead_controller_is_followed_with_a_larger_epoch,
    a_controller_that_leaves_frees_the_role,
    a_controller_that_resigns_frees_the_role,
    a_restarted_controller_gets_a_larger_epoch,
    a_controller_that_has_registered_again_is_followed,
    the_former_controller_writes_nothing,
    a_topic_is_there_for_all_with_everything,
    a_name_is_taken_once,
    a_write_is_all_or_nothing,
    a_deleted_topic_leaves_nothing,
    partitions_are_added_behind_the_last,
    a_partition_changes_only_at_its_expected_epoch,
    reassignments_and_eligible_leaders_are_kept,
    settings_are_replaced_whole,
    an_image_never_changes,
    others_hear_of_changes,
    a_history_of_leaders_is_kept_with_what_moved_them,
    the_history_of_leaders_is_bounded,
    producer_ids_are_handed_out_once,
    a_block_of_producer_ids_counts_as_a_write,
    one_that_goes_back_is_used_no_more,
    a_store_that_only_brokers_write_asks_for_nothing,
)
