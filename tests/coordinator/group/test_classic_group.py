"""A group of the classic protocol by itself: members, protocols, checks, records."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.group.classic_group import VALID_PREVIOUS, ClassicGroup, ClassicGroupMember, ClassicGroupState
from barnabas.errors import FencedInstanceId, IllegalGeneration, NonEmptyGroup, RebalanceInProgress, UnknownMemberId
from coordinator.group_rig import FENCED, SUBSCRIPTION, UNKNOWN, Later

S = ClassicGroupState


def member(name: str, *protocols: str, instance: str | None = None, kind: str = "consumer") -> ClassicGroupMember:
    return ClassicGroupMember(
        member_id=name,
        group_instance_id=instance,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=len(name) * 1000,
        session_timeout_ms=500,
        protocol_type=kind,
        protocols=dict.fromkeys(protocols or ("range",), SUBSCRIPTION),
    )


def group_of(*members: ClassicGroupMember) -> ClassicGroup:
    """A group at generation 1 whose members have joined."""
    group = ClassicGroup("g", 5)
    group.transition_to(S.PREPARING_REBALANCE, 6)
    for each in members:
        group.add(each, Later())
    group.next_generation(7)
    return group


@given(st.lists(st.permutations(["range", "robin", "sticky"]).flatmap(lambda order: st.lists(
    st.sampled_from(order), min_size=1, unique=True)), min_size=1, max_size=6))  # fmt: skip
def test_the_protocol_of_all_with_the_most_votes_is_chosen(preferences: list[list[str]]) -> None:
    group = ClassicGroup("g", 0)
    for number, protocols in enumerate(preferences):
        group.add(member(f"m{number}", *protocols))
    common = set.intersection(*map(set, preferences))
    group.transition_to(S.PREPARING_REBALANCE, 0)
    assert group.supports("consumer", common) is bool(common)
    assert not group.supports("other", common)
    if common:
        votes = [next(name for name in protocols if name in common) for protocols in preferences]
        assert votes.count(group.select_protocol()) == max(map(votes.count, votes))
    for number in range(1, len(preferences)):
        group.remove(f"m{number}")
    assert all(group.supports("consumer", [name]) for name in preferences[0]), "who left has no say"


def test_waiting_joins_are_counted_and_answered_once() -> None:
    group = ClassicGroup("g", 0)
    group.transition_to(S.PREPARING_REBALANCE, 0)
    first, second = Later(), Later()
    group.add(member("a"), first)
    group.pending_members.add("b")
    assert not group.has_all_members_joined()
    group.add(member("b"))
    assert [each.member_id for each in group.not_yet_rejoined()] == ["b"]
    group.update_member(group.members["a"], {"robin": b"", "sticky": b""}, 9000, 500, second)
    assert not group.supports("consumer", ["range"]), "its former protocols do not count any more"
    assert not group.supports("consumer", ["robin"]), "which the other one does not have"
    assert first.error == UNKNOWN
    assert (group.awaiting_join_count, group.rebalance_timeout_ms()) == (1, 9000)
    assert group.complete_join(group.members["a"], group.join_response("a", leader_id=""))
    assert not group.complete_join(group.members["a"], group.join_response("a", leader_id=""))
    assert second.error == group.awaiting_join_count == 0


def test_the_leader_is_one_that_is_there() -> None:
    group = group_of(member("a"), member("b"), member("c"))
    assert group.is_leader("a")
    group.set_awaiting_join(group.members["a"], None)
    assert group.elect_joined_leader()
    assert group.is_leader("b")
    group.remove("b")
    assert group.is_leader("a")


def test_an_instance_that_returns_takes_everything_over() -> None:
    group = group_of(member("a", instance="i"), member("b"))
    waiting = group.members["a"].awaiting_join
    new = group.replace_static("i", "a", "a2")
    assert isinstance(waiting, Later)
    assert waiting.error == FENCED
    assert (list(group.members), group.leader_id, group.static_members) == (["a2", "b"], "a2", {"i": "a2"})
    assert new.protocols == {"range": SUBSCRIPTION}
    assert group.check_member("a2", "i") is new
    with pytest.raises(FencedInstanceId):
        group.check_member("a", "i")


def test_who_may_commit() -> None:
    group = group_of(member("a"))
    with pytest.raises(RebalanceInProgress):
        group.check_offset_commit("a", None, 1)
    group.transition_to(S.STABLE, 8)
    group.check_offset_commit("a", None, 1)
    group.check_offset_commit("", None, -1, transactional=True)
    for arguments, error in ((("a", None, 2), IllegalGeneration), (("b", None, 1), UnknownMemberId),
                             (("", None, -1), UnknownMemberId)):  # fmt: skip
        with pytest.raises(error):
            group.check_offset_commit(*arguments)
    with pytest.raises(NonEmptyGroup):
        group.check_delete()


@pytest.mark.parametrize("metadata", [SUBSCRIPTION, b"\0", b""])
def test_topics_are_known_where_all_metadata_can_be_read(metadata: bytes) -> None:
    group = ClassicGroup("g", 0)
    assert not group.is_subscribed_to("orders")
    for each in (member("a"), member("b")):
        group.add(each)
    group.members["b"].protocols["range"] = metadata
    group.transition_to(S.PREPARING_REBALANCE, 0)
    group.next_generation(0)
    assert group.subscribed_topics == (frozenset({"orders"}) if metadata == SUBSCRIPTION else None)
    assert group.is_subscribed_to("orders")
    assert group.is_subscribed_to("other") is (metadata != SUBSCRIPTION), "better kept than deleted under a member"


def test_a_group_is_made_again_from_its_record() -> None:
    group = group_of(member("a", instance="i"), member("bb"))
    record = group.as_record({"a": b"1", "bb": b"2"})
    again = ClassicGroup.from_record("g", record, 99)
    assert again.is_in(S.STABLE)
    fields: list[Any] = ["generation_id", "leader_id", "protocol_name", "protocol_type", "static_members"]
    assert [getattr(again, name) for name in fields] == [getattr(group, name) for name in fields]
    assert [each.assignment for each in again.members.values()] == [b"1", b"2"]
    assert again.rebalance_timeout_ms() == 2000
    assert again.as_record({"a": b"1", "bb": b"2"}) == record
    assert again.is_subscribed_to("orders")


def test_no_state_without_a_way_to_it() -> None:
    for state in S:
        for before in S:
            group = ClassicGroup("g", 0)
            group.state = before
            if before in VALID_PREVIOUS[state]:
                group.transition_to(state, 3)
                assert (group.state, group.previous_state, group.state_since_ms) == (state, before, 3)
            else:
                with pytest.raises(AssertionError, match="cannot become"):
                    group.transition_to(state, 3)
