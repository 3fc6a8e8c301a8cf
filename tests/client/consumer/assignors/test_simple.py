"""Range and round robin: worked examples, and Kafka's own answers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.consumer.assignors import Assignor, Member
from client.consumer.assignors.groups import RANGE, ROUND_ROBIN, golden, group, groups, member_from, shown


def test_range_of_ten_over_three() -> None:
    shares = RANGE.assign(group(["c0", "c1", "c2"], ["t"]), {"t": 10})
    assert {name: [topic_partition.partition for topic_partition in share] for name, share in shares.items()} == {
        "c0": [0, 1, 2, 3],
        "c1": [4, 5, 6],
        "c2": [7, 8, 9],
    }


def test_range_of_two_topics() -> None:
    assert shown(RANGE.assign(group(["c0", "c1"], ["t0", "t1"]), {"t0": 3, "t1": 3})) == {
        "c0": ["t0-0", "t0-1", "t1-0", "t1-1"],
        "c1": ["t0-2", "t1-2"],
    }


def test_round_robin_of_two_topics() -> None:
    assert shown(ROUND_ROBIN.assign(group(["c0", "c1"], ["t0", "t1"]), {"t0": 3, "t1": 3})) == {
        "c0": ["t0-0", "t0-2", "t1-1"],
        "c1": ["t0-1", "t1-0", "t1-2"],
    }


@settings(max_examples=100, deadline=None)
@given(groups(), st.integers(0, 9))
def test_range_keeps_equal_topics_together(the_group: tuple[list[Member], dict[str, int]], count: int) -> None:
    members, _ = the_group
    both = [member._replace(topics=("t0", "t1")) for member in members]
    for share in RANGE.assign(both, {"t0": count, "t1": count}).values():
        numbers = [
            [topic_partition.partition for topic_partition in share if topic_partition.topic == topic]
            for topic in ("t0", "t1")
        ]
        assert numbers[0] == numbers[1]


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN], ids=["range", "roundrobin"])
def test_as_kafka(assignor: Assignor) -> None:
    for case in golden():
        shares = assignor.assign([member_from(item) for item in case["members"]], case["counts"])
        assert {name: sorted(share) for name, share in shown(shares).items()} == {
            name: sorted(share) for name, share in case[assignor.name].items()
        }
