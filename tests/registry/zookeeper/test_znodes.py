"""The JSON in the znodes, and the history in the state."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.metadata.image import PartitionImage
from barnabas.registry.registry import LeaderChange, RegistryUnavailable
from barnabas.registry.zookeeper import znodes
from barnabas.registry.zookeeper.znodes import State, TopicMarker, Touched
from barnabas.types import BrokerId, LeaderEpoch

NOBODY = State(1, BrokerId(-1), 0, 0)

touched = st.builds(
    Touched,
    *(st.frozensets(st.sampled_from(["a", "b", "ü", "x" * 249]), max_size=3) for _ in range(3)),
    st.frozensets(st.integers(0, 9), max_size=2),
)


@given(st.lists(touched, max_size=8))
def test_a_state_is_read_as_it_was_written(writes: list[Touched]) -> None:
    state = NOBODY
    for each in writes:
        state = State.of_data(state.following(each).encoded())
    assert state.version == 1 + len(writes)
    for after in range(len(writes)):
        assert state.touched_since(after + 1) == Touched.together(writes[after:])
    assert state.touched_since(state.version) == Touched()


def test_what_a_later_release_has_added_is_passed_over() -> None:
    state = NOBODY.following(Touched(topics=frozenset("t")))
    later = json.loads(state.encoded())
    later["later"] = 1
    later["history"][0].append(["x"])
    assert State.of_data(json.dumps(later).encode()) == state
    change = LeaderChange(1, "t", 0, 1, 2, 3, "test", 4, 9000)
    rows = json.loads(znodes.encode_leader_changes([change]))
    assert len(rows["rows"][0]) == 8, "the release before refuses longer rows"
    rows["later"] = 1
    rows["rows"][0].append("x")
    assert znodes.parse_leader_changes("/x", json.dumps(rows).encode()) == [change]
    del rows["noticed_after_ms"]
    assert znodes.parse_leader_changes("/x", json.dumps(rows).encode()) == [change._replace(noticed_after_ms=0)]
    partition = PartitionImage(BrokerId(1), LeaderEpoch(2), (BrokerId(1),), (BrokerId(1),), 3)
    node = json.loads(znodes.encode_partition(partition, 1))
    assert znodes.parse_partition("/x", json.dumps({**node, "later": 1}).encode()) == partition


def test_the_history_of_a_state_is_bounded() -> None:
    state = NOBODY
    for number in range(1000):
        state = State.of_data(state.following(Touched(topics=frozenset((f"t{number}",)))).encoded())
    assert len(state.encoded()) < 20_000
    assert state.touched_since(1) is None
    found = state.touched_since(state.version - 2)
    assert found is not None
    assert found.topics == {"t998", "t999"}


def test_a_write_that_touches_too_much_is_not_named() -> None:
    many = Touched(topics=frozenset(f"{number:0200}" for number in range(200)))
    state = State.of_data(NOBODY.following(many).encoded())
    assert state.touched_since(1) is None
    state = State.of_data(state.following(Touched()).encoded())
    assert (state.touched_since(1), state.touched_since(2)) == (None, Touched())


def test_a_topic_without_marker_is_not_there_yet() -> None:
    assert TopicMarker.of_data("t", b"") is None


@given(
    st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_what_others_write_never_crashes(data: bytes) -> None:
    for read in (
        lambda: State.of_data(data),
        lambda: TopicMarker.of_data("t", data),
        lambda: znodes.parse_registration(1, data),
        lambda: znodes.parse_directories(1, data),
        lambda: znodes.parse_partition("/x", data),
        lambda: znodes.parse_config("/x", data),
        lambda: znodes.parse_cluster_id(data),
        lambda: znodes.parse_next_producer_id(data),
        lambda: znodes.parse_leader_changes("/x", data),
    ):
        if data:
            with pytest.raises(RegistryUnavailable, match="cannot be read"):
                read()
    assert znodes.parse_epoch(data) >= 0
