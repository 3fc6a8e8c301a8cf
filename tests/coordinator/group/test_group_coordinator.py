"""The group coordinator as handlers call it: the partition of a group, the errors that clients understand."""

from typing import Any

import pytest

from barnabas import errors
from barnabas.coordinator.group import group_coordinator
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.leave_group import LeaveGroupRequest
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from coordinator.group_rig import Later, Rig

OFFSETS = {("orders", 0): 7}
NAMES = [f"group-{number}" for number in range(12)]


def asked(start: Any, *arguments: Any, **options: Any) -> Any:
    """The answer to a request, which is there at once."""
    later = Later()
    start(*arguments, **options, reply=later)
    return later.value


def fetched(rig: Rig, *names: str) -> list[Any]:
    """The errors and the number of topics of each group."""
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    later = Later()
    rig.groups.fetch_offsets(groups, require_stable=False, reply=later)
    rig.advance(0.001)
    return [(each.error_code, len(each.topics)) for each in later.value]


def test_an_empty_group_id_is_invalid() -> None:
    groups, code = Rig().groups, errors.InvalidGroupId.code
    client = {"client_id": "c", "client_host": "/h", "api_version": 9}
    assert asked(groups.join, JoinGroupRequest(group_id=""), **client).error_code == code
    for start, request in (
        (groups.sync, SyncGroupRequest(group_id="")),
        (groups.heartbeat, HeartbeatRequest(group_id="")),
        (groups.leave, LeaveGroupRequest(group_id="")),
        (groups.delete_offsets, OffsetDeleteRequest(group_id="")),
    ):
        assert asked(start, request).error_code == code


def test_groups_of_all_partitions_are_listed_described_and_deleted() -> None:
    rig = Rig(partitions=5)
    for name in NAMES:
        rig.commit(OFFSETS, group=name)
    assert len({rig.groups.partition_for(name) for name in NAMES}) > 1
    listed = Later()
    rig.groups.list_groups([], [], reply=listed)
    rig.advance(0.001)
    assert sorted(group.group_id for group in listed.value.groups) == sorted(NAMES)
    described = Later()
    rig.groups.describe_groups([*NAMES, "ghost"], api_version=6, reply=described)
    rig.advance(0.001)
    assert [(group.group_id, group.group_state) for group in described.value] == [
        *((name, "Empty") for name in NAMES),
        ("ghost", "Dead"),
    ]
    deleted = Later()
    rig.groups.delete_groups([*NAMES, NAMES[0]], reply=deleted)
    rig.advance(0.001)
    assert sorted((result.group_id, result.error_code) for result in deleted.value) == sorted((n, 0) for n in NAMES)
    assert fetched(rig, *NAMES) == [(0, 0)] * len(NAMES)


def test_what_is_led_elsewhere_fails_alone() -> None:
    rig = Rig(partitions=5)
    for name in NAMES:
        rig.commit(OFFSETS, group=name)
    gone = rig.groups.partition_for(NAMES[0])
    rig.groups.on_resigned(gone)
    elsewhere = [rig.groups.partition_for(name) == gone for name in NAMES]
    code = errors.NotCoordinator.code
    assert fetched(rig, *NAMES) == [(code, 0) if away else (0, 1) for away in elsewhere]
    deleted = Later()
    rig.groups.delete_groups(NAMES, reply=deleted)
    rig.advance(0.001)
    found = {result.group_id: result.error_code for result in deleted.value}
    assert found == {name: code if away else 0 for name, away in zip(NAMES, elsewhere, strict=True)}


def test_groups_behind_too_many_offsets_are_to_be_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_coordinator, "OFFSETS_MAX", 2)
    rig = Rig()
    for name in "abc":
        rig.commit(OFFSETS, group=name)
    code = errors.CoordinatorLoadInProgress.code
    assert fetched(rig, "a", "b", "c") == [(0, 1), (0, 1), (code, 0)]


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (errors.NotEnoughReplicas, errors.CoordinatorNotAvailable),
        (errors.NotLeaderOrFollower, errors.NotCoordinator),
        (errors.KafkaStorageError, errors.NotCoordinator),
    ],
)
def test_a_failed_write_is_told_as_clients_know_it(
    failure: type[errors.KafkaError], answer: type[errors.KafkaError]
) -> None:
    rig = Rig()
    rig.log.fail = failure("no")
    assert rig.commit_code(OFFSETS) == answer.code
