"""Stories of one member: what it asks for, what its application hears, and why each rebalance happened."""

import logging
from itertools import pairwise

import pytest

from barnabas.client.consumer.group.generation import MemberState
from barnabas.errors import (
    BarnabasError,
    ConnectionLost,
    FencedInstanceId,
    GroupAuthorizationFailed,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    KafkaError,
    TopicAuthorizationFailed,
)
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from simulation.membership import PARKED, ScriptedGroup

LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
ILLEGAL_GENERATION, INCONSISTENT, UNKNOWN_MEMBER, REBALANCE_IN_PROGRESS = 22, 23, 25, 27
MEMBER_ID_REQUIRED, GROUP_MAX_SIZE, FENCED = 79, 81, 82
REQUEST_TIMED_OUT = 7


@pytest.fixture
def script() -> ScriptedGroup:
    return ScriptedGroup()


# --- joining ----------------------------------------------------------------------------------------------------------


def test_the_first_join_takes_no_time(script: ScriptedGroup) -> None:
    script.answer_with(ApiKey.JOIN_GROUP, JoinGroupResponse(error_code=MEMBER_ID_REQUIRED, member_id="m-1"))
    began = script.cluster.now
    script.join()
    assert script.membership.history.past[0].ended_at == began
    assert [request.member_id for request in script.asked(ApiKey.JOIN_GROUP)] == ["", "m-1"]
    assert script.reasons() == ["joining the group"] * 2
    assert script.events == ["assigned mine"]
    assert script.callbacks.elected == [("range", ["m-1"], False)]
    (sync,) = script.asked(ApiKey.SYNC_GROUP)
    assert (sync.generation_id, sync.member_id, sync.protocol_name) == (1, "m-1", "range")
    assert [(each.member_id, each.assignment) for each in sync.assignments] == [("m-1", b"m-1")]
    (rebalance,) = script.membership.history.past
    assert (rebalance.reason, rebalance.generation_id, rebalance.setbacks) == ("joining the group", 1, ())
    assert script.membership.rejoin_reason is None


def test_a_coordinator_that_never_knows_our_name_is_not_asked_without_a_pause(script: ScriptedGroup) -> None:
    refused = JoinGroupResponse(error_code=MEMBER_ID_REQUIRED, member_id="m-1")
    script.answer_with(ApiKey.JOIN_GROUP, *[refused] * 6)
    began = script.cluster.now
    script.membership.subscribe()
    script.poll(30)
    joins = [received.received_at for received in script.cluster.requests if received.api_key == ApiKey.JOIN_GROUP]
    pauses = [later - earlier for earlier, later in pairwise(joins)]
    assert pauses[0] == 0, "the first time it is how a group is joined"
    assert all(later > earlier >= 0.05 for earlier, later in pairwise(pauses[1:4])), pauses
    assert script.cluster.now - began > 1
    assert script.events == ["assigned mine"]


def test_a_follower_sends_no_shares(script: ScriptedGroup) -> None:
    script.answer_with(ApiKey.JOIN_GROUP, script.joined(leader="m-9"))
    script.join()
    assert script.callbacks.elected == []
    assert script.asked(ApiKey.SYNC_GROUP)[0].assignments == []
    assert not script.membership.is_leader


def test_settings_travel(script: ScriptedGroup) -> None:
    script = ScriptedGroup(session_timeout_s=7, max_poll_interval_s=60, group_instance_id="i-1")
    script.join()
    (join,) = script.asked(ApiKey.JOIN_GROUP)
    assert (join.session_timeout_ms, join.rebalance_timeout_ms, join.group_instance_id) == (7000, 60_000, "i-1")
    assert script.asked(ApiKey.SYNC_GROUP)[0].group_instance_id == "i-1"
    script.idle(4)
    assert script.asked(ApiKey.HEARTBEAT)[0].group_instance_id == "i-1"


def test_a_leader_that_comes_back_keeps_the_shares(script: ScriptedGroup) -> None:
    script.answer_with(ApiKey.JOIN_GROUP, script.joined(skip_assignment=True))
    script.join()
    assert script.callbacks.elected == [("range", ["m-1"], True)]
    assert script.asked(ApiKey.SYNC_GROUP)[0].assignments == []


@pytest.mark.parametrize("code", [LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, REQUEST_TIMED_OUT])
@pytest.mark.parametrize("api_key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_passing_errors_are_tried_again(script: ScriptedGroup, api_key: int, code: int) -> None:
    script.answer_with(api_key, code, code)
    script.membership.subscribe()
    script.poll(5)
    assert script.events == ["assigned mine"]
    lookups = len(script.asked(ApiKey.FIND_COORDINATOR))
    assert lookups == (1 if code == LOAD_IN_PROGRESS else 3)
    assert len(script.membership.history.past[0].setbacks) == 2


@pytest.mark.parametrize("api_key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_a_lost_connection_does_not_stop_a_join(script: ScriptedGroup, api_key: int) -> None:
    script.answer_with(api_key, PARKED)
    script.membership.subscribe()
    script.poll(1)
    assert script.events == []
    for link in list(script.cluster.links.values()):
        script.cluster.cut(link)
    script.poll(5)
    assert script.events == ["assigned mine"]
    (rebalance,) = script.membership.history.past
    assert "ConnectionLost" in rebalance.setbacks[0]


def test_a_member_that_is_unknown_at_the_join_starts_anew(script: ScriptedGroup) -> None:
    script.answer_with(ApiKey.JOIN_GROUP, UNKNOWN_MEMBER)
    script.join()
    assert [request.member_id for request in script.asked(ApiKey.JOIN_GROUP)] == ["", ""]


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS])
def test_another_rebalance_during_the_sync(script: ScriptedGroup, code: int) -> None:
    script.answer_with(ApiKey.SYNC_GROUP, code)
    began = script.cluster.now
    script.join()
    assert [request.member_id for request in script.asked(ApiKey.JOIN_GROUP)] == [
        "",
        "" if code == UNKNOWN_MEMBER else "m-1",
    ]
    assert script.events == ["assigned mine"]
    assert script.membership.history.past[0].ended_at == began, "the first retry waits for nothing"


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (INCONSISTENT, InconsistentGroupProtocol, "partition.assignment.strategy"),
        (GROUP_MAX_SIZE, GroupMaxSizeReached, "group.max.size"),
        (30, GroupAuthorizationFailed, "READ the group"),
        (26, KafkaError, "group.min.session.timeout.ms"),
        (24, KafkaError, "'g'"),
    ],
)
def test_what_does_not_pass_is_told_once_and_tried_again(
    script: ScriptedGroup, code: int, error: type[BarnabasError], words: str
) -> None:
    script.answer_with(ApiKey.JOIN_GROUP, code)
    script.membership.subscribe()
    with pytest.raises(error, match=words):
        script.poll(1)
    assert script.events == []
    script.poll(1)
    assert script.events == ["assigned mine"]


def test_a_fenced_member_stays_out(script: ScriptedGroup) -> None:
    script = ScriptedGroup(group_instance_id="i-1")
    script.answer_with(ApiKey.JOIN_GROUP, FENCED)
    script.membership.subscribe()
    for _ in range(2):
        with pytest.raises(FencedInstanceId, match=r"group\.instance\.id='i-1'"):
            script.poll(1)
    assert len(script.asked(ApiKey.JOIN_GROUP)) == 1


def test_a_leader_that_cannot_share_says_so(script: ScriptedGroup) -> None:
    script.callbacks.assignment_error = TopicAuthorizationFailed("topic 't': not allowed")
    script.membership.subscribe()
    with pytest.raises(TopicAuthorizationFailed):
        script.poll(1)


def test_another_kind_of_group(script: ScriptedGroup) -> None:
    script.answer_with(ApiKey.JOIN_GROUP, script.joined(protocol_type="connect"))
    script.membership.subscribe()
    with pytest.raises(InconsistentGroupProtocol, match="connect"):
        script.poll(1)
    script.answer_with(ApiKey.SYNC_GROUP, SyncGroupResponse(protocol_name="sticky", assignment=b"x"))
    with pytest.raises(InconsistentGroupProtocol, match="sticky"):
        script.poll(1)


def test_a_join_waits_as_long_as_the_others_may_take(script: ScriptedGroup) -> None:
    script.answer_with(ApiKey.JOIN_GROUP, PARKED)
    script.membership.subscribe()
    script.poll(250)
    assert (script.events, len(script.asked(ApiKey.JOIN_GROUP))) == ([], 1)
    script.release(script.joined(generation=8))
    script.poll(1)
    assert script.membership.generation.generation_id == 8


def test_heartbeats_while_the_leader_waits_for_metadata(script: ScriptedGroup) -> None:
    script.callbacks.holds = True
    script.answer_with(ApiKey.HEARTBEAT, REBALANCE_IN_PROGRESS)
    script.membership.subscribe()
    script.poll(4)
    assert len(script.asked(ApiKey.HEARTBEAT)) == 1
    assert script.callbacks.hold is not None
    script.callbacks.hold()
    script.poll(1)
    assert script.events == ["assigned mine"]
    assert script.membership.rejoin_reason is None, "the group rebalances because we do"


# --- heartbeats -------------------------------------------------------------------------------------------------------


def test_heartbeats_go_on_while_the_application_is_busy(script: ScriptedGroup) -> None:
    script.join()
    script.idle(60)
    beats = [received for received in script.cluster.requests if received.api_key == ApiKey.HEARTBEAT]
    assert len(beats) == 20
    assert {(beat.request.generation_id, beat.request.member_id) for beat in beats} == {(1, "m-1")}
    assert script.membership.state is MemberState.STABLE


def test_the_group_rebalances(script: ScriptedGroup) -> None:
    script.join()
    script.answer_with(ApiKey.HEARTBEAT, REBALANCE_IN_PROGRESS)
    script.idle(10)
    assert script.events == ["assigned mine"], "nothing is taken from a busy application"
    assert len(script.asked(ApiKey.JOIN_GROUP)) == 1
    assert script.membership.rejoin_reason == "the group is rebalancing"
    script.answer_with(ApiKey.JOIN_GROUP, script.joined(generation=2))
    script.poll(1)
    assert script.events == ["assigned mine", "revoked", "assigned mine"]
    assert script.reasons()[1] == "the group is rebalancing"
    assert [rebalance.generation_id for rebalance in script.membership.history.past] == [1, 2]


@pytest.mark.parametrize(("code", "member"), [(ILLEGAL_GENERATION, "m-1"), (UNKNOWN_MEMBER, "")])
def test_what_an_expelled_member_owned_is_lost(script: ScriptedGroup, code: int, member: str) -> None:
    script.join()
    script.answer_with(ApiKey.HEARTBEAT, code)
    script.idle(10)
    assert script.membership.state is MemberState.UNJOINED
    assert script.events == ["assigned mine"]
    script.poll(1)
    assert script.events == ["assigned mine", "lost", "assigned mine"]
    assert script.asked(ApiKey.JOIN_GROUP)[1].member_id == member
    assert script.reasons()[1].endswith("to Heartbeat")


def test_an_expelled_member_without_partitions_comes_back_by_itself(script: ScriptedGroup) -> None:
    script.join()
    script.callbacks.owned = set()
    script.answer_with(ApiKey.HEARTBEAT, UNKNOWN_MEMBER)
    script.idle(10)
    assert len(script.asked(ApiKey.JOIN_GROUP)) == 2
    script.poll(0)
    assert script.events == ["assigned mine"] * 2


def test_an_assignment_that_nobody_took_is_void_after_an_expulsion(script: ScriptedGroup) -> None:
    script.membership.subscribe()
    script.membership.poll_timer.set_waiting(script.cluster.now, True)
    script.membership.begin_join_prepare()
    script.membership.join()
    script.answer_with(ApiKey.HEARTBEAT, UNKNOWN_MEMBER)
    script.answer_with(ApiKey.SYNC_GROUP, SyncGroupResponse(assignment=b"old"), SyncGroupResponse(assignment=b"new"))
    script.idle(10)
    script.poll(0)
    assert script.events == ["assigned new"]


@pytest.mark.parametrize("code", [LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR])
def test_a_coordinator_that_moves_changes_nothing(script: ScriptedGroup, code: int) -> None:
    script.join()
    script.answer_with(ApiKey.HEARTBEAT, code, code)
    script.idle(3.5)
    assert len(script.asked(ApiKey.HEARTBEAT)) == 3, "tried again soon"
    assert len(script.asked(ApiKey.FIND_COORDINATOR)) == (1 if code == LOAD_IN_PROGRESS else 3)
    script.poll(0)
    assert script.events == ["assigned mine"]


def test_a_member_survives_its_coordinators_restart(script: ScriptedGroup) -> None:
    script.join()
    script.cluster.stop(1)
    script.idle(20)
    script.cluster.up.add(1)
    script.idle(5)
    assert script.membership.state is MemberState.STABLE
    assert script.events == ["assigned mine"]
    assert script.cluster.now - script.membership.heartbeat.answered_at < 4


def test_silence_for_a_session_is_told(script: ScriptedGroup, caplog: pytest.LogCaptureFixture) -> None:
    script.join()
    script.cluster.stop(1)
    script.idle(44)
    assert "session.timeout.ms" not in caplog.text
    script.idle(20)
    assert caplog.text.count("session.timeout.ms is 45000") == 1


def test_a_refused_heartbeat_is_told(script: ScriptedGroup) -> None:
    script.join()
    script.answer_with(ApiKey.HEARTBEAT, 30)
    script.idle(10)
    with pytest.raises(GroupAuthorizationFailed):
        script.poll(0)
    script.poll(1)
    assert script.events == ["assigned mine", "lost", "assigned mine"]


def test_a_member_fenced_by_its_double_stays_out(script: ScriptedGroup) -> None:
    script = ScriptedGroup(group_instance_id="i-1")
    script.join()
    script.answer_with(ApiKey.HEARTBEAT, FENCED)
    script.idle(100)
    assert len(script.asked(ApiKey.HEARTBEAT)) == 1
    for _ in range(2):
        with pytest.raises(FencedInstanceId):
            script.poll(1)
    assert len(script.asked(ApiKey.JOIN_GROUP)) == 1


# --- reasons of our own -----------------------------------------------------------------------------------------------


def test_a_changed_subscription_while_joining_makes_another_round(script: ScriptedGroup) -> None:
    script.answer_with(ApiKey.JOIN_GROUP, PARKED)
    script.membership.subscribe()
    script.poll(1)
    script.membership.request_rejoin("the subscription has changed")
    script.release(script.joined())
    script.poll(1)
    assert script.events == ["assigned mine", "revoked", "assigned mine"]
    assert script.reasons() == ["joining the group", "the subscription has changed"]


def test_long_reasons_are_cut(script: ScriptedGroup) -> None:
    script.join()
    script.membership.request_rejoin("x" * 300)
    script.poll(1)
    assert script.reasons()[1] == "x" * 255


# --- the application stays away ---------------------------------------------------------------------------------------


def test_an_application_that_stays_away_is_warned_and_leaves(
    script: ScriptedGroup, caplog: pytest.LogCaptureFixture
) -> None:
    script = ScriptedGroup(max_poll_interval_s=100)
    caplog.set_level(logging.WARNING)
    script.join()
    script.idle(49)
    assert caplog.text == ""
    script.idle(2)
    assert "50.0 s, which is 50 % of max.poll.interval.ms=100000" in caplog.text
    script.idle(30)
    assert "80 % of max.poll.interval.ms" in caplog.text
    assert script.asked(ApiKey.LEAVE_GROUP) == []
    beats = len(script.asked(ApiKey.HEARTBEAT))
    script.idle(60)
    (leave,) = script.asked(ApiKey.LEAVE_GROUP)
    assert (leave.members[0].member_id, leave.members[0].reason) == ("m-1", "no poll for max.poll.interval.ms=100000")
    assert len(script.asked(ApiKey.HEARTBEAT)) <= beats + 7
    assert len(caplog.records) == 3
    script.poll(1)
    assert script.events == ["assigned mine", "lost", "assigned mine"]
    assert script.reasons()[1] == "no poll for max.poll.interval.ms=100000"


def test_polls_keep_a_member_in(script: ScriptedGroup, caplog: pytest.LogCaptureFixture) -> None:
    script = ScriptedGroup(max_poll_interval_s=100)
    script.join()
    for _ in range(10):
        script.idle(45)
        script.poll(0)
    script.poll(300)
    assert (caplog.text, script.events) == ("", ["assigned mine"])


def test_a_static_member_that_stays_away_only_falls_silent(script: ScriptedGroup) -> None:
    script = ScriptedGroup(max_poll_interval_s=100, group_instance_id="i-1")
    script.join()
    script.idle(300)
    assert script.asked(ApiKey.LEAVE_GROUP) == []
    assert len(script.asked(ApiKey.HEARTBEAT)) <= 34
    script.poll(1)
    assert script.events == ["assigned mine", "lost", "assigned mine"]


def test_an_answer_to_a_member_that_has_left_is_void(script: ScriptedGroup) -> None:
    script = ScriptedGroup(max_poll_interval_s=10)
    script.answer_with(ApiKey.JOIN_GROUP, PARKED)
    script.membership.subscribe()
    script.poll(1)
    script.idle(20)
    assert script.membership.state is MemberState.UNJOINED
    script.release(script.joined())
    script.idle(1)
    assert script.membership.state is MemberState.UNJOINED
    assert script.asked(ApiKey.SYNC_GROUP) == []


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_leaving_says_why(script: ScriptedGroup) -> None:
    script.join()
    promise = script.membership.unsubscribe("the consumer is closed")
    script.cluster.result(promise)
    (leave,) = script.asked(ApiKey.LEAVE_GROUP)
    assert [(each.member_id, each.reason) for each in leave.members] == [("m-1", "the consumer is closed")]
    script.idle(100)
    assert (len(script.asked(ApiKey.HEARTBEAT)), len(script.asked(ApiKey.JOIN_GROUP))) == (0, 1)


@pytest.mark.parametrize("settings", [{}, {"group_instance_id": "i-1"}])
def test_who_is_not_in_the_group_or_static_does_not_leave(settings: dict[str, str]) -> None:
    script = ScriptedGroup(**settings)
    if settings:
        script.join()
    assert script.membership.unsubscribe("closed").done
    script.idle(10)
    assert script.asked(ApiKey.LEAVE_GROUP) == []


def test_a_leave_without_an_answer_ends(script: ScriptedGroup) -> None:
    script.join()
    script.answer_with(ApiKey.LEAVE_GROUP, PARKED)
    promise = script.membership.leave("closed")
    script.idle(1)
    assert not promise.done
    script.cluster.stop(1)
    script.idle(1)
    assert promise.done


def test_unreachable_coordinators_show_what_was_tried(script: ScriptedGroup) -> None:
    script.cluster.stop(1)
    script.membership.subscribe()
    script.poll(40)
    under_way = script.membership.history.under_way()
    assert under_way is not None
    assert any(ConnectionLost.__name__ in setback for setback in under_way.setbacks)
