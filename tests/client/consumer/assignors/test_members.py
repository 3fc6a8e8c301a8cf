"""The members that the group's leader passes to assignors."""

from barnabas.client.consumer.assignors import Member, members_of
from barnabas.client.consumer.group.consumer_protocol import Subscription, encode_subscription
from barnabas.protocol.messages.join_group import JoinGroupResponseMember
from client.consumer.assignors.groups import RANGE, ROUND_ROBIN, at, shown


def test_static_members_come_first_by_their_instance_ids() -> None:
    members = [
        Member("a", ("t",)),
        Member("z", ("t",), group_instance_id="i2"),
        Member("y", ("t",), group_instance_id="i9"),
    ]
    assert shown(RANGE.assign(members, {"t": 3})) == {"z": ["t-0"], "y": ["t-1"], "a": ["t-2"]}
    assert shown(ROUND_ROBIN.assign(members, {"t": 3})) == {"z": ["t-0"], "y": ["t-1"], "a": ["t-2"]}


def test_members_of_a_join_answer() -> None:
    told = Subscription(("t", "s"), (at("t-1"),), 4, "rack", b"data")
    joined = JoinGroupResponseMember(member_id="m", group_instance_id="i", metadata=encode_subscription(told))
    assert members_of([joined]) == [Member("m", ("s", "t"), (at("t-1"),), 4, "i", "rack", b"data")]
